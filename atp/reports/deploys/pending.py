"""Check before a deploy which live Instances would fail, or wait for ever, under this code.

The check only reads, in portions, and waits for no lock. Run it from the new code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ...conf import settings
from ...contracts.contract import schema_of
from ...models import Tailer, Type
from ...payload import binding, codec
from ...store import get_store
from ...store.values import Shape
from ...verbs.registry import registry
from .. import overview
from ..documents import Document
from . import opening, releases, scheduled
from .findings import Collected, Finding, Kind, in_order

if TYPE_CHECKING:
    from ...authoring.task_type import TaskType

# How many inputs of one shape are given to adapters, and how many with results are opened,
# without ``deep``.
EXAMPLES, MOST_RESULTS = 100, 1000
# A Type that is gone from the database.
_UNSERVED = "no daemon that is alive serves it"
_GONE = "of a Type that is not registered"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A Type that a living ``daemon`` serves with another handler signature than this code has.

    ``here`` is the signature in this code, ``there`` that of the daemon.
    """

    type: str
    here: str
    there: str
    daemon: str
    release: str


@dataclass(frozen=True, kw_only=True)
class Pending:
    """The outcome of a check: the number of live Instances, and the findings."""

    time: datetime
    looked_at: int
    findings: tuple[Finding, ...]
    differences: tuple[Difference, ...]

    @property
    def failing(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.fails)


def document(found: Pending) -> Document:
    """Return the outcome of a check as plain values by name."""
    return {
        "time": found.time,
        "fits": not found.failing,
        "looked_at": found.looked_at,
        "findings": [
            asdict(each) | {"kind": each.kind.value, "what": each.kind.label, "fails": each.fails}
            for each in found.findings
        ],
        "differences": [asdict(each) for each in found.differences],
    }


def everything(identifier: str) -> bool:
    return True


def pending(*, deep: bool = False, wants: Callable[[str], bool] = everything) -> Pending:
    """Check all live Instances and all schedules against the code of this process.

    ``wants(identifier)`` chooses the Types. For JSON inputs the names of the arguments are compared
    with the signature of the handler, and some of their values with its contract. With ``deep``,
    pickled inputs are opened, in a child process; and so are all JSON inputs that have a contract,
    need adapters or contain results of other nodes, not only some.
    """
    now = overview.now()
    alive = releases.living(overview.daemons(), now)
    look = _Look(deep, wants, alive)
    findings = [
        *look.findings(),
        *scheduled.schedules(wants),
        *scheduled.leftovers(wants),
    ]
    return Pending(
        time=now,
        looked_at=look.count,
        findings=tuple(in_order(findings)),
        differences=tuple(each for each in _differences(alive) if wants(each.type)),
    )


class _Look:
    """One check of the live Instances. ``alive`` are the living daemons."""

    def __init__(self, deep: bool, wants: Callable[[str], bool], alive: list[Document]) -> None:
        self._deep = deep
        self._wants = wants
        self._alive = alive
        self._collected = Collected()
        self._types: dict[int, str] = {}
        self._tailers = frozenset(
            Tailer.objects.using(settings.DATABASE).values_list("identifier", flat=True)
        )
        # Why inputs do not fit ("" if they do), by Type and shape.
        self._judged: dict[tuple[str, int, tuple[str, ...]], str] = {}
        self._tried: dict[object, int] = defaultdict(int)
        # The kind and reason of inputs that adapters do not make fit, by Type and shape.
        self._alike: dict[object, tuple[Kind, str]] = {}
        self.count = 0

    def findings(self) -> list[Finding]:
        store, after = get_store(), 0
        while True:
            shapes, last = store.inputs.shapes(after)
            if last is None:
                return self._collected.findings()
            for shape in shapes:
                self.count += len(shape.keys)
                self._look_at(shape)
            after = last

    def _identifier(self, key: int) -> str | None:
        if key not in self._types:
            self._types |= dict(
                Type.objects.using(settings.DATABASE).values_list("pk", "identifier")
            )
        return self._types.get(key)

    def _add(self, kind: Kind, why: str, type: str, shape: Shape, keys: Sequence[int] = ()) -> None:
        self._collected.add(kind, type, why, keys or shape.keys, shape.since)

    def _look_at(self, shape: Shape) -> None:
        identifier = self._identifier(shape.type)
        if identifier is None or not self._wants(identifier):
            if identifier is None:
                self._add(Kind.UNDECLARED, _GONE, f"#{shape.type}", shape)
            return
        if identifier not in registry:
            if identifier in self._tailers:
                return  # a look of a tailer that was removed: the source keeps what it would read
            self._add(Kind.UNDECLARED, self._served(identifier), identifier, shape)
            return
        task_type = registry.get(identifier)
        if shape.format == codec.PICKLE:
            self._judge(opening.pickled(task_type, shape.keys, deep=self._deep), identifier, shape)
        elif shape.names is None:
            why = {None: "there are no inputs", codec.JSON: "no JSON object of arguments"}
            told = why.get(shape.format, f"unknown format {shape.format!r}")
            self._add(Kind.UNREADABLE, told, identifier, shape)
        else:
            self._look_at_names(task_type, identifier, shape, shape.names)

    def _served(self, identifier: str) -> str:
        """Return in words which living daemons serve a Type that this code does not declare."""
        serving = [releases.name(each) for each in self._alive if identifier in each["types"]]
        return f"served by daemon {', '.join(serving)}" if serving else _UNSERVED

    def _look_at_names(
        self, task_type: TaskType, identifier: str, shape: Shape, names: tuple[str, ...]
    ) -> None:
        key = identifier, shape.placed, names
        if key not in self._judged:
            given = [None] * shape.placed, dict.fromkeys(names)
            self._judged[key] = binding.misfit(task_type.signatures, *given)
        why = self._judged[key]
        if why and task_type.adapters:
            some = self._some(key, shape.keys, EXAMPLES)
            others = shape.keys[len(some) :]
            found = list(opening.adapted(task_type, some, why))
            self._judge(iter(found), identifier, shape)
            # The others are assumed to behave as those that were tried.
            for _, kind, told in found:
                if kind is Kind.MISFIT:
                    self._alike[key] = kind, told
            if others:
                self._add(*self._alike.get(key, (Kind.ADAPTED, why)), identifier, shape, others)
        elif why:
            self._add(Kind.MISFIT, why, identifier, shape)
        elif not shape.has_results and schema_of(task_type) is not None:
            some = self._some((_CONTRACT, *key), shape.keys, EXAMPLES)
            self._judge(opening.against_contract(task_type, some), identifier, shape)
            if others := shape.keys[len(some) :]:
                told = "not compared with the contract: --deep looks at all of them"
                self._add(Kind.UNOPENED, told, identifier, shape, others)
        if shape.has_results:
            some = self._some(_RESULTS, shape.keys, MOST_RESULTS)
            self._judge(opening.results(some, deep=self._deep), identifier, shape)
            if others := shape.keys[len(some) :]:
                told = "results of other nodes: --deep looks at all of them"
                self._add(Kind.UNOPENED, told, identifier, shape, others)

    def _some(self, key: object, keys: tuple[int, ...], most: int) -> tuple[int, ...]:
        """Return the keys to open: at most ``most`` over all calls with this ``key``; deep, all."""
        if self._deep:
            return keys
        some = keys[: max(0, most - self._tried[key])]
        self._tried[key] += len(some)
        return some

    def _judge(self, found: Iterator[opening.Judged], identifier: str, shape: Shape) -> None:
        groups = defaultdict(list)
        for key, kind, why in found:
            if kind is not None:
                groups[kind, why].append(key)
        for (kind, why), keys in groups.items():
            self._add(kind, why, identifier, shape, keys)


# The keys under which inputs with results, and those with a contract, are counted.
_RESULTS, _CONTRACT = "results", "contract"


def _differences(alive: list[Document]) -> Iterator[Difference]:
    """Yield a Difference for each living daemon and Type whose handler signature differs."""
    for name in sorted(registry.names()):
        own = registry.get(name).fingerprint
        for daemon in alive:
            other = daemon["signatures"].get(name, own)
            if other != own:
                yield Difference(
                    type=name,
                    here=own,
                    there=other,
                    daemon=f"{daemon['host']}:{daemon['pid']}",
                    release=daemon["release"],
                )
