"""Memory that supervisor, dispatcher and workers share.

Before a worker enters a handler, it writes here the attempt that it runs and its deadline.
After it has reported the end, it clears both. So the supervisor can enforce time-outs by
itself, and after the death of a worker it knows the attempt that was running. A worker's
slot also has the dispatcher's ask to the running attempt, and the ring into which the
worker writes the ends of its attempts.
"""

import mmap
import struct
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

from ..system.processes import uptime
from .ring import Ring

# The running attempt: Instance (0 if none), attempt, deadline and start on the uptime clock,
# its limit of memory (0 for no limit) and the memory used before it, in bytes, its time-out
# in seconds, and the Instance's uuid as text.
_RUNNING = struct.Struct("=qqddqqd37p")
_INSTANCE = struct.Struct("=q")
_TAIL = struct.Struct("=qddqqd37p")
_DEADLINE = struct.Struct("=d")
_DEADLINE_AT = 16
# The ask: Instance, attempt, one of END, PAUSE and GO, and the number of the pause.
_ASKED = struct.Struct("=qqqq")
# Whether the worker is writing a checkpoint.
_WRITES = struct.Struct("=?")
_WRITES_AT = _RUNNING.size + _ASKED.size
_HEAD = 128
_SLOT = 128 * 1024

NEVER = float("inf")
# The asks to a running attempt: end, pause, go on after a pause.
END, PAUSE, GO = 1, 2, 3
# The Instance and attempt of a worker that runs none.
NOTHING = (0, 0)


class Running(NamedTuple):
    """The attempt that a worker is running.

    The worker used ``before`` bytes of memory before the attempt, which may use ``memory``
    bytes more; 0 is no limit. It may run for ``timeout`` seconds; the ``deadline`` is later
    than that if the attempt was paused or had to wait.
    """

    instance: int
    attempt: int
    deadline: float
    started: float
    memory: int = 0
    before: int = 0
    timeout: float = NEVER
    name: bytes = b""

    @property
    def key(self):
        return self.instance, self.attempt


class Page:
    """The shared memory, with one slot per worker. The supervisor makes it before the first fork.

    Another process may read a slot at any moment. So each value is packed first and then
    copied over the old one. ``pack_into`` would write zeros first, and a deadline of zero has
    passed.
    """

    def __init__(self, slots):
        self._memory = mmap.mmap(-1, _SLOT * slots)

    def enter(self, slot, instance, *facts):
        """Write the attempt that the slot's worker is about to run: the fields of Running."""
        at = slot * _SLOT
        # The Instance comes last: until then the slot reads as empty.
        self._put(at + _INSTANCE.size, _TAIL.pack(*facts))
        self._put(at, _INSTANCE.pack(instance))

    def name_of(self, slot):
        """Return the uuid of the Instance that the slot's worker runs, or None."""
        running = self.read(slot)
        return running and UUID(running.name.decode())

    def leave(self, slot):
        """Write that the slot's worker runs no attempt."""
        self._put(slot * _SLOT, _INSTANCE.pack(0))

    def read(self, slot):
        """Return the :class:`Running` of the slot, or None."""
        values = _RUNNING.unpack_from(self._memory, slot * _SLOT)
        return Running(*values) if values[0] else None

    def put_off(self, slot, deadline):
        """Write the deadline of the attempt that the slot's worker runs."""
        self._put(slot * _SLOT + _DEADLINE_AT, _DEADLINE.pack(deadline))

    @contextmanager
    def unhurried(self, slot, longest=NEVER):
        """Extend the deadline by the time that the block takes, which should be ``longest``."""
        running = self.read(slot)
        if running is None or running.deadline == NEVER:
            yield
            return
        began = uptime()
        self.put_off(slot, max(running.deadline, began + longest))
        try:
            yield
        finally:
            self.put_off(slot, running.deadline + uptime() - began)

    def write(self, slot, is_writing):
        """Write whether the slot's worker holds locks in the queue; if so, nobody may stop it."""
        self._put(slot * _SLOT + _WRITES_AT, _WRITES.pack(is_writing))

    def is_writing(self, slot):
        """Tell whether the slot's worker holds locks in the queue."""
        return _WRITES.unpack_from(self._memory, slot * _SLOT + _WRITES_AT)[0]

    def ask(self, slot, instance, attempt, what=END, pause=0):
        """Ask ``what`` of the attempt in the slot; for GO, ``pause`` is the number of the pause."""
        asked = (instance, attempt, what, pause)
        self._put(slot * _SLOT + _RUNNING.size, _ASKED.pack(*asked))

    def asked(self, slot, instance, attempt):
        """Return the ask to this attempt (0 if none), and the number of the pause it is for."""
        asked = _ASKED.unpack_from(self._memory, slot * _SLOT + _RUNNING.size)
        return asked[2:] if asked[:2] == (instance, attempt) else (0, 0)

    def is_asked(self, slot, instance, attempt):
        """Tell whether this attempt has been asked to end."""
        return self.asked(slot, instance, attempt)[0] == END

    def _put(self, at, packed):
        self._memory[at : at + len(packed)] = packed

    def ring(self, slot):
        """Return the slot's :class:`Ring`."""
        at = slot * _SLOT
        return Ring(memoryview(self._memory)[at + _HEAD : at + _SLOT])
