"""The facts that an explanation needs, and the parts of the explanation itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from ... import commands, text
from ...commands import Mode
from ...models import Daemon, Downstream, Gate, Instance, Limit, Schedule, Task, Type
from ...operations.registry import registry
from ...store.facts import OpenTransaction
from ..documents import Document

# Tasks before another one are counted up to this number. They form a range of an index, which the
# database reads quickly.
MOST_COUNTED = 50_000


@dataclass(frozen=True, kw_only=True)
class Flow:
    """How fast the Instances of a Type start and run.

    ``rate`` is the number of starts per second. ``run`` contains the quantiles 0.5, 0.95 and 0.99
    of the run times, in seconds; it is None if no run was measured. ``runs`` is the number of
    measured runs.
    """

    rate: float = 0.0
    run: tuple[float, ...] | None = None
    runs: int = 0


@dataclass(frozen=True, kw_only=True)
class QueuePosition:
    """The position of a waiting Task in the queue.

    ``ahead`` is the number of Tasks before this Task in its lane, and ``above`` is the number of
    those that have a higher priority. ``beside`` is the number of due Tasks in other lanes of the
    Type, which take turns with this lane. Each of these numbers stops at MOST_COUNTED. ``weight``
    is the weight of the Type. ``rivals`` contains the weights of other Types that have due Tasks
    and are served by the same daemons, by identifier.
    """

    ahead: int = 0
    above: int = 0
    beside: int = 0
    rivals: dict[str, float]
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class FullLimit:
    """A Limit that currently allows no further start.

    ``kind`` is the value of the Limit that is reached: "running", "lane" or "rate". ``held`` is the
    number of claimed Tasks that count towards the Limit. For a rate, ``at`` is the time at which
    the next Task can start.
    """

    limit: Limit
    kind: str
    held: int = 0
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the database contains at ``now`` about an Instance, a Type or a lane.

    For an Instance, ``instance`` is set, and ``task`` is set while the Instance is live. For a Type
    or a lane, both are None: the facts are then about an Instance that would be enqueued now, in
    ``collection`` or (if this is None) in any lane of the Type. If no Instance has the requested
    uuid, ``missing`` contains the uuid, and ``type`` is None.

    ``last`` is the last transition of the Instance, ``command`` the last command to the daemon that
    holds the Instance, ``pause`` its last pause, and ``newest`` the newest record of its log. All
    four are documents. ``daemons`` contains documents of daemons, with their ``misfits``.

    ``incompatible`` is a sentence about incompatible inputs. For an Instance it says why a daemon
    refused the inputs; for a Type it says how many Instances no daemon accepts.
    ``is_compatible_elsewhere`` is True if another daemon that claims Tasks might accept the inputs.
    ``downstream`` is set if the downstream of the Type is not healthy. ``schedule`` is set if a
    schedule with the name of the Type, such as that of a tailer, is paused. ``removal`` is the log
    record about the removal of a missing Instance. ``last_claim`` is the record of the last claim
    of an Instance of the Type. ``used`` contains what the attempts of each daemon take of its
    capacity, by the uuid of the daemon, if the Type takes resources.
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
    used: Mapping[UUID, Mapping[str, int]] = field(default_factory=dict)
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
        """The document of the daemon that holds the Task; None if no daemon holds the Task."""
        if self.task is None or self.task.daemon is None:
            return None
        own: Daemon = self.task.daemon
        return next((each for each in self.daemons if each["uuid"] == own.uuid), None)

    def redacted(self, *, errors: bool, daemons: bool) -> Facts:
        """Return a copy for a user who may not see errors of handlers or names of daemons.

        The copy keeps the errors if ``errors`` is True, and the names if ``daemons`` is True.
        """
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
            nameless = [
                each | {"host": "", "pid": 0, "engine": _without_address(each["engine"])}
                for each in self.daemons
            ]
            facts = replace(facts, daemons=nameless, last_claim=None)
        return facts

    @cached_property
    def living(self) -> list[Document]:
        return [each for each in self.daemons if each["condition"] != "lost"]

    @cached_property
    def serving(self) -> list[Document]:
        """The living daemons that serve the Type, including those that do not claim Tasks."""
        return [each for each in self.living if self.identifier in each["types"]]

    @cached_property
    def claiming(self) -> list[Document]:
        """The living daemons that serve the Type and claim Tasks."""
        return [
            each
            for each in self.serving
            if commands.mode_after(each["mode"], each["request"]) is Mode.RUNNING
        ]

    @cached_property
    def running(self) -> list[Document]:
        """The busy workers of the claiming daemons, as the Daemon rows list them."""
        return [each for each in self._workers if each["type"] and not each["paused"]]

    @cached_property
    def workers(self) -> int:
        """The number of workers of the claiming daemons that do not hold a paused attempt."""
        return sum(not worker["paused"] for worker in self._workers)

    @cached_property
    def _workers(self) -> list[Document]:
        """The workers that could run the Task: places of loops if its Type has a concurrency."""
        in_loops = registry.runs_in_loops(self.identifier)
        workers = [worker for each in self.claiming for worker in each["workers"]]
        return [each for each in workers if (each["loop"] is not None) == in_loops]

    @cached_property
    def engines(self) -> list[Document]:
        """What the claiming daemons know of their engines; empty unless an engine runs the Type."""
        found = [each["engine"] for each in self.claiming]
        return [each for each in found if each is not None] if all(found) else []

    @property
    def is_due(self) -> bool:
        """True if the Task's due time has come; False while the Task waits for other nodes."""
        return self.task is None or self.task.due_at <= self.now

    @property
    def is_busy(self) -> bool:
        """True if all workers of the claiming daemons are busy."""
        return 0 < self.workers <= len(self.running)


def _without_address(engine: Document | None) -> Document | None:
    """Return what is known of an engine without its address, which an error may contain."""
    if engine is None:
        return None
    return engine | {"address": "", "error": "it does not answer" if engine["error"] else ""}


# The values of an explanation.


@dataclass(frozen=True, kw_only=True)
class Help:
    """An action that would resolve a cause.

    ``label`` names the action for people. ``command`` performs the action in a shell, or in a
    database client. ``verb`` is the name of the action in the table of operations, or "" if it is
    not an operation. ``permission`` is the permission that a user of the pages or the API needs for
    the action, or "" if the action is only possible on the host of the daemons or of the database.
    """

    label: str
    command: str
    verb: str = ""
    permission: str = ""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A cause that applies, with its ``code`` and a ``sentence`` about it.

    ``facts`` contains the numbers and names in the sentence, as plain values by name. ``since`` is
    the time at which the cause began, and ``until`` is the time at which it ends if nobody acts;
    each is None if unknown. ``helps`` is the action that would resolve the cause, or None if nobody
    can or must act.
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

    If the time is unknown, all three are None, and ``why`` is the code of the cause. If more Tasks
    wait than were counted, ``why`` is "many" and ``high`` is None; ``likely`` is None, too, if
    these Tasks are ahead in the same lane.
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
    """The reasons why an Instance, a Type or a lane does not run, at the time ``looked_at``.

    ``looked_at`` is a time of the database's clock. ``subject`` is the uuid of an Instance, the
    identifier of a Type, or "identifier/collection" for a lane. ``state`` is the state of the
    Instance, or "" for a Type, a lane or a missing Instance. The first of ``reasons`` must be
    resolved first. ``ahead`` is the number of Instances in the lane that start earlier, counted up
    to MOST_COUNTED, or None if the subject does not wait. ``starts`` is None if the subject will
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
