"""The values that cross the store's boundary: frozen, with named fields.

Times are aware datetimes. A daemon is named by its uuid, an Instance by its
integer key.
"""

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from ..codec import Payload
from ..states import Event, Reason

# What is said of a transactional attempt whose Task was taken away.
ROLLED_BACK = "all that it wrote was rolled back"

# Requests on a claimed Task. Whatever else is asked afterwards, a cancel stays.
RELEASE = "release"
CANCEL = "cancel"
# These tell what is wanted until the other is: who holds the Task sees to it.
PAUSE, RESUME = "pause", "resume"


def cancelled_by(who):
    """What the log says of an attempt that was ended because somebody asked for it."""
    return f"cancelled by {who}" if who else "cancelled"


@dataclass(frozen=True)
class Place:
    """What a gate or a limit is of: a lane, a Type, or with neither everything.

    ``type`` is a row of Type; ``subject`` is what the log calls it.
    """

    type: object = None
    collection: str | None = None

    @property
    def subject(self):
        if self.type is None:
            return "queue"
        if self.collection is None:
            return f"type:{self.type.identifier}"
        return f"lane:{self.type.identifier}/{self.collection}"

    @property
    def columns(self):
        return {"type": self.type, "collection": self.collection}


@dataclass(frozen=True, kw_only=True)
class Registration:
    """The parameters of a Type, as registration writes them."""

    identifier: str
    handler: str
    timeout: timedelta | None
    max_restarts: int
    max_retries: int
    backoff: timedelta
    backoff_max: timedelta
    retention: timedelta | None
    serializer: str
    max_memory: int | None


class Request(NamedTuple):
    """One Instance to be enqueued, checked and serialized.

    ``due`` None means now; ``existing`` is what to do where the identifier is
    taken: "raise", "return" or "redrive".
    """

    inputs: Payload
    identifier: str | None = None
    collection: str = ""
    priority: int = 0
    due: datetime | None = None
    start_before: datetime | None = None
    created_by: str = ""
    existing: str = "raise"


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """What a Type says of the attempts of its Instances."""

    type: str
    timeout: timedelta | None
    max_retries: int
    backoff: timedelta
    backoff_max: timedelta
    max_restarts: int
    max_memory: int | None


class Claimed(NamedTuple):
    """A Task that a daemon has just claimed, with all that its attempt needs.

    A plain tuple underneath, and as text what seldom has to be more: of all
    values, these are made and passed on most often. Those that were claimed
    together share their Types' ``parameters``.
    """

    instance: int
    name: str
    attempt: int
    format: str
    data: str
    identifier: str | None
    collection: str
    priority: int
    retries: int
    restarts: int
    lost: int
    parameters: Parameters
    # None in a worker.
    time: datetime | None
    # Whether it counts for a limit: then its end makes room for another.
    limited: bool = False

    @property
    def uuid(self):
        return UUID(self.name)

    @property
    def inputs(self):
        return Payload(self.format, self.data)

    @property
    def type(self):
        return self.parameters.type

    @property
    def key(self):
        """What tells this attempt from every other."""
        return self.instance, self.attempt


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseData:
    """What a finished attempt answers. ``data`` is None where it is stored as ``file``."""

    content_type: str
    data: bytes | None
    file: str = ""
    size: int = 0


class Change(NamedTuple):
    """An event that happened to an Instance under an attempt.

    ``time`` None is the database's now. ``started`` is given where the start
    of the attempt has not been recorded yet: it is another event, and comes
    first. ``delay`` says when a retry or a deferred Task is due, from now.
    ``reason`` goes with ``fail``, ``response`` with ``finish``. ``transactional``
    says that what the attempt wrote is rolled back if this comes too late. RFC 14
    calls this "changing of the task status". Like what is claimed, a plain tuple: one
    is made of each attempt.
    """

    event: Event
    instance: int
    attempt: int | None = None
    time: datetime | None = None
    started: datetime | None = None
    who: str = ""
    message: str = ""
    level: int = logging.INFO
    reason: Reason | str = ""
    delay: timedelta | None = None
    response: ResponseData | None = None
    transactional: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Alteration:
    """What shall be different about a waiting Task; what is None stays as it is.

    ``due`` is a point in time, or how long from now. ``postpone`` is how much later
    than it was due, or than now if that has passed.
    """

    priority: int | None = None
    collection: str | None = None
    due: datetime | timedelta | None = None
    postpone: timedelta | None = None

    def due_at(self, was, now):
        """Return when a Task is due that was due then. Raises OverflowError."""
        if self.postpone is not None:
            return max(was, now) + self.postpone
        if isinstance(self.due, timedelta):
            return now + self.due
        return was if self.due is None else self.due


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One line of an Instance's log that is not a transition."""

    time: datetime
    level: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """What a running attempt says about itself between its transitions.

    ``again`` says that it may have been written before: its acknowledgement got lost.
    ``transactional`` is as in :class:`Change`.
    """

    instance: int
    attempt: int
    who: str = ""
    progress: float | None = None
    progress_message: str | None = None
    messages: tuple[Message, ...] = ()
    files: tuple[dict, ...] = ()
    again: bool = False
    transactional: bool = False


@dataclass(frozen=True, kw_only=True)
class DaemonFacts:
    """What a daemon says of itself when it takes a row. ``lock`` as in the model.

    ``request`` is what it was told last, under an identity that may be gone.
    """

    uuid: UUID
    host: str
    pid: int
    version: str
    types: tuple[str, ...]
    lock: str = ""
    request: str = ""


@dataclass(frozen=True, kw_only=True)
class Renewal:
    """The answer to a renewal: the database's time, and the daemon's request if any.

    ``unheard`` says that it was handed something of which its listener has not heard yet;
    then its row does not say that it is idle.
    """

    time: datetime
    request: str = ""
    unheard: bool = False


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What there is to do.

    ``due`` is in how many seconds a waiting Task is due, zero or less if one is
    already, None if none waits; what is held does not count, nor what is limited while
    that has no room. ``late`` says that one was not started before its ``start_before``,
    ``lost`` that the lease of another daemon is over, ``drops`` that one waits where a
    gate drops it. ``request`` is what stands on the row of who asks, None if it has none.
    """

    due: float | None = None
    late: bool = False
    lost: bool = False
    drops: bool = False
    request: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request on a claimed Task: who holds it has to act.

    Of a cancel it is told ``who`` asked, and how long ago, in seconds.
    """

    instance: int
    attempt: int
    request: str
    who: str = ""
    age: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """What became of a cancel, by keys of Instances.

    ``failed`` waited, and are FAILED; of ``asked`` the holder is asked now, of
    ``before`` it had been asked already. What is in none is not live.
    """

    failed: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    before: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """An attempt that was taken away; ``stale`` says that its Instance was given up."""

    type: str
    uuid: UUID
    attempt: int
    stale: bool


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What a sweep did: the daemons found lost, and the attempts taken from them."""

    daemons: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = ()

    @property
    def expired(self):
        """How many attempts were taken away."""
        return len(self.lost)


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """What a new identity holds, the state by pair of Instance and attempt; and what was lost.

    ``request`` is what it is told to do.
    """

    time: datetime
    kept: dict = field(default_factory=dict)
    lost: tuple[Lost, ...] = ()
    request: str = ""

    @property
    def expired(self):
        """How many attempts were taken away."""
        return len(self.lost)
