"""The values about everything but a Task on its way: frozen, with named fields.

Targets and their queue depth, changes to waiting Tasks, daemons and leases, the next due time,
schedules, findings of a scan, what the database tells of its sessions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.db.models import TextChoices

from ..models import Schedule
from ..payload.codec import Payload
from ..schedules.timing import Cron, Every, Timing
from .values import Registration

if TYPE_CHECKING:
    from ..models import Type


# The findings of a scan: the values of :meth:`.protocol.Store.scan`.


class Trouble(TextChoices):
    """Conditions that should never arise. Each label describes an Instance, daemon or schedule."""

    UNCLAIMED = "unclaimed", "due for long and not claimed, although an idle daemon serves its Type"
    TASKLESS = "taskless", "live, but without a Task"
    ENDED = "ended", "has ended, but had a Task"
    ORPHANED = "orphaned", "its Task was there, but the Instance was gone"
    MISMATCHED = "mismatched", "Instance and Task disagree on whether a daemon holds it"
    OWNERLESS = "ownerless", "held by a daemon that has no row"
    UNSWEPT = "unswept", "lost long ago, and no other daemon has taken its Tasks away"
    MISCOUNTED = "miscounted", "a Task that waited for other Tasks, with a wrong count of them"
    UNPLANNED = "unplanned", "a schedule with a slot long due that no daemon has planned"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Trouble with an Instance, a daemon or a schedule, and what was done about it.

    ``since`` is the time when it was due, or when the lease ended; None if unknown. ``why`` is the
    reason, if known. ``done`` says what was done, and is empty if nothing was.
    """

    trouble: Trouble
    instance: UUID | None = None
    type: str = ""
    daemon: str = ""
    schedule: str = ""
    since: datetime | None = None
    why: str = ""
    done: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """The fields that distinguish this finding from all others."""
        return self.trouble, self.instance, self.type, self.daemon, self.schedule

    def __str__(self) -> str:
        named = f"daemon {self.daemon}" if self.daemon else self.type
        named = f"{named} {self.instance}" if self.instance else named
        named = f"schedule {self.schedule}" if self.schedule else named
        told = [self.trouble.label, *filter(None, (self.why, self.done))]
        return f"{named}: {'; '.join(told)}"


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """The position of a walk through the tables Task and Instance, from the newest key downwards.

    Each field is the next key to look at: None begins with the newest, and 0 means the end.
    """

    task: int | None = None
    instance: int | None = None


# A scan from here walks through no table, and looks only at what indexes show at once.
NOWHERE = Cursor(task=0, instance=0)


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """The outcome of a scan, and the cursor for the next one."""

    findings: tuple[Finding, ...] = ()
    cursor: Cursor = Cursor()

    @property
    def is_round(self) -> bool:
        """Whether this scan has reached the last row of both tables, Task and Instance."""
        return self.cursor == Cursor()


class Marks(dict[Any, Any]):
    """How far a purge has come: by key of a Type and kind of reasons, the last end that it met.

    ``passes_kept`` says that the last call met as many as it may remove, and kept some of them,
    as their files cannot be removed. Then others may lie behind them.
    """

    passes_kept = False


# The changes that an operator makes to a waiting Task.


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """New values for a waiting Task; None leaves a value as it is.

    ``due`` is a time, or a delay from now. ``postpone`` is a delay from the old due time, or from
    now if that has passed.
    """

    priority: int | None = None
    collection: str | None = None
    due: datetime | timedelta | None = None
    postpone: timedelta | None = None

    def due_at(self, was: datetime, now: datetime) -> datetime:
        """Return the new due time of a Task that was due at ``was``. Raises OverflowError."""
        if self.postpone is not None:
            return max(was, now) + self.postpone
        if isinstance(self.due, timedelta):
            return now + self.due
        return was if self.due is None else self.due


# A daemon: its facts, its lease, and the attempts that are taken from it when it is lost.

# By Type, the keys of Instances whose inputs the handlers of a daemon did not take.
Misfits = Mapping[str, Sequence[int]]
NO_MISFITS: Misfits = MappingProxyType({})

# What a daemon knows of the engine of its executor: the fields of ``EngineState``.
EngineFacts = Mapping[str, Any]
NO_FACTS: EngineFacts = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class DaemonFacts:
    """The facts that a daemon writes when it takes a row; ``lock`` is as in the model.

    ``request`` is the last order to the daemon, perhaps under an earlier identity. ``release`` is
    the project's release. ``signatures`` are hashes of the parameters of its handlers, by Type.
    ``labels`` and ``capacity`` are those of its host.
    """

    uuid: UUID
    host: str
    pid: int
    version: str
    types: tuple[str, ...]
    lock: str = ""
    request: str = ""
    release: str = ""
    signatures: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Renewal:
    """The answer to a renewal: the database's time, and the order to the daemon, if any.

    ``unheard`` says that the daemon was handed a Task of which its listener has not heard yet; its
    row then does not say that it is idle. ``is_spare`` says that another session has locked the
    daemon's row: only the spare lease was renewed, and the row is as it was.
    """

    time: datetime
    request: str = ""
    unheard: bool = False
    is_spare: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """An attempt that was taken away; ``stale`` says that its Instance was given up: it FAILED."""

    type: str
    uuid: UUID
    attempt: int
    stale: bool


@dataclass(frozen=True, kw_only=True)
class Swept:
    """The outcome of a sweep: the lost daemons, and the attempts taken from them."""

    daemons: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = ()

    @property
    def expired(self) -> int:
        """The number of attempts that were taken away."""
        return len(self.lost)


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """The outcome of taking over an identity.

    ``kept`` are the Tasks that the new identity holds: states by (Instance, attempt). ``left`` are
    those that the old identity still holds, since another session has locked them. ``lost`` are
    the attempts that were taken away. ``is_settled`` tells whether the old identity is gone.
    ``request`` is the order to the new identity. The daemon does not count LogRecords with keys up
    to ``position``.
    """

    time: datetime
    kept: dict[tuple[int, int], str] = field(default_factory=dict)
    left: dict[tuple[int, int], str] = field(default_factory=dict)
    lost: tuple[Lost, ...] = ()
    is_settled: bool = True
    request: str = ""
    position: int = 0

    @property
    def expired(self) -> int:
        """The number of attempts that were taken away."""
        return len(self.lost)


# The work that there is for a daemon, and transactions that may be in its way.


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The work that there is for a daemon.

    ``due`` is the number of seconds until the first waiting Task is due: zero or less if one is due
    already, None if none waits. Tasks behind a gate do not count, and neither do Tasks of a limit
    without room. ``late`` says that a Task has missed its ``start_before``. ``lost`` says that the
    lease of another daemon is over. ``drops`` says that a Task waits behind a dropping gate.
    ``planned`` is the number of seconds until the first slot of a schedule is due. ``graphs`` says
    that a graph is live, or that a node still has to be failed. ``owed`` says that a daemon has
    left LogRecords uncounted. ``request`` is the command on the row of the daemon that asks; None
    if there is no such row.
    """

    due: float | None = None
    late: bool = False
    lost: bool = False
    drops: bool = False
    planned: float | None = None
    graphs: bool = False
    owed: bool = False
    request: str | None = None


@dataclass(frozen=True, kw_only=True)
class OpenTransaction:
    """A transaction that has been open ``since`` a time, in a session of the server.

    ``pid`` is the session's process. ``application`` and ``user`` are given by the server.
    ``statement_since`` is when its last statement began. Both times are None if this user may not
    see them. ``waits_for_it`` is the number of sessions that wait for one of its locks. ``locked``
    is what daemons cannot write before it ends: the name of a table, or ROW for the row of the
    Task that was asked about; "" if that is not known.
    """

    ROW: ClassVar[str] = "row"

    pid: int
    application: str
    user: str
    since: datetime | None
    statement_since: datetime | None = None
    waits_for_it: int = 0
    locked: str = ""


# A schedule as it is declared or edited, and the outcome of planning.

_PLAIN = ("cron", "timezone", "missed", "most", "overlap", "collection", "priority", "takes_slot")
_LENGTHS = ("every", "window", "late_after", "jitter")
# A document lacks these if they are not set: so an upgrade declares no schedule again.
_OPTIONAL = ("start_before", "timeout", "hooks")


@dataclass(frozen=True, kw_only=True)
class ScheduleSpec:
    """All parameters of a schedule. Exactly one of ``cron`` and ``every`` is given.

    A slot counts as missed if it was not planned within ``late_after``. At most ``most`` missed
    slots are run, none older than ``window``. ``jitter`` is the longest delay of a slot.
    ``start_before`` counts from the slot. ``hooks`` are in the format of :class:`~.values.Hook`;
    ``hook_types`` are their Types, which are registered together with the schedule.
    """

    identifier: str
    type: str
    inputs: Payload
    takes_slot: bool = False
    collection: str = ""
    priority: int = 0
    cron: str = ""
    every: timedelta | None = None
    timezone: str = "UTC"
    missed: str = "one"
    most: int = 100
    window: timedelta = timedelta(days=1)
    late_after: timedelta = timedelta(minutes=1)
    overlap: str = "allow"
    jitter: timedelta = timedelta(0)
    start_before: timedelta | None = None
    timeout: timedelta | None = None
    hooks: list[dict[str, Any]] | None = None
    hook_types: tuple[Registration, ...] = field(default=(), compare=False)

    @property
    def timing(self) -> Timing:
        """The times of its slots. Raises InvalidSchedule."""
        return timing_of(self)

    def columns(self) -> dict[str, Any]:
        """Return the columns of the schedule's row, except its Type."""
        named = {name: getattr(self, name) for name in (*_PLAIN, *_LENGTHS, *_OPTIONAL)}
        return named | {"format": self.inputs.format, "data": self.inputs.data}

    def document(self) -> dict[str, Any]:
        """Return plain values, which can be compared with an earlier declaration."""
        own = {name: getattr(self, name) for name in (*_PLAIN, *_LENGTHS)}
        given = {name: getattr(self, name) for name in _OPTIONAL}
        own |= {name: value for name, value in given.items() if value is not None}
        plain = {k: v.total_seconds() if isinstance(v, timedelta) else v for k, v in own.items()}
        return plain | {"type": self.type, "inputs": list(self.inputs)}


def timing_of(timed: ScheduleSpec | Schedule) -> Timing:
    """Return the times of a schedule's slots. Raises InvalidSchedule."""
    if timed.cron:
        return Cron(timed.cron, timed.timezone)
    return Every(timed.every or timedelta(), timezone=timed.timezone)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The outcome of planning.

    ``decided`` slots got an outcome, and ``enqueued`` Instances were made; after a backfill,
    ``instances`` are their uuids. ``is_whole`` says that nothing more was due.
    """

    decided: int = 0
    enqueued: int = 0
    is_whole: bool = True
    instances: tuple[UUID, ...] = ()


# The scope of a gate or a limit, and its fill.

# The shares of max_waiting that are open to negative priorities, and to priority 0.
LOW_SHARE, USUAL_SHARE = 0.8, 0.9


@dataclass(frozen=True)
class Scope:
    """The scope of a gate or a limit: a Type, or one of its lanes; with neither, everything.

    ``type`` is a row of Type. ``subject`` is the scope's name in the log.
    """

    type: Type | None = None
    collection: str | None = None

    @property
    def subject(self) -> str:
        if self.type is None:
            return "queue"
        if self.collection is None:
            return f"type:{self.type.identifier}"
        return f"lane:{self.type.identifier}/{self.collection}"

    @property
    def columns(self) -> dict[str, Any]:
        return {"type": self.type, "collection": self.collection}


@dataclass(frozen=True, kw_only=True)
class Fill:
    """The waiting Tasks and the limits of a scope; ``collection`` None means the whole Type.

    ``waiting`` is counted up to twice ``max_waiting``. ``oldest`` is the time for which the oldest
    due Task has waited; None if nothing is due, or if it does not matter. ``late`` is the number of
    Tasks that have waited longer than ``max_wait``, counted up to a maximum.
    """

    type: str
    collection: str | None = None
    max_waiting: int | None = None
    max_wait: timedelta | None = None
    waiting: int = 0
    oldest: timedelta | None = None
    late: int = 0

    @property
    def is_bounded(self) -> bool:
        """Whether this scope has a limit."""
        return self.max_waiting is not None or self.max_wait is not None

    def room(self, priority: int) -> int | None:
        """Return how many Tasks may wait when one of this priority comes; None is any number."""
        return None if self.max_waiting is None else headroom(self.max_waiting, priority)

    def excess(self, count: int, priority: int) -> int:
        """Return how many Tasks have to go before ``count`` more fit; 0 if they fit.

        If the scope has both limits, it is full only if both are exceeded.
        """
        over = []
        most = self.room(priority)
        if most is not None:
            over.append(max(0, self.waiting + count - most))
        if self.max_wait is not None:
            is_late = self.oldest is not None and self.oldest > self.max_wait
            over.append(max(1, self.late) if is_late else 0)
        return min(over, default=0)


def headroom(max_waiting: int, priority: int) -> int:
    """Return the part of ``max_waiting`` that is open to this priority."""
    if priority > 0:
        return max_waiting
    return math.ceil(max_waiting * (USUAL_SHARE if priority == 0 else LOW_SHARE))


# What a session in the database does.


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A session, from PostgreSQL's view pg_stat_activity.

    ``state``, ``wait_type`` and ``wait`` are its columns state, wait_event_type and wait_event; ""
    is none. Its last statement began ``seconds`` ago, None if it has run none. ``blockers`` are the
    pids of the sessions whose locks it waits for.
    """

    pid: int
    state: str
    wait_type: str
    wait: str
    seconds: float | None
    blockers: tuple[int, ...]


# The shape of inputs: the names of their arguments, without the values.


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Live Instances of one Type whose inputs have the same shape.

    ``type`` is the key of the Type, and ``keys`` are those of the Instances. ``since`` is the time
    when the first one was enqueued. ``format`` is None without Inputs. ``placed`` is the number of
    positional arguments. ``names`` are the sorted names of the others; None if they cannot be read
    without opening the inputs. ``has_results`` tells whether results of other nodes of a graph may
    be in the inputs.
    """

    type: int
    keys: tuple[int, ...]
    since: datetime | None
    format: str | None
    placed: int = 0
    names: tuple[str, ...] | None = None
    has_results: bool = False
