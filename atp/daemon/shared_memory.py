"""Memory that the processes share: running attempts and deadlines, a ring of ends, start tokens."""

import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self
from uuid import UUID
from zlib import crc32

from .processes import uptime

# A ring buffer in shared memory: a worker writes the ends of its attempts, the dispatcher reads.
#
# A worker with many short tasks writes the end of each without waking the dispatcher. The
# record stays in the ring whatever the worker runs next, even if the worker dies.

# Bytes written and bytes read since the beginning.
_COUNTS = 16
# The head of each record: its length and its checksum. Another processor may see the count
# before it sees the bytes; then the checksum is wrong, and the next read tries again.
_HEAD = struct.Struct("=II")


class Ring:
    """Records of bytes in a piece of shared memory; one process writes, another reads."""

    def __init__(self, memory: memoryview) -> None:
        # One item of a cast memoryview is written in one piece.
        self._counts = memory[:_COUNTS].cast("Q")
        self._bytes = memory[_COUNTS:]
        self._size = len(self._bytes)

    @property
    def written(self) -> int:
        """The number of bytes written since the beginning; :meth:`read` takes it as ``until``."""
        return self._counts[0]

    @property
    def has_news(self) -> bool:
        """Whether there are records that have not been read."""
        return self._counts[0] != self._counts[1]

    def write(self, record: bytes) -> bool:
        """Append a record; return False if there is no room for it."""
        frame = _HEAD.pack(len(record), crc32(record)) + record
        at = self._counts[0]
        if len(frame) > self._size - (at - self._counts[1]):
            return False
        place = at % self._size
        first = self._size - place
        if len(frame) <= first:
            self._bytes[place : place + len(frame)] = frame
        else:
            self._bytes[place:] = frame[:first]
            self._bytes[: len(frame) - first] = frame[first:]
        self._counts[0] = at + len(frame)
        return True

    def read(self, until: int) -> list[bytes]:
        """Remove and return the records up to the count of bytes ``until``, oldest first."""
        records, size = self._records(until)
        if size:
            self._counts[1] += size
        return records

    def unread(self) -> list[bytes]:
        """Return the records that have not been read, oldest first, and leave them there."""
        return self._records(self.written)[0]

    def _records(self, until: int) -> tuple[list[bytes], int]:
        """Return the unread records up to ``until``, and how many bytes they take."""
        data = self._copy(self._counts[1], until)
        records, at, size, head = [], 0, len(data), _HEAD.size
        while at < size:
            length, checksum = _HEAD.unpack_from(data, at)
            end = at + head + length
            record = data[at + head : end]
            if crc32(record) != checksum:
                break
            records.append(record)
            at = end
        return records, at

    def _copy(self, begin: int, end: int) -> bytes:
        if begin == end:
            return b""
        first, last = begin % self._size, end % self._size
        if first < last:
            return bytes(self._bytes[first:last])
        return bytes(self._bytes[first:]) + bytes(self._bytes[:last])

    def skip(self) -> None:
        """Skip all records that have not been read."""
        self._counts[1] = self._counts[0]


# Memory that supervisor, dispatcher and workers share.
#
# Before a worker enters a handler, it writes here the attempt that it runs and its deadline.
# After it has reported the end, it clears both. So the supervisor can enforce time-outs by
# itself, and after the death of a worker it knows the attempt that was running. A worker's
# slot also has the dispatcher's ask to the running attempt, and the ring into which the
# worker writes the ends of its attempts.

# The running attempt: Instance (0 if none), attempt, deadline and start on the uptime clock,
# its limit of memory (0 for no limit) and the memory used before it, in bytes, its time-out
# in seconds, and the Instance's uuid as text.
_RUNNING = struct.Struct("=qqddqqd37p")
_INSTANCE = struct.Struct("=q")
_TAIL = struct.Struct("=qddqqd37p")
_TAIL_AT, _TAIL_END = _INSTANCE.size, _RUNNING.size
_NO_INSTANCE = _INSTANCE.pack(0)
_DEADLINE = struct.Struct("=d")
_DEADLINE_AT = 16
# The ask: Instance, attempt, one of END, PAUSE and GO, and the number of the pause.
_ASKED = struct.Struct("=qqqq")
# Whether the worker is writing a checkpoint.
_WRITES = struct.Struct("=?")
_WRITES_AT = _RUNNING.size + _ASKED.size
# Until when an attempt that runs on another host may live, on the uptime clock; 0 for none.
_LEAVE = struct.Struct("=d")
_LEAVE_AT = _WRITES_AT + _WRITES.size
# The number of calls that threads of a loop carry out now for the attempt of the slot; and whether
# that attempt was cancelled.
_CALLS = struct.Struct("=q")
_CALLS_AT = _LEAVE_AT + _LEAVE.size
_CUT = struct.Struct("=q")
_CUT_AT = _CALLS_AT + _CALLS.size
# Behind all slots: until when the lease lets this daemon's attempts live.
_LEASE = struct.Struct("=d")
# Behind the lease, for each loop: the slot of the attempt whose step runs now, plus one, and since
# when on the uptime clock. The slot is 0 while the loop waits.
_STEP = struct.Struct("=qd")
_RUNNING_PAGE_HEAD = 192
_SLOT = 128 * 1024

NEVER = float("inf")
# The commands to a running attempt: end, pause, go on after a pause.
END, PAUSE, GO = 1, 2, 3
# The Instance and attempt of a worker that runs none.
NOTHING = (0, 0)
# An attempt in a loop was not cancelled; was cancelled; has had its turn since then.
NOT_CUT, CUT, HEARD = 0, 1, 2


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
    def key(self) -> tuple[int, int]:
        return self.instance, self.attempt


class Step(NamedTuple):
    """A step of a coroutine: the slot of its attempt, and since when it runs."""

    slot: int
    since: float


class Page:
    """The shared memory, with one slot per worker, and the steps of the loops.

    To this page, each place of a loop is a worker. The supervisor makes the page before the first
    fork.

    Another process may read a slot at any moment. So each value is packed first and then
    copied over the old one. ``pack_into`` would write zeros first, and a deadline of zero has
    passed.
    """

    def __init__(self, slots: int, loops: int = 0) -> None:
        self._lease_at = _SLOT * slots
        self._steps_at = self._lease_at + _LEASE.size
        self._memory = mmap.mmap(-1, self._steps_at + loops * _STEP.size)

    def enter(self, slot: int, instance: int, *facts: float | bytes) -> None:
        """Write the attempt that the slot's worker is about to run: the fields of Running."""
        # This and leave() are done for every attempt: without a call of _put().
        at, memory = slot * _SLOT, self._memory
        # The Instance comes last: until then the slot reads as empty.
        memory[at + _TAIL_AT : at + _TAIL_END] = _TAIL.pack(*facts)
        memory[at : at + _TAIL_AT] = _INSTANCE.pack(instance)

    def name_of(self, slot: int) -> UUID | None:
        """Return the uuid of the Instance that the slot's worker runs, or None."""
        running = self.read(slot)
        return running and UUID(running.name.decode())

    def leave(self, slot: int) -> None:
        """Write that the slot's worker runs no attempt."""
        at = slot * _SLOT
        self._memory[at : at + _TAIL_AT] = _NO_INSTANCE

    def read(self, slot: int) -> Running | None:
        """Return the :class:`Running` of the slot, or None."""
        values = _RUNNING.unpack_from(self._memory, slot * _SLOT)
        return Running(*values) if values[0] else None

    def put_off(self, slot: int, deadline: float) -> None:
        """Write the deadline of the attempt that the slot's worker runs."""
        self._put(slot * _SLOT + _DEADLINE_AT, _DEADLINE.pack(deadline))

    @contextmanager
    def unhurried(self, slot: int, longest: float = NEVER) -> Iterator[None]:
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

    def write(self, slot: int, is_writing: bool) -> None:
        """Write whether the slot's worker holds locks in the queue; if so, nobody may stop it."""
        self._put(slot * _SLOT + _WRITES_AT, _WRITES.pack(is_writing))

    def is_writing(self, slot: int) -> bool:
        """Tell whether the slot's worker holds locks in the queue."""
        return _WRITES.unpack_from(self._memory, slot * _SLOT + _WRITES_AT)[0]

    def ask(self, slot: int, instance: int, attempt: int, what: int = END, pause: int = 0) -> None:
        """Ask ``what`` of the attempt in the slot; for GO, ``pause`` is the number of the pause."""
        asked = (instance, attempt, what, pause)
        self._put(slot * _SLOT + _RUNNING.size, _ASKED.pack(*asked))

    def asked(self, slot: int, instance: int, attempt: int) -> tuple[int, int]:
        """Return the ask to this attempt (0 if none), and the number of the pause it is for."""
        asked = _ASKED.unpack_from(self._memory, slot * _SLOT + _RUNNING.size)
        return asked[2:] if asked[:2] == (instance, attempt) else (0, 0)

    def is_asked(self, slot: int, instance: int, attempt: int) -> bool:
        """Tell whether this attempt has been asked to end."""
        # This is asked() without its call: it is done for every attempt of a loop.
        asked = _ASKED.unpack_from(self._memory, slot * _SLOT + _RUNNING.size)
        return asked[:3] == (instance, attempt, END)

    @property
    def lease_until(self) -> float:
        """Until when the lease lets this daemon's attempts live, on the uptime clock."""
        return _LEASE.unpack_from(self._memory, self._lease_at)[0]

    def renew_lease(self, until: float) -> None:
        self._put(self._lease_at, _LEASE.pack(until))

    def give_leave(self, slot: int, until: float) -> None:
        """Write until when the attempt of the slot may live on another host."""
        self._put(slot * _SLOT + _LEAVE_AT, _LEAVE.pack(until))

    def leave_of(self, slot: int) -> float:
        """Return until when the attempt of the slot may live on another host; 0 if it is here."""
        return _LEAVE.unpack_from(self._memory, slot * _SLOT + _LEAVE_AT)[0]

    def step(self, loop: int) -> "Step | None":
        """Return the step that runs in the loop of this number; None if the loop waits."""
        at = self._steps_at + loop * _STEP.size
        slot, since = _STEP.unpack_from(self._memory, at)
        return Step(slot - 1, since) if slot else None

    def step_words(self, loop: int) -> "tuple[memoryview[int], memoryview[float]]":
        """Return where the loop of this number writes its steps: the slot plus one, and the time.

        Each is one item, which is written in one piece.
        """
        at = self._steps_at + loop * _STEP.size
        memory = memoryview(self._memory)
        return memory[at : at + 8].cast("q"), memory[at + 8 : at + 16].cast("d")

    def note_calls(self, slot: int, count: int) -> None:
        """Write how many calls threads carry out now for the attempt of the slot."""
        self._put(slot * _SLOT + _CALLS_AT, _CALLS.pack(count))

    def calls(self, slot: int) -> int:
        """Return how many calls threads carry out now for the attempt of the slot."""
        return _CALLS.unpack_from(self._memory, slot * _SLOT + _CALLS_AT)[0]

    def note_cut(self, slot: int, cut: int) -> None:
        """Write whether the attempt of the slot was cancelled: NOT_CUT, CUT or HEARD."""
        self._put(slot * _SLOT + _CUT_AT, _CUT.pack(cut))

    def cut(self, slot: int) -> int:
        """Return whether the attempt of the slot was cancelled: NOT_CUT, CUT or HEARD."""
        return _CUT.unpack_from(self._memory, slot * _SLOT + _CUT_AT)[0]

    def _put(self, at: int, packed: bytes) -> None:
        self._memory[at : at + len(packed)] = packed

    def ring(self, slot: int) -> Ring:
        """Return the slot's :class:`Ring`."""
        at = slot * _SLOT
        return Ring(memoryview(self._memory)[at + _RUNNING_PAGE_HEAD : at + _SLOT])


# Start tokens: a task may be started only by the process that reads its token.
#
# The dispatcher sends a worker several tasks at a time, and writes a token for each into a
# pipe. The worker reads the token of a task before it starts the task. The dispatcher takes
# unstarted tasks back by reading their tokens itself.

_TOKEN = struct.Struct("=Q")
# A pipe takes this many tokens in one atomic write, and holds several times as many.
_MOST_AT_ONCE = 4096 // _TOKEN.size


class Tokens:
    """A pipe of serial numbers in rising order. ``giving`` is None in a process that only takes."""

    def __init__(self, taking: int, giving: int | None = None) -> None:
        # Any: both are None after close().
        self.taking: Any = taking
        self.giving: Any = giving
        self._ahead: int | None = None

    @classmethod
    def pipe(cls) -> Self:
        """Return a new, empty pipe of tokens. Raises OSError."""
        taking, giving = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(os, "pipe2") else _pipe()
        return cls(taking, giving)

    def give(self, serials: Sequence[int]) -> None:
        """Write a token for each number; the caller makes sure that the pipe has room for them."""
        for first in range(0, len(serials), _MOST_AT_ONCE):
            part = serials[first : first + _MOST_AT_ONCE]
            os.write(self.giving, struct.pack(f"={len(part)}Q", *part))

    def take(self, serial: int) -> bool:
        """Take the token of this number; return False if somebody else has taken it."""
        if self._ahead is None:
            try:
                [self._ahead] = _TOKEN.unpack(os.read(self.taking, _TOKEN.size))
            except (BlockingIOError, struct.error):
                return False
        if self._ahead != serial:
            return False  # the token belongs to a later task
        self._ahead = None
        return True

    def take_all(self) -> list[int]:
        """Take all tokens that are left, and return their numbers."""
        serials: list[int] = []
        while True:
            try:
                data = os.read(self.taking, _MOST_AT_ONCE * _TOKEN.size)
            except BlockingIOError:
                return serials
            if not data:
                return serials
            serials.extend(number for (number,) in _TOKEN.iter_unpack(data))

    def descriptors(self) -> list[int]:
        """Return the descriptors that another process needs to have these tokens."""
        return [self.taking, self.giving]

    def close(self) -> None:
        for descriptor in (self.taking, self.giving):
            if descriptor is not None:
                os.close(descriptor)
        self.taking = self.giving = None


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends
