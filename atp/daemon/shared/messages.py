"""The protocol: every message between the supervisor, the dispatcher and the workers.

Each kind of message is one class below. All classes are named tuples, which pickle as
quickly as tuples. Two messages are plain values instead, since every task needs them:

- The dispatcher sends tasks to a worker as the list that :func:`.packing.packed` makes.
- A worker writes the end of an attempt into its ring as a pickled tuple of the fields of
  :class:`Ended`. It sends :class:`Ended` through the channel only where the ring has no room.

``slot`` and ``pid`` name a worker. ``key`` is the pair of Instance and attempt. ``at`` is a
time on the host's clock. ``why`` is a reason in words.
"""

from typing import Any, NamedTuple
from uuid import UUID

from .stacks import Stack

Key = tuple[int, int]


# From the supervisor to the dispatcher


class WorkerStarted(NamedTuple):
    """The supervisor has started a worker, and passes on its channel and its tokens' pipe."""

    slot: int
    pid: int


class WorkerDied(NamedTuple):
    """A worker is dead. ``how`` describes its end, and ``cause`` is the cause as data.

    ``why`` is the supervisor's reason for killing it, "" if the supervisor did not kill it.
    ``running`` is the key of the attempt that it was running, or None. ``left`` is the number
    of processes that it had left behind and that the supervisor has killed. ``stack`` is the
    stack of the attempt before the kill, None if it was not taken.
    """

    slot: int
    pid: int
    how: str
    why: str
    running: Key | None
    left: int
    cause: str = ""
    stack: Stack | None = None


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
