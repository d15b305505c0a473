"""The facts that causes judge: what was gathered at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from ...models import Daemon, Downstream, Gate, Instance, Limit, Task, Type
from ...words import orders
from ...words.orders import Mode
from ..documents import Document


@dataclass(frozen=True, kw_only=True)
class Flow:
    """How quickly a Type goes: ``rate`` is in starts a second, ``run`` quantiles in seconds.

    ``run`` are those at 0.5, 0.95 and 0.99; None if nothing was counted.
    """

    rate: float = 0.0
    run: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Queued:
    """The queue around what waits: ``ahead`` in its lane, ``above`` of them by a higher priority.

    ``beside`` are due in other lanes of its Type, which take turns with it. Each is counted up
    to a thousand. ``rivals`` are the weights of the other Types that are served by the same
    daemons and have something due, by identifier; ``weight`` is its own Type's.
    """

    ahead: int = 0
    above: int = 0
    beside: int = 0
    rivals: dict[str, float]
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Full:
    """A Limit that allows no other start: ``kind`` is "running", "lane" or "rate".

    ``held`` are claimed of what it limits; with a rate ``at`` is when the next may start.
    """

    limit: Limit
    kind: str
    held: int = 0
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was found at ``now``. ``type`` is None where there is no such Instance.

    Of an Instance there are ``instance`` and, while it is live, ``task``. Of a Type or a lane
    neither: then it is about one that were enqueued there now, in ``collection`` (None: of any).
    ``last`` is the last transition of the Instance and ``word`` the newest record of its log,
    as plain values. ``daemons`` are documents, with ``misfits``. ``missing`` is the uuid of an
    Instance that there is not. ``downstream`` is that of its Type, where it is not healthy.
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
    word: Document | None = None
    daemons: Sequence[Document] = ()
    gates: Sequence[Gate] = ()
    limits: Sequence[Limit] = ()
    full: Sequence[Full] = ()
    downstream: Downstream | None = None
    upstream: Sequence[Document] = ()
    misfit: str = ""
    served_last: Document | None = None
    queued: Queued | None = None
    flow: Flow | None = None
    transactions: Sequence[Any] = ()
    cancel_grace: timedelta = timedelta()

    @property
    def identifier(self) -> str:
        return "" if self.type is None else self.type.identifier

    @property
    def lane(self) -> str | None:
        return self.collection if self.task is None else self.task.collection

    @property
    def is_waiting(self) -> bool:
        """Whether it is a Task that no daemon holds, or about a Type."""
        if self.instance is None:
            return self.type is not None
        return self.task is not None and self.task.daemon_id is None

    @property
    def is_blocked(self) -> bool:
        return self.task is not None and self.task.is_blocked

    @property
    def holder(self) -> Document | None:
        """The daemon that holds its Task, as a document."""
        if self.task is None or self.task.daemon is None:
            return None
        own: Daemon = self.task.daemon
        return next((each for each in self.daemons if each["uuid"] == own.uuid), None)

    def redacted(self, *, errors: bool, daemons: bool) -> Facts:
        """Return them for somebody who may not see errors, or not who the daemons are."""
        found = self
        if not errors:
            last = None if self.last is None else self.last | {"message": ""}
            found = replace(found, last=last, misfit="")
        if not daemons:
            nameless = [each | {"host": "", "pid": 0} for each in self.daemons]
            found = replace(found, daemons=nameless, served_last=None)
        return found

    @cached_property
    def living(self) -> list[Document]:
        return [each for each in self.daemons if each["condition"] != "lost"]

    @cached_property
    def serving(self) -> list[Document]:
        """The living daemons that serve its Type, whether they claim or not."""
        return [each for each in self.living if self.identifier in each["types"]]

    @cached_property
    def claiming(self) -> list[Document]:
        """Those of them that claim."""
        return [
            each
            for each in self.serving
            if orders.aim(each["mode"], each["request"]) is Mode.RUNNING
        ]

    @cached_property
    def running(self) -> list[Document]:
        """What the workers of those run, as far as their rows tell."""
        workers = [worker for each in self.claiming for worker in each["workers"]]
        return [worker for worker in workers if worker["type"] and not worker["paused"]]

    @cached_property
    def places(self) -> int:
        """The number of their workers, as far as their rows tell; the paused have none."""
        workers = [worker for each in self.claiming for worker in each["workers"]]
        return sum(not worker["paused"] for worker in workers)

    @property
    def is_due(self) -> bool:
        """Whether it may start by its time; a node that waits for others may not."""
        return self.task is None or self.task.due_at <= self.now

    @property
    def is_busy(self) -> bool:
        """Whether all their workers run something."""
        return 0 < self.places <= len(self.running)
