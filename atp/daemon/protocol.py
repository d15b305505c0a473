"""Every message between the processes of a daemon, and the channel that carries them."""

import array
import contextlib
import os
import pickle
import select
import socket
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import IO, Any, NamedTuple, Self
from uuid import UUID

from ..store.values import Attempt
from .folders import DaemonFolders
from .options import Options
from .shared_memory import Page, Running
from .stacks import Stack, StackFiles

# A channel carries messages between two processes of a daemon, one packet for each message.
#
# A message that is too large for a packet is written to a file in memory, and the packet
# passes the descriptor of the file. Both ends are forks of one process, so messages are pickles.

# SEQPACKET keeps messages apart and tells when the other end is closed. On a system without
# it, datagrams between two connected local sockets are as reliable.
_KIND = getattr(socket, "SOCK_SEQPACKET", socket.SOCK_DGRAM)
MAX_PACKET = 32 * 1024
MAX_DESCRIPTORS = 4
_INLINE, _FILE = b"\x00", b"\x01"
_BUFFER = 1024 * 1024
# The arguments of every call of recvmsg, computed once.
_SPACE = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
_WAITING = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_AT_ONCE = _WAITING | socket.MSG_DONTWAIT


class Closed(Exception):
    """The other end is closed."""


class Channel:
    """One end of a pair of connected sockets."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        # Whether draining it has shown that the other end is closed.
        self.has_ended = False

    @classmethod
    def pair(cls) -> tuple[Self, Self]:
        """Return two connected ends."""
        ends = socket.socketpair(socket.AF_UNIX, _KIND)
        for end in ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        return cls(ends[0]), cls(ends[1])

    @classmethod
    def from_descriptor(cls, descriptor: int) -> Self:
        """Return an end that was passed from another process."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        return self._socket.fileno()

    def descriptors(self) -> list[int]:
        """Return the descriptors that another process needs in order to use this end."""
        return [self.fileno()]

    def close(self) -> None:
        self._socket.close()

    def send(self, message: Any, descriptors: Sequence[int] = (), *, wait: bool = True) -> None:
        """Send a message, and pass the open ``descriptors`` with it.

        Raises Closed, and BlockingIOError if ``wait`` is False and the socket's buffer is full.
        Several threads and forks may call this: the kernel takes a packet as a whole. A lock would
        stay locked in a fork.
        """
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        flags = 0 if wait else socket.MSG_DONTWAIT
        if len(data) <= MAX_PACKET:
            self._send(_INLINE + data, descriptors, flags)
            return
        with _spooled(data) as spooled:
            self._send(_FILE, (*descriptors, spooled.fileno()), flags)

    def _send(self, packet: bytes, descriptors: Sequence[int], flags: int) -> None:
        try:
            if not descriptors:
                self._socket.send(packet, flags)
                return
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
            self._socket.sendmsg([packet], [rights], flags)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def has_message(self, *, within: float) -> bool:
        """Wait for a message or the end, up to so many seconds; return whether one has come."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(1000 * within))

    def receive(self, *, wait: bool = True) -> tuple[Any, list[int]]:
        """Return ``(message, descriptors)``.

        Raises Closed, and BlockingIOError if ``wait`` is False and no message has come yet.
        """
        flags = _WAITING if wait else _AT_ONCE
        try:
            packet, ancillary, _, _ = self._socket.recvmsg(MAX_PACKET + 1, _SPACE, flags)
        except ConnectionResetError:
            raise Closed from None
        if not packet:
            raise Closed
        descriptors = _descriptors(ancillary) if ancillary else []
        if packet[:1] == _INLINE:
            return pickle.loads(memoryview(packet)[1:]), descriptors  # noqa: S301 (our own fork)
        with os.fdopen(descriptors.pop(), "rb") as spooled:
            spooled.seek(0)
            return pickle.load(spooled), descriptors  # noqa: S301

    def drain(self) -> Iterator[Any]:
        """Yield the messages that have come so far; stop when none is left or the end is closed."""
        while True:
            try:
                message, descriptors = self.receive(wait=False)
            except BlockingIOError:
                return
            except Closed:
                self.has_ended = True
                return
            for descriptor in descriptors:
                os.close(descriptor)
            yield message


def _spooled(data: bytes) -> IO[bytes]:
    """Return an unnamed file that holds ``data``."""
    if hasattr(os, "memfd_create"):
        spooled = os.fdopen(os.memfd_create("atp", os.MFD_CLOEXEC), "w+b")
    else:
        spooled = tempfile.TemporaryFile()
    spooled.write(data)
    spooled.flush()
    return spooled


def _descriptors(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    numbers = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return list(numbers)


# What a process of the daemon inherits from the supervisor, which forks it.


# A busy worker wakes the dispatcher no more often than this, in seconds: a wakeup costs both
# time, and the dispatcher looks more often by itself.
CALL_AFTER = 0.1


class Inherited(NamedTuple):
    """Values that the supervisor makes before the first fork, and that all processes share."""

    page: Page
    options: Options
    folders: DaemonFolders
    stacks: StackFiles
    call_after: float = CALL_AFTER


class Predecessor(NamedTuple):
    """The state that a new dispatcher takes over from the dispatchers before it.

    Tasks may still be held under their ``identities``. ``request`` is the last request that
    they read in the daemon's row.
    """

    identities: tuple[UUID, ...] = ()
    request: str = ""


# The protocol: every message between the supervisor, the dispatcher and the workers.
#
# Each kind of message is one class below. All classes are named tuples, which pickle as
# quickly as tuples. Two messages are plain values instead, since every task needs them:
#
# - The dispatcher sends tasks to a worker as the list that :func:`packed` makes.
# - A worker writes the end of an attempt into its ring as a pickled tuple of the fields of
#   :class:`Ended`. It sends :class:`Ended` through the channel only where the ring has no room.
#
# ``slot`` and ``pid`` name a worker. ``key`` is the pair of Instance and attempt. ``at`` is a
# time on the host's clock. ``why`` is a reason in words.

Key = tuple[int, int]


# From the supervisor to the dispatcher


class WorkerStarted(NamedTuple):
    """The supervisor has started a worker, and passes on its channel and its tokens' pipe.

    The worker may be one place of the loop with the number ``loop``.
    """

    slot: int
    pid: int
    loop: int | None = None


class WorkerDied(NamedTuple):
    """A worker is dead. ``how`` describes its end, and ``cause`` is the cause as data.

    ``why`` is the supervisor's reason for killing it, "" if the supervisor did not kill it.
    ``running`` is the attempt that it was running, or None. ``left`` is the number of processes
    that it had left behind and that the supervisor has killed. ``stack`` is the
    stack of the attempt before the kill, None if it was not taken. ``beside``: another attempt of
    its loop is to blame.
    """

    slot: int
    pid: int
    how: str
    why: str
    running: Running | None
    left: int
    cause: str = ""
    stack: Stack | None = None
    beside: bool = False


class Frozen(NamedTuple):
    """The supervisor has stopped (SIGSTOP) the worker that runs this attempt."""

    slot: int
    pid: int
    key: Key
    at: float


class Thawed(NamedTuple):
    """The supervisor has let a stopped worker go on (SIGCONT)."""

    slot: int
    pid: int
    key: Key
    at: float


class StackTaken(NamedTuple):
    """The supervisor has taken the stack of this attempt."""

    slot: int
    pid: int
    key: Key
    at: float
    stack: Stack


class Stop(NamedTuple):
    """The dispatcher shall stop, and give running tasks ``grace`` seconds to end."""

    grace: float


# Between the supervisor and the follower, of a daemon whose attempts run elsewhere


class PlaceOpened(NamedTuple):
    """The follower shall follow attempts at this place, of which it gets the channel and tokens."""

    slot: int


class EndPlace(NamedTuple):
    """The follower shall end this attempt at once, and then tell that its place is over.

    With the key NOTHING it ends whatever the place runs, and the place.
    """

    slot: int
    key: Key
    why: str
    cause: str


class PlaceOver(NamedTuple):
    """Nothing of the attempt at this place is left, and the place is closed."""

    slot: int
    how: str
    cause: str


class EngineState(NamedTuple):
    """What the follower knows of the engine, also for the dispatcher, which writes it down.

    With an ``error`` the engine is away, and the follower wants no places. ``room`` is the number
    of attempts that the daemon can have there now, those that run already included. ``lacks`` says
    in words what the cluster does not have for a Type, by the identifier of the Type.
    """

    error: str
    address: str = ""
    hosts: int = 0
    places: int = 0
    room: int = 0
    resources: dict[str, float] = {}
    lacks: dict[str, str] = {}


# From the dispatcher to the supervisor


class Alive(NamedTuple):
    """The dispatcher is alive."""


class LeaseRenewed(NamedTuple):
    """The lease was renewed: the workers may live ``until`` this time on the uptime clock."""

    until: float


class Joining(NamedTuple):
    """The dispatcher is about to join the queue under this identity."""

    identity: UUID


class Joined(NamedTuple):
    """Tasks may be held under these identities alone; the first is the current one."""

    identities: tuple[UUID, ...]


class Ordered(NamedTuple):
    """The daemon's row has this request; the supervisor keeps it for the next dispatcher."""

    request: str


class StopWanted(NamedTuple):
    """The dispatcher asks the supervisor to stop the daemon."""

    why: str


class SpareWanted(NamedTuple):
    """The dispatcher wants ``count`` additional workers, in place of paused ones."""

    count: int  # type: ignore[assignment]


class Kill(NamedTuple):
    """Kill a worker if it still runs this attempt; if ``key`` is NOTHING, if it runs none."""

    slot: int
    pid: int
    key: Key
    why: str


class Interrupt(NamedTuple):
    """Interrupt the handler that runs this attempt."""

    slot: int
    pid: int
    key: Key


class TakeStack(NamedTuple):
    """Take the stack of this attempt. The supervisor answers with :class:`StackTaken`."""

    slot: int
    pid: int
    key: Key


class Freeze(NamedTuple):
    """Stop the worker if it runs this attempt. The supervisor answers with :class:`Frozen`."""

    slot: int
    pid: int
    key: Key


class Thaw(NamedTuple):
    """Let a stopped worker go on. The supervisor answers with :class:`Thawed`."""

    slot: int
    pid: int
    key: Key


# From a worker to the dispatcher


class Ended(NamedTuple):
    """An attempt has ended. ``started`` and ``ended`` are times on the uptime clock.

    ``outcome`` is None if the handler returned nothing.
    """

    instance: int
    attempt: int
    started: float
    ended: float
    outcome: Any


class Look(NamedTuple):
    """The worker is ready to run tasks, or its ring has records for the dispatcher to read."""


class Retiring(NamedTuple):
    """The worker is about to exit, and the supervisor shall start another in its place."""

    why: str


class RunsOn(NamedTuple):
    """The attempt that this place runs has started on a host of the engine."""

    host: str


class Progress(NamedTuple):
    """A running attempt reports its progress."""

    key: Key
    at: float
    fraction: float | None
    text: str


class Logged(NamedTuple):
    """A running attempt has logged a line."""

    key: Key
    at: float
    level: int
    text: str


class LeftOut(NamedTuple):
    """The worker has left ``number`` lines of an attempt out of its log."""

    key: Key
    at: float
    number: int


class Published(NamedTuple):
    """A running attempt has published a file."""

    key: Key
    at: float
    file: dict


class Committed(NamedTuple):
    """The worker has committed the end of a transactional attempt, which may still be running."""

    key: Key
    at: float


class Paused(NamedTuple):
    """A running attempt has paused for the ``number``-th time; ``is_own``: by its own choice."""

    key: Key
    at: float
    number: int
    text: str
    is_own: bool


class Resuming(NamedTuple):
    """A paused attempt is ready to go on."""

    key: Key
    at: float


class Resumed(NamedTuple):
    """A paused attempt has gone on."""

    key: Key
    at: float


# The class of the message for each kind of ``report(kind, …)`` in a worker.
REPORTED = {
    "progress": Progress,
    "log": Logged,
    "left_out": LeftOut,
    "file": Published,
    "committed": Committed,
    "paused": Paused,
    "resuming": Resuming,
    "resumed": Resumed,
}


# The message that gives tasks to a worker, and the record of an end: every task needs both.

# The parameters of a Type are the same for all its Tasks. To pickle them as one takes less
# time than to pickle their parts.
_pickled = lru_cache(pickle.dumps)
_unpickled = lru_cache(pickle.loads)
# The record of an end: Instance, attempt, and when it started and ended on the uptime clock.
# Behind these stands its outcome, pickled, if it is any other than that nothing was returned.
_END = struct.Struct("=qqdd")
# What a worker gets of an attempt: what its claim has said, without the parameters and the time.
_given = attrgetter("serial", *Attempt.CLAIMED[: Attempt.CLAIMED.index("parameters")])


def packed(attempts: Iterable[Attempt]) -> list[tuple[bytes, tuple[Any, ...], tuple[str, ...]]]:
    """Return the message that gives these attempts to a worker.

    It has tuples: the pickled parameters of the Type, the values of the attempt, and its devices.
    The rest of what the claim has said is for the dispatcher alone.
    """
    packed: list[tuple[bytes, tuple[Any, ...], tuple[str, ...]]] = []
    last, pickled = None, b""
    for attempt in attempts:
        if attempt.parameters is not last:
            last = attempt.parameters
            pickled = _pickled(last)
        packed.append((pickled, _given(attempt), attempt.devices))
    return packed


def unpacked(packed: Iterable[tuple[bytes, tuple[Any, ...], tuple[str, ...]]]) -> Iterator[Attempt]:
    """Yield the attempts that :func:`packed` has packed. Their ``time`` is None."""
    for pickled, (serial, *values), devices in packed:
        attempt = Attempt(*values, _unpickled(pickled), None)  # type: ignore[call-arg]
        attempt.serial = serial
        if devices:
            attempt.devices = devices
        yield attempt


def packed_end(instance: int, attempt: int, started: float, ended: float, outcome: Any) -> bytes:
    """Return the record of an end; no outcome means that it finished and returned nothing."""
    head = _END.pack(instance, attempt, started, ended)
    if outcome is None:
        return head
    return head + pickle.dumps(outcome, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked_end(record: bytes) -> tuple[int, int, float, float, Any]:
    """Return the values from which :func:`packed_end` has made a record."""
    outcome = pickle.loads(record[_END.size :]) if len(record) > _END.size else None  # noqa: S301
    return *_END.unpack_from(record), outcome
