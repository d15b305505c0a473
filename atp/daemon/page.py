"""Memory that supervisor, dispatcher and workers share.

Before it enters a handler, a worker writes here what it runs and until when;
after it has said how that ended, it clears that. So the supervisor can enforce
time-outs without anybody's help, and after a death it is known what was
running. Beside it stands what the dispatcher asks of a running attempt, and
the ring in which the worker says how its attempts ended.
"""

import mmap
import struct
from dataclasses import dataclass

from .ring import Ring

# What runs: Instance (0 if nothing), attempt, deadline and start on the uptime clock,
# what it may take of memory (0 for no limit) and what was taken before it, in bytes.
_RUNNING = struct.Struct("=qqddqq")
_INSTANCE = struct.Struct("=q")
_TAIL = struct.Struct("=qddqq")
# What is asked: Instance, attempt.
_ASKED = struct.Struct("=qq")
_HEAD = 64
_SLOT = 128 * 1024

NEVER = float("inf")
# The Instance and attempt of a worker that runs none.
NOTHING = (0, 0)


@dataclass(frozen=True, slots=True)
class Running:
    """What a worker is running.

    ``memory`` is what it may take, in bytes, beyond what the worker had
    ``before``; 0 is no limit.
    """

    instance: int
    attempt: int
    deadline: float
    started: float
    memory: int = 0
    before: int = 0

    @property
    def key(self):
        return self.instance, self.attempt


class Page:
    """One slot per worker. It must be made before the first fork."""

    def __init__(self, slots):
        self._memory = mmap.mmap(-1, _SLOT * slots)

    def enter(self, slot, instance, attempt, *, started, deadline=NEVER, memory=0, before=0):
        """Write what the slot's worker is about to run."""
        at = slot * _SLOT
        # The Instance comes last: until then the slot reads as empty.
        tail = (attempt, deadline, started, memory, before)
        _TAIL.pack_into(self._memory, at + _INSTANCE.size, *tail)
        _INSTANCE.pack_into(self._memory, at, instance)

    def leave(self, slot):
        """Write that the slot's worker runs nothing."""
        _INSTANCE.pack_into(self._memory, slot * _SLOT, 0)

    def read(self, slot):
        """Return the :class:`Running` of the slot, or None."""
        values = _RUNNING.unpack_from(self._memory, slot * _SLOT)
        return Running(*values) if values[0] else None

    def ask(self, slot, instance, attempt):
        """Ask the attempt that runs in the slot to end."""
        _ASKED.pack_into(self._memory, slot * _SLOT + _RUNNING.size, instance, attempt)

    def is_asked(self, slot, instance, attempt):
        """Tell whether this attempt has been asked to end."""
        asked = _ASKED.unpack_from(self._memory, slot * _SLOT + _RUNNING.size)
        return asked == (instance, attempt)

    def ring(self, slot):
        """Return the slot's :class:`Ring`."""
        at = slot * _SLOT
        return Ring(memoryview(self._memory)[at + _HEAD : at + _SLOT])
