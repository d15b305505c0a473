"""Memory that supervisor, dispatcher and workers share.

Before it enters a handler, a worker writes here what it runs and until when;
after it has said how that ended, it clears that. So the supervisor can enforce
time-outs without anybody's help, and after a death it is known what was
running. Beside it stands what the dispatcher asks of a running attempt, and
the ring in which the worker says how its attempts ended.
"""

import mmap
import struct
from typing import NamedTuple

from .ring import Ring

# What runs: Instance (0 if nothing), attempt, deadline and start on the uptime clock,
# what it may take of memory (0 for no limit) and what was taken before it, in bytes, and
# its time-out in seconds.
_RUNNING = struct.Struct("=qqddqqd")
_INSTANCE = struct.Struct("=q")
_TAIL = struct.Struct("=qddqqd")
_DEADLINE = struct.Struct("=d")
_DEADLINE_AT = 16
# What is asked: Instance, attempt, what, and of which of its pauses that is said.
_ASKED = struct.Struct("=qqqq")
_HEAD = 128
_SLOT = 128 * 1024

NEVER = float("inf")
# What may be asked of an attempt: to end, to pause, to go on after a pause.
END, PAUSE, GO = 1, 2, 3
# The Instance and attempt of a worker that runs none.
NOTHING = (0, 0)


class Running(NamedTuple):
    """What a worker is running.

    ``memory`` is what it may take, in bytes, beyond what the worker had
    ``before``; 0 is no limit. ``timeout`` is how long it may run, in seconds; the
    ``deadline`` is later than that if it was on hold or had to wait.
    """

    instance: int
    attempt: int
    deadline: float
    started: float
    memory: int = 0
    before: int = 0
    timeout: float = NEVER

    @property
    def key(self):
        return self.instance, self.attempt


class Page:
    """One slot per worker. It must be made before the first fork."""

    def __init__(self, slots):
        self._memory = mmap.mmap(-1, _SLOT * slots)

    def enter(self, slot, instance, *facts):
        """Write what the slot's worker is about to run: what :class:`Running` has, in its order."""
        at = slot * _SLOT
        # The Instance comes last: until then the slot reads as empty.
        _TAIL.pack_into(self._memory, at + _INSTANCE.size, *facts)
        _INSTANCE.pack_into(self._memory, at, instance)

    def leave(self, slot):
        """Write that the slot's worker runs nothing."""
        _INSTANCE.pack_into(self._memory, slot * _SLOT, 0)

    def read(self, slot):
        """Return the :class:`Running` of the slot, or None."""
        values = _RUNNING.unpack_from(self._memory, slot * _SLOT)
        return Running(*values) if values[0] else None

    def put_off(self, slot, deadline):
        """Write until when what the slot's worker runs has to end."""
        _DEADLINE.pack_into(self._memory, slot * _SLOT + _DEADLINE_AT, deadline)

    def ask(self, slot, instance, attempt, what=END, pause=0):
        """Ask something of the attempt that runs in the slot; GO names which of its pauses ends."""
        asked = (instance, attempt, what, pause)
        _ASKED.pack_into(self._memory, slot * _SLOT + _RUNNING.size, *asked)

    def asked(self, slot, instance, attempt):
        """Return what is asked of this attempt, 0 if nothing, and of which of its pauses."""
        asked = _ASKED.unpack_from(self._memory, slot * _SLOT + _RUNNING.size)
        return asked[2:] if asked[:2] == (instance, attempt) else (0, 0)

    def is_asked(self, slot, instance, attempt):
        """Tell whether this attempt has been asked to end."""
        return self.asked(slot, instance, attempt)[0] == END

    def ring(self, slot):
        """Return the slot's :class:`Ring`."""
        at = slot * _SLOT
        return Ring(memoryview(self._memory)[at + _HEAD : at + _SLOT])
