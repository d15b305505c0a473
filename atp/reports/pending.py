"""Before a deploy: what waits that would fail under this code."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import connections
from django.db.models import TextChoices

from ..conf import settings
from ..contracts.contract import check, schema_of
from ..exceptions import CorruptData, NoResult
from ..graphs.models import result_of
from ..graphs.operations import nodes_beside
from ..graphs.placeholders import Result, resolved, results_in
from ..models import Inputs, Instance, Limit, Node, Schedule, Tailer, Type
from ..operations.gates import gates
from ..operations.registry import registry
from ..payload import binding, codec
from ..payload.codec import check_signature
from ..schedules.declaring import declared
from ..states import TERMINAL, State
from ..store import get_store
from ..store.values.shapes import Shape
from . import overview, releases
from .documents import Document

if TYPE_CHECKING:
    from ..operations.registry import Declaration


# The findings of a check of the queue before a deploy, as data with a sentence each.


class Kind(TextChoices):
    """The kind of a finding. The last three are notes: nothing fails because of them."""

    MISFIT = "misfit", "the handler does not take the inputs"
    UNDECLARED = "undeclared", "no code declares the Type"
    UNREADABLE = "unreadable", "the inputs cannot be read"
    FORMAT = "format", "the inputs may not be read: pickle, or its signature"
    RESULT = "result", "a result of another node of its graph is not there"
    ADAPTED = "adapted", "the inputs are adapted to the handler"
    UNOPENED = "unopened", "the inputs were not opened"
    LEFTOVER = "leftover", "a gate or limits are set of a Type that no code declares"


_NOTES = frozenset({Kind.ADAPTED, Kind.UNOPENED, Kind.LEFTOVER})


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding about Instances of a ``type``, or about a ``schedule``.

    ``count`` is the number of Instances, ``instance`` the uuid of one of them, ``since`` when the
    first was enqueued. All three are None if it is not about Instances.
    """

    kind: Kind
    type: str
    schedule: str = ""
    why: str = ""
    count: int | None = None
    instance: UUID | None = None
    since: datetime | None = None

    @property
    def fails(self) -> bool:
        """Whether the Instances or the schedule cannot run as they are."""
        return self.kind not in _NOTES


@dataclass
class _Group:
    count: int
    key: int
    since: datetime | None


@dataclass
class Collected:
    """Collects findings about Instances; those of one kind, Type and reason become one Finding."""

    _groups: dict[tuple[Kind, str, str], _Group] = field(default_factory=dict)

    def add(
        self, kind: Kind, type: str, why: str, keys: Sequence[int], since: datetime | None
    ) -> None:
        """Add Instances by key; ``since`` is the time at which the first of them was enqueued."""
        if not keys:
            return
        group = self._groups.get((kind, type, why))
        if group is None:
            self._groups[kind, type, why] = _Group(len(keys), keys[0], since)
            return
        group.count += len(keys)
        group.since = min(filter(None, (group.since, since)), default=None)

    def findings(self) -> list[Finding]:
        """Return a Finding for each group, sorted as by :func:`in_order`."""
        keys = [group.key for group in self._groups.values()]
        rows = Instance.objects.using(settings.DATABASE).filter(pk__in=keys)
        uuids = dict(rows.values_list("pk", "uuid"))
        found = [
            Finding(
                kind=kind,
                type=type,
                why=why,
                count=group.count,
                instance=uuids.get(group.key),
                since=group.since,
            )
            for (kind, type, why), group in self._groups.items()
        ]
        return in_order(found)


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings for display: those that fail first, then by Type."""
    return sorted(findings, key=lambda each: (not each.fails, each.type, each.kind, each.why))


# Open inputs of live Instances whose argument names alone do not tell whether they fit.

# The key of an Instance, the kind of the finding (None for none), and the reason.
Judged = tuple[int, Kind | None, str]

# The number of inputs that are read at once.
CHUNK = 500
NOT_OPENED = "pickled: --deep opens them, in a process of its own"
RESULT_NOT_OPENED = "a result that they contain is pickled: --deep opens it, in another process"
NO_ADAPTER = "a result that they contain is pickled: no adapter was tried"
NOT_YET = "they have results of other nodes that are not there yet: no adapter was tried"


def _rows(keys: Sequence[int]) -> Iterator[list[tuple[int, str]]]:
    """Yield lists of pairs of key and stored text."""
    for start in range(0, len(keys), CHUNK):
        rows = Inputs.objects.using(settings.DATABASE).filter(pk__in=keys[start : start + CHUNK])
        yield list(rows.order_by("pk").values_list("pk", "data"))


def adapted(task_type: Declaration, keys: Sequence[int], why: str) -> Iterator[Judged]:
    """Yield for JSON inputs that do not fit (``why``) whether the Type's adapters help."""
    for rows in _rows(keys):
        for key, text in rows:
            yield key, *_adapted(task_type, key, text, why)


def _adapted(task_type: Declaration, key: int, text: str, why: str) -> tuple[Kind, str]:
    try:
        inputs = codec.decode(codec.Payload(codec.JSON, text))
        found = results_in(inputs)
        if found:
            nodes = _nodes(key, found)
            kind, missing = _missing(found, nodes)
            if kind is Kind.UNOPENED:
                return kind, NO_ADAPTER
            if kind is not None:
                return kind, missing
            if any(node.instance.state not in TERMINAL for node in nodes.values()):
                return Kind.UNOPENED, NOT_YET
            inputs = resolved(inputs, lambda name: _output(nodes[name]))
        _, still = binding.fitted(
            task_type.signatures, task_type.adapters, inputs, task_type.sensitive
        )
    except CorruptData as error:
        return Kind.UNREADABLE, str(error)
    return (Kind.MISFIT, still) if still else (Kind.ADAPTED, why)


def against_contract(task_type: Declaration, keys: Sequence[int]) -> Iterator[Judged]:
    """Yield for JSON inputs whether their values fit the contract of the Type."""
    for rows in _rows(keys):
        for key, text in rows:
            try:
                problems = check(task_type, codec.decode(codec.Payload(codec.JSON, text)))
            except CorruptData as error:
                yield key, Kind.UNREADABLE, str(error)
                continue
            # The names alone: values may be secret, and would keep like findings apart.
            names = sorted({re.split(r"[.\[]", each.path)[0] for each in problems})
            told = f"the contract refuses the value of {', '.join(names)}" if names else ""
            yield key, Kind.MISFIT if told else None, told


def pickled(task_type: Declaration, keys: Sequence[int], *, deep: bool) -> Iterator[Judged]:
    """Yield findings about pickled inputs: may this process read them; with ``deep``, do they fit.

    Their cryptographic signature is checked in any case.
    """

    def judge(text: str) -> tuple[str, bool]:
        try:
            inputs = codec.decode(codec.Payload(codec.PICKLE, text))
            _, before = binding.fitted(task_type.signatures, (), inputs)
            _, after = binding.fitted(
                task_type.signatures, task_type.adapters, inputs, task_type.sensitive
            )
        except Exception as error:  # whatever is unpickled may raise anything
            return f"{type(error).__name__}: {error}", False
        return after or before, bool(before and not after)

    for rows in _rows(keys):
        signed = []
        for key, text in rows:
            try:
                check_signature(text)
            except CorruptData as error:
                yield key, Kind.FORMAT, str(error)
                continue
            if deep:
                signed.append((key, text))
            else:
                yield key, Kind.UNOPENED, NOT_OPENED
        for key, why, is_adapted in opened(signed, judge):
            yield key, (Kind.ADAPTED if is_adapted else Kind.MISFIT if why else None), why


def results(keys: Sequence[int], *, deep: bool) -> Iterator[Judged]:
    """Yield findings about results of other nodes that JSON inputs contain.

    A node that has not ended yet may still provide its result, so it is no finding. A pickled
    result is opened only with ``deep``; its cryptographic signature is checked in any case.
    """
    for rows in _rows(keys):
        for key, text in rows:
            try:
                found = results_in(codec.decode(codec.Payload(codec.JSON, text)))
            except CorruptData as error:
                yield key, Kind.UNREADABLE, str(error)
                continue
            yield key, *_missing(found, _nodes(key, found), deep=deep)


def _nodes(key: int, found: Sequence[Result]) -> dict[str, Node]:
    return nodes_beside(key, {name for each in found for name in each.names})


def _missing(
    found: Sequence[Result], nodes: Mapping[str, Node], *, deep: bool = False
) -> tuple[Kind | None, str]:
    """Return RESULT with the reason why a result will never exist; None if all may still exist.

    If only a pickle could tell, return UNOPENED.
    """
    pickled = []
    for result in found:
        if absent := [name for name in result.names if name not in nodes]:
            return Kind.RESULT, f"There is no node {absent[0]!r} in its graph."
        if all(nodes[name].instance.state in TERMINAL for name in result.names):
            try:
                why = _no_value(result, nodes)
            except _Pickled:
                pickled.append(result)
            else:
                if why:
                    return Kind.RESULT, why
    if pickled and not deep:
        return Kind.UNOPENED, RESULT_NOT_OPENED
    for result in pickled:

        def judge(text: str, result: Result = result) -> tuple[str, bool]:
            return _no_value(result, nodes, opens=True), False

        [(_, why, _)] = opened([(0, "")], judge)
        if why:
            return Kind.RESULT, why
    return None, ""


class _Pickled(Exception):
    """The output of a node is a pickle, which this process does not open."""


def _no_value(result: Result, nodes: Mapping[str, Node], *, opens: bool = False) -> str:
    """Return the reason why a result of ended nodes has no value; "" if it has one."""
    try:
        result.value(lambda name: _output(nodes[name], opens=opens))
    except NoResult as error:
        return str(error)
    except _Pickled:
        raise
    except Exception as error:  # a stored response that cannot be read
        return f"{type(error).__name__}: {error}"
    return ""


def _output(node: Node, *, opens: bool = False) -> Any:
    """Return the output of a node. Raises NoResult, _Pickled, and what reading it raises."""
    response = getattr(node.instance, "response", None)
    if node.instance.state == State.FINISHED and response and response.is_pickle and not opens:
        check_signature((response.body or b"").decode())
        raise _Pickled
    return result_of(node).value


# Check before a deploy which live Instances would fail, or wait for ever, under this code.
#
# The check only reads, in portions, and waits for no lock. Run it from the new code.

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
        *schedules(wants),
        *leftovers(wants),
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
            self._judge(pickled(task_type, shape.keys, deep=self._deep), identifier, shape)
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
        self, task_type: Declaration, identifier: str, shape: Shape, names: tuple[str, ...]
    ) -> None:
        key = identifier, shape.placed, names
        if key not in self._judged:
            given = [None] * shape.placed, dict.fromkeys(names)
            self._judged[key] = binding.misfit(task_type.signatures, *given)
        why = self._judged[key]
        if why and task_type.adapters:
            some = self._some(key, shape.keys, EXAMPLES)
            others = shape.keys[len(some) :]
            found = list(adapted(task_type, some, why))
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
            self._judge(against_contract(task_type, some), identifier, shape)
            if others := shape.keys[len(some) :]:
                told = "not compared with the contract: --deep looks at all of them"
                self._add(Kind.UNOPENED, told, identifier, shape, others)
        if shape.has_results:
            some = self._some(_RESULTS, shape.keys, MOST_RESULTS)
            self._judge(results(some, deep=self._deep), identifier, shape)
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

    def _judge(self, found: Iterator[Judged], identifier: str, shape: Shape) -> None:
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


# Open pickled inputs in a child process: a pickle may run code of anyone who can sign one.
#
# The child has no database connection. If it dies, that counts as the answer for the row.

# The longest time that one may take to open, in seconds.
PATIENCE = 10

Row = tuple[int, str]
# The key of an Instance, the reason why its inputs do not fit, and whether they were adapted.
Verdict = tuple[int, str, bool]


def opened(rows: Sequence[Row], judge: Callable[[str], tuple[str, bool]]) -> Iterator[Verdict]:
    """Yield ``judge(text)`` for each row, a pair of key and text, in order."""
    left = list(rows)
    while left:
        answered = 0
        for verdict in _ask(left, judge):
            answered += 1
            yield verdict
        left = left[answered:]
        if left:
            key, _ = left.pop(0)
            yield key, f"the process that opened them ended, or took over {PATIENCE} s", False


def _ask(rows: Sequence[Row], judge: Callable[[str], tuple[str, bool]]) -> Iterator[Verdict]:
    """Yield the answers of one child, which may die before it has answered all."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        _answer(rows, judge, writing)
    os.close(writing)
    with os.fdopen(reading) as answers:
        for line in answers:
            if not line.endswith("\n"):
                break
            key, why, is_adapted = json.loads(line)
            yield key, why, is_adapted
    os.waitpid(pid, 0)


def _answer(rows: Sequence[Row], judge: Callable[[str], tuple[str, bool]], writing: int) -> None:
    """Run as the child: answer all rows and exit. Never returns."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        # The connections are the parent's: none is used here, and none is closed.
        kept = [each.connection for each in connections.all(initialized_only=True)]
        for each in connections.all(initialized_only=True):
            each.connection = None
        for key, text in rows:
            signal.alarm(PATIENCE)
            line = json.dumps([key, *judge(text)])
            os.write(writing, f"{line}\n".encode())
        status = 0 if kept is not None else 1
    finally:
        os._exit(status)


# Settings in the database that this code does not fit: schedules, gates and limits.

_SLOT = "slot"


def schedules(wants: Callable[[str], bool]) -> Iterator[Finding]:
    """Yield a Finding for each schedule in the database that the code of this process cannot run.

    A schedule that this code declares was checked at its declaration. A schedule that earlier code
    declared, and this code does not, is retired by ``migrate``.
    """
    rows = Schedule.objects.using(settings.DATABASE).filter(retired__isnull=True)
    for row in rows.select_related("type").order_by("identifier"):
        is_declared = row.identifier in declared
        is_retired = row.declared is not None and not is_declared
        if is_retired or (is_declared and not row.is_set) or not wants(row.type.identifier):
            continue
        kind, why = _judged(row)
        if why:
            yield Finding(kind=kind, type=row.type.identifier, schedule=row.identifier, why=why)


def _judged(row: Schedule) -> tuple[Kind, str]:
    if row.type.identifier not in registry:
        return Kind.UNDECLARED, "no code declares its Type"
    task_type = registry.get(row.type.identifier)
    try:
        if row.format == codec.PICKLE:
            check_signature(row.data)
            return Kind.UNOPENED, "its inputs are pickled, and were not opened"
        inputs = codec.decode(codec.Payload(row.format, row.data))
        if row.takes_slot:
            inputs = {**inputs, _SLOT: None}
        _, why = binding.fitted(
            task_type.signatures, task_type.adapters, inputs, task_type.sensitive
        )
    except (CorruptData, TypeError) as error:
        return Kind.UNREADABLE, str(error)
    return Kind.MISFIT, why


def leftovers(wants: Callable[[str], bool]) -> Iterator[Finding]:
    """Yield a Finding for each Type that has shut gates or limits, and that no code declares."""
    found: dict[str, list[str]] = {}
    limits = Limit.objects.using(settings.DATABASE).filter(type__isnull=False)
    limited = limits.values_list("type__identifier", flat=True).distinct().order_by()
    shut = {gate.type.identifier for gate in gates() if gate.type is not None}
    for identifiers, word in ((shut, "gate"), (limited, "limits")):
        for identifier in identifiers:
            if identifier not in registry and wants(identifier):
                found.setdefault(identifier, []).append(word)
    for identifier, words in sorted(found.items()):
        are = "are" if words[-1] == "limits" else "is"
        why = f"its {' and '.join(words)} {are} of a Type that no code declares"
        yield Finding(kind=Kind.LEFTOVER, type=identifier, why=why)
