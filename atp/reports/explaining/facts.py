"""The facts at one moment, and the values of an explanation: Reason, Help, Estimate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from ... import commands, text
from ...commands import Mode
from ...models import Daemon, Downstream, Gate, Instance, Limit, Schedule, Task, Type
from ...store.values.outlooks import OpenTransaction
from ..documents import Document

# Tasks before another one are counted up to this number. They are a range of an index, which is
# read at once.
MOST_COUNTED = 50_000


@dataclass(frozen=True, kw_only=True)
class Flow:
    """The speed of a Type: ``rate`` in starts per second, ``run`` as quantiles of its run times.

    ``run`` has the quantiles 0.5, 0.95 and 0.99 in seconds, or is None if nothing was counted.
    ``runs`` is the number of run times from which they were computed.
    """

    rate: float = 0.0
    run: tuple[float, ...] | None = None
    runs: int = 0


@dataclass(frozen=True, kw_only=True)
class QueuePosition:
    """The queue around a waiting Task.

    ``ahead`` counts the Tasks before it in its lane, ``above`` those of them with a higher
    priority, ``beside`` the due Tasks in other lanes of its Type, which take turns with it. Each
    count stops at MOST_COUNTED. ``rivals`` are the weights, by identifier, of other Types with due
    Tasks that the same daemons serve; ``weight`` is the weight of its own Type.
    """

    ahead: int = 0
    above: int = 0
    beside: int = 0
    rivals: dict[str, float]
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class FullLimit:
    """A Limit that allows no further start: ``kind`` is "running", "lane" or "rate".

    ``held`` is the number of claimed Tasks that count for it. For a rate, ``at`` is the time at
    which the next Task may start.
    """

    limit: Limit
    kind: str
    held: int = 0
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts at ``now`` about an Instance, a Type or a lane.

    For an Instance, ``instance`` is set, and ``task`` while it is live. For a Type or a lane both
    are None: the facts apply to an Instance that would be enqueued there now, in ``collection``
    (None: any). If no Instance has the uuid, ``type`` is None and ``missing`` is the uuid.

    ``last`` is the last transition of the Instance, ``command`` the last command to its holder,
    ``pause`` its last pause, ``newest`` the newest record of its log, all as plain values.
    ``daemons`` are documents, with ``misfits``. ``incompatible`` is a sentence about incompatible
    inputs: for an Instance why a daemon refused them, for a Type how many Instances no daemon
    accepts. ``is_compatible_elsewhere`` is True if another daemon that claims may accept them.
    ``downstream`` is set if the downstream of the Type is not healthy, ``schedule`` if a schedule
    with the name of the Type, for example of a tailer, is paused. ``removal`` is the log record of
    the removal of a missing Instance, ``last_claim`` the last claim of an Instance of the Type.
    """

    now: datetime
    missing: str = ""
    removal: Document | None = None
    type: Type | None = None
    collection: str | None = None
    instance: Instance | None = None
    task: Task | None = None
    last: Document | None = None
    command: Document | None = None
    pause: Document | None = None
    newest: Document | None = None
    daemons: Sequence[Document] = ()
    gates: Sequence[Gate] = ()
    limits: Sequence[Limit] = ()
    full: Sequence[FullLimit] = ()
    downstream: Downstream | None = None
    schedule: Schedule | None = None
    upstream: Sequence[Document] = ()
    incompatible: str = ""
    is_compatible_elsewhere: bool = False
    last_claim: Document | None = None
    queued: QueuePosition | None = None
    flow: Flow | None = None
    transactions: Sequence[OpenTransaction] = ()
    cancel_grace: timedelta = timedelta()

    @property
    def identifier(self) -> str:
        return "" if self.type is None else self.type.identifier

    @property
    def lane(self) -> str | None:
        return self.collection if self.task is None else self.task.collection

    @property
    def is_waiting(self) -> bool:
        """True if the facts are about a Type, a lane, or a Task that no daemon holds."""
        if self.instance is None:
            return self.type is not None
        return self.task is not None and self.task.daemon_id is None

    @property
    def is_blocked(self) -> bool:
        return self.task is not None and self.task.is_blocked

    @property
    def holder(self) -> Document | None:
        """The daemon that holds the Task, as a document."""
        if self.task is None or self.task.daemon is None:
            return None
        own: Daemon = self.task.daemon
        return next((each for each in self.daemons if each["uuid"] == own.uuid), None)

    def redacted(self, *, errors: bool, daemons: bool) -> Facts:
        """Return the facts without errors or names of daemons, for a user who may not see them."""
        facts = self
        if not errors:
            last = None if self.last is None else self.last | {"message": ""}
            facts = replace(facts, last=last)
            if self.incompatible and self.instance is not None:
                sentence = text.describe_incompatible_inputs(
                    is_elsewhere=self.is_compatible_elsewhere
                )
                facts = replace(facts, incompatible=sentence)
        if not daemons:
            nameless = [each | {"host": "", "pid": 0} for each in self.daemons]
            facts = replace(facts, daemons=nameless, last_claim=None)
        return facts

    @cached_property
    def living(self) -> list[Document]:
        return [each for each in self.daemons if each["condition"] != "lost"]

    @cached_property
    def serving(self) -> list[Document]:
        """The living daemons that serve the Type; not all of them may claim."""
        return [each for each in self.living if self.identifier in each["types"]]

    @cached_property
    def claiming(self) -> list[Document]:
        """The living daemons that serve the Type and claim."""
        return [
            each
            for each in self.serving
            if commands.mode_after(each["mode"], each["request"]) is Mode.RUNNING
        ]

    @cached_property
    def running(self) -> list[Document]:
        """The busy workers of the claiming daemons, according to the Daemon rows."""
        workers = [worker for each in self.claiming for worker in each["workers"]]
        return [worker for worker in workers if worker["type"] and not worker["paused"]]

    @cached_property
    def workers(self) -> int:
        """The number of workers of the claiming daemons, except those with a paused attempt."""
        every = [worker for each in self.claiming for worker in each["workers"]]
        return sum(not worker["paused"] for worker in every)

    @property
    def is_due(self) -> bool:
        """True if its due time has come. A Task that waits for other nodes is not due."""
        return self.task is None or self.task.due_at <= self.now

    @property
    def is_busy(self) -> bool:
        """True if all workers of the claiming daemons are running something."""
        return 0 < self.workers <= len(self.running)


# The values of an explanation.


@dataclass(frozen=True, kw_only=True)
class Help:
    """An act that would resolve a cause.

    ``verb`` is its name in the table of operations, empty if it is not an operation; ``label``
    names it for people. ``command`` is a shell command. ``permission`` is the permission that a
    user of pages and API needs for it; empty if the act is done on the host of the daemons or of
    the database.
    """

    label: str
    command: str
    verb: str = ""
    permission: str = ""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One cause: its ``code``, and a ``sentence`` about it.

    ``facts`` are its numbers and names, as plain values by name. ``since`` is the time at which it
    began, ``until`` the time at which it ends if nobody acts; both are None if unknown. ``helps``
    is the act that would resolve it; None if nobody needs to act, or nobody can.
    """

    code: str
    sentence: str
    facts: dict[str, Any] = field(default_factory=dict)
    since: datetime | None = None
    until: datetime | None = None
    helps: Help | None = None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate of the time until the start: ``low``, ``likely`` and ``high``.

    All are None if the time is unknown; ``why`` is then the code of the cause. If more Tasks wait
    than are counted, ``why`` is "many": then ``high`` is None, and ``likely`` too if these Tasks
    are ahead of it in its lane.
    """

    low: timedelta | None = None
    likely: timedelta | None = None
    high: timedelta | None = None
    why: str = ""

    @property
    def is_open(self) -> bool:
        return self.likely is None

    def __iter__(self) -> Iterator[timedelta | None]:
        return iter((self.low, self.likely, self.high))


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The reasons why something does not run, at ``looked_at`` by the database's clock.

    ``subject`` is the uuid of an Instance, the identifier of a Type, or "identifier/collection".
    ``state`` is the Instance's state; empty for a Type or a missing Instance. The first of
    ``reasons`` must be resolved first. ``ahead`` is the number of Instances of the lane that start
    before it, counted up to MOST_COUNTED; None if it does not wait. ``starts`` is None if it will
    never start.
    """

    subject: str
    state: str
    reasons: tuple[Reason, ...]
    ahead: int | None = None
    starts: Estimate | None = None
    looked_at: datetime

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(reason.code for reason in self.reasons)

    def has(self, *codes: str) -> bool:
        """Return True if one of these codes is among the reasons."""
        return any(code in self.codes for code in codes)
