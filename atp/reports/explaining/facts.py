"""The facts at one moment, and the values of an answer: Reason, Help, Estimate."""

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

# The facts that causes judge, gathered at one moment.


@dataclass(frozen=True, kw_only=True)
class Flow:
    """The speed of a Type: ``rate`` in starts a second, ``run`` as quantiles of its run times.

    ``run`` are the quantiles 0.5, 0.95 and 0.99, in seconds; None if nothing was counted. ``runs``
    is the number of run times that these were computed from.
    """

    rate: float = 0.0
    run: tuple[float, ...] | None = None
    runs: int = 0


# What is before a Task is counted up to this number. It is a range of an index, read in one piece.
MOST_COUNTED = 50_000


@dataclass(frozen=True, kw_only=True)
class Queued:
    """The queue around a waiting Task: ``ahead`` of it in its lane, ``above`` of these by priority.

    ``beside`` are the due Tasks in other lanes of its Type, which take turns with it. Each count
    stops at MOST_COUNTED. ``rivals`` are the weights, by identifier, of other Types with due Tasks
    that the same daemons serve; ``weight`` is that of its own Type.
    """

    ahead: int = 0
    above: int = 0
    beside: int = 0
    rivals: dict[str, float]
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Full:
    """A Limit that allows no further start: ``kind`` is "running", "lane" or "rate".

    ``held`` is the number of claimed Tasks under it; for a rate ``at`` is when the next may start.
    """

    limit: Limit
    kind: str
    held: int = 0
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts at ``now``. If there is no such Instance, ``type`` is None, ``missing`` its uuid.

    About an Instance, ``instance`` is set, and ``task`` while it is live. About a Type or a lane,
    neither is: the facts are those of an Instance that would be enqueued there now, in
    ``collection`` (None: any). ``last`` is the last transition of the Instance, ``asked`` the last
    request to its holder, ``pause`` its last pause, ``word`` the newest record of its log, all as
    plain values. ``daemons`` are documents, with ``misfits``. ``misfit`` says why its inputs fit
    some daemon or none, ``is_fit_elsewhere`` whether they may fit another that claims; about a
    Type, which of its Instances fit none.
    ``downstream`` is set if the downstream of the Type is not healthy, ``schedule`` if a schedule
    that has the name of the Type, as that of a tailer, is paused.
    """

    now: datetime
    missing: str = ""
    trace: Document | None = None
    type: Type | None = None
    collection: str | None = None
    instance: Instance | None = None
    task: Task | None = None
    last: Document | None = None
    asked: Document | None = None
    pause: Document | None = None
    word: Document | None = None
    daemons: Sequence[Document] = ()
    gates: Sequence[Gate] = ()
    limits: Sequence[Limit] = ()
    full: Sequence[Full] = ()
    downstream: Downstream | None = None
    schedule: Schedule | None = None
    upstream: Sequence[Document] = ()
    misfit: str = ""
    is_fit_elsewhere: bool = False
    served_last: Document | None = None
    queued: Queued | None = None
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
        """Whether the facts are about a Type, a lane, or a Task that no daemon holds."""
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
        """Return the facts for a user who may not see errors, or not the names of daemons."""
        found = self
        if not errors:
            last = None if self.last is None else self.last | {"message": ""}
            found = replace(found, last=last)
            if self.misfit and self.instance is not None:
                found = replace(found, misfit=text.misfit(is_elsewhere=self.is_fit_elsewhere))
        if not daemons:
            nameless = [each | {"host": "", "pid": 0} for each in self.daemons]
            found = replace(found, daemons=nameless, served_last=None)
        return found

    @cached_property
    def living(self) -> list[Document]:
        return [each for each in self.daemons if each["condition"] != "lost"]

    @cached_property
    def serving(self) -> list[Document]:
        """The living daemons that serve the Type, whether they claim or not."""
        return [each for each in self.living if self.identifier in each["types"]]

    @cached_property
    def claiming(self) -> list[Document]:
        """The living daemons that serve the Type and claim."""
        return [
            each
            for each in self.serving
            if commands.aim(each["mode"], each["request"]) is Mode.RUNNING
        ]

    @cached_property
    def running(self) -> list[Document]:
        """The busy workers of the claiming daemons, as far as the rows of these show them."""
        workers = [worker for each in self.claiming for worker in each["workers"]]
        return [worker for worker in workers if worker["type"] and not worker["paused"]]

    @cached_property
    def places(self) -> int:
        """The number of workers of the claiming daemons, without those whose attempt is paused."""
        workers = [worker for each in self.claiming for worker in each["workers"]]
        return sum(not worker["paused"] for worker in workers)

    @property
    def is_due(self) -> bool:
        """Whether its due time has come; a Task that waits for other nodes has none."""
        return self.task is None or self.task.due_at <= self.now

    @property
    def is_busy(self) -> bool:
        """Whether all workers of the claiming daemons are running something."""
        return 0 < self.places <= len(self.running)


# The values of an explanation: frozen, with named fields.


@dataclass(frozen=True, kw_only=True)
class Help:
    """An act that would resolve a cause.

    ``verb`` is its name in the table of verbs, empty if it is no verb; ``label`` names it for
    people. ``command`` is a shell command. ``permission`` is what a user of pages and API needs for
    it; empty if it is done on the host of the daemons or of the database.
    """

    label: str
    command: str
    verb: str = ""
    permission: str = ""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One cause: its ``code``, and a ``sentence`` about it.

    ``facts`` are its numbers and names, as plain values by name. ``since`` is when it began and
    ``until`` when it ends by itself; None if unknown. ``helps`` is the act that would resolve it;
    None if nobody needs to act, or nobody can.
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

    All are None if the end is unknown; ``why`` is then the code of the cause. Where more Tasks wait
    than are counted, ``why`` is "many": then ``high`` is None, and ``likely`` too if they are
    ahead of it in its lane.
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

    ``subject`` is the uuid of an Instance, the identifier of a Type, or that and a collection.
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
        """Whether one of these codes is among the reasons."""
        return any(code in self.codes for code in codes)
