"""The protocol: every message between the supervisor, the dispatcher and the workers.

Each message is one class below, and its type says what it is. All of them are named
tuples, which pickle as quickly as tuples. Two messages are plain values instead, since
every task needs them:

- The dispatcher sends tasks to a worker as the list that :func:`.packing.packed` makes.
- A worker writes the end of an attempt into its ring as a pickled tuple of the fields of
  :class:`Ended`. It sends :class:`Ended` through the channel only where the ring has no room.

``slot`` and ``pid`` name a worker, ``key`` is the pair of Instance and attempt, ``at`` is a
time on the host's clock, ``why`` is a reason in words.
"""

from typing import Any, NamedTuple
from uuid import UUID

Key = tuple[int, int]


# From the supervisor to the dispatcher


class WorkerStarted(NamedTuple):
    """A worker was started. Its channel and the ends of its tokens are passed along."""

    slot: int
    pid: int


class WorkerDied(NamedTuple):
    """A worker is dead. ``how`` it ended; ``why`` the supervisor killed it, "" if it did not.

    ``running`` is the key of the attempt that stood in its page, or None; ``left`` is the
    number of processes that it had left behind and that were killed; ``cause`` is the cause
    of its death as data.
    """

    slot: int
    pid: int
    how: str
    why: str
    running: Key | None
    left: int
    cause: str = ""


class Frozen(NamedTuple):
    """A worker was stopped while it ran this attempt."""

    slot: int
    pid: int
    key: Key
    at: float


class Thawed(NamedTuple):
    """A worker that was stopped goes on."""

    slot: int
    pid: int
    key: Key
    at: float


class Stop(NamedTuple):
    """Stop. Running tasks get ``grace`` seconds."""

    grace: float


# From the dispatcher to the supervisor


class Alive(NamedTuple):
    """The dispatcher is alive."""


class LeaseRenewed(NamedTuple):
    """The workers may live ``until`` then, on the uptime clock."""

    until: float


class Joining(NamedTuple):
    """The dispatcher is about to join the queue under this identity."""

    identity: UUID


class Joined(NamedTuple):
    """Only these identities may still hold something; the first is the current one."""

    identities: tuple[UUID, ...]


class Ordered(NamedTuple):
    """The daemon's row asks for this: a next dispatcher has to know."""

    request: str


class StopWanted(NamedTuple):
    """The daemon shall stop."""

    why: str


class SpareWanted(NamedTuple):
    """The dispatcher wants ``count`` workers more than usual, in the place of paused ones."""

    count: int  # type: ignore[assignment]


class Kill(NamedTuple):
    """Kill a worker if it is still running this attempt, or NOTHING."""

    slot: int
    pid: int
    key: Key
    why: str


class Interrupt(NamedTuple):
    """Interrupt the handler that runs this attempt."""

    slot: int
    pid: int
    key: Key


class Freeze(NamedTuple):
    """Stop a worker that runs this attempt. Answered by :class:`Frozen`."""

    slot: int
    pid: int
    key: Key


class Thaw(NamedTuple):
    """Let a stopped worker go on. Answered by :class:`Thawed`."""

    slot: int
    pid: int
    key: Key


# From a worker to the dispatcher


class Ended(NamedTuple):
    """An attempt has ended: when it started and ended, on the uptime clock, and its outcome.

    No outcome means that the handler returned nothing.
    """

    instance: int
    attempt: int
    started: float
    ended: float
    outcome: Any


class Look(NamedTuple):
    """Something stands in the worker's ring."""


class Retiring(NamedTuple):
    """The worker ends, and another is to take its place."""

    why: str


class Progress(NamedTuple):
    """A running attempt says how far it is."""

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
    """A number of lines of an attempt is left out of its log."""

    key: Key
    at: float
    number: int


class Published(NamedTuple):
    """A running attempt has published a file."""

    key: Key
    at: float
    file: dict


class Committed(NamedTuple):
    """The worker has committed the end of a transactional attempt, and may go on after it."""

    key: Key
    at: float


class Paused(NamedTuple):
    """A running attempt has paused, for the ``number``-th time; ``is_own`` if it wanted to."""

    key: Key
    at: float
    number: int
    text: str
    is_own: bool


class Resuming(NamedTuple):
    """A paused attempt would go on."""

    key: Key
    at: float


class Resumed(NamedTuple):
    """A paused attempt has gone on."""

    key: Key
    at: float


# The messages of what code in a worker says with ``report(kind, …)``.
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
