"""Check before a deploy which live Instances would fail, or wait for ever, under the new code.

Run the check from the new code. It only reads, a portion at a time, and waits for no locks.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from ..graphs.operations import read_nodes
from ..graphs.placeholders import Result, resolve_results, results_in
from ..models import Inputs, Instance, Limit, Node, Schedule, Tailer, Type
from ..operations.gates import gates
from ..operations.registry import registry
from ..payload import binding, codec
from ..payload.codec import check_signature
from ..schedules.declaring import declared_schedules
from ..states import TERMINAL, State
from ..store import get_store
from ..store.facts import Shape
from . import overview, releases
from .documents import Document

if TYPE_CHECKING:
    from ..operations.registry import Declaration


# The number of inputs that are read in one query.
CHUNK = 500
# Without ``deep``, at most EXAMPLES inputs of one shape are passed to adapters, and at most
# MOST_RESULTS inputs with results are opened.
EXAMPLES, MOST_RESULTS = 100, 1000
# A child process can take up to this many seconds to open one input.
PATIENCE = 10
NOT_OPENED = "the inputs are pickled; --deep opens them in a child process"
RESULT_NOT_OPENED = "a result in the inputs is pickled; --deep opens it in a child process"
NO_ADAPTER = "no adapter was tried, because a result in the inputs is pickled"
NOT_YET = "no adapter was tried, because the inputs need results that do not exist yet"
_UNSERVED = "no daemon that is alive serves it"
# The Type has been removed from the database.
_GONE = "the Type is not registered"
# The keys under which inputs with results, and those with a contract, are counted.
_RESULTS, _CONTRACT = "results", "contract"
_SLOT = "slot"


class Kind(TextChoices):
    """The kind of a finding.

    The last three kinds are only notes, because no Instance and no schedule fails.
    """

    MISFIT = "misfit", "the handler does not take the inputs"
    UNDECLARED = "undeclared", "no code declares the Type"
    UNREADABLE = "unreadable", "the inputs cannot be read"
    FORMAT = "format", "the inputs may not be read: pickle, or its signature"
    RESULT = "result", "the result of another node of its graph is missing"
    ADAPTED = "adapted", "the inputs are adapted to the handler"
    UNOPENED = "unopened", "the inputs were not opened"
    LEFTOVER = "leftover", "a gate or limits are set for a Type that no code declares"


_NOTES = frozenset({Kind.ADAPTED, Kind.UNOPENED, Kind.LEFTOVER})
# The key of an Instance and the stored text of its inputs.
Row = tuple[int, str]
# The key of an Instance, the kind of the finding (None if its inputs fit), and the reason.
Judged = tuple[int, Kind | None, str]
# The key of an Instance, the reason why its inputs do not fit, and True if they were adapted.
Verdict = tuple[int, str, bool]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A finding about Instances of a ``type``, or about a ``schedule``.

    ``count`` is the number of Instances that the finding is about, ``instance`` is the uuid of one
    of them, and ``since`` is the time at which the first of them was enqueued. All three are None
    if the finding is not about Instances. ``why`` is the reason as text.
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
        """True if the Instances or the schedule cannot run with their current inputs."""
        return self.kind not in _NOTES


@dataclass
class _Group:
    count: int
    key: int
    since: datetime | None


@dataclass
class FindingCollector:
    """Groups findings about Instances into one Finding for each kind, Type and reason."""

    _groups: dict[tuple[Kind, str, str], _Group] = field(default_factory=dict)

    def add(
        self, kind: Kind, type: str, why: str, keys: Sequence[int], since: datetime | None
    ) -> None:
        """Add Instances by primary key. The first of them was enqueued at ``since``."""
        if not keys:
            return
        group = self._groups.get((kind, type, why))
        if group is None:
            self._groups[kind, type, why] = _Group(len(keys), keys[0], since)
            return
        group.count += len(keys)
        group.since = min(filter(None, (group.since, since)), default=None)

    def findings(self) -> list[Finding]:
        """Return a Finding for each group, sorted for display."""
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
        return _sort_findings(found)


def _sort_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings for display: those that fail come first, and each group is sorted by Type."""
    return sorted(findings, key=lambda each: (not each.fails, each.type, each.kind, each.why))


# Inputs that must be opened, because the names of their arguments do not show if they fit.


def _read_inputs(keys: Sequence[int]) -> Iterator[list[Row]]:
    """Yield the stored inputs of these Instances in portions, as pairs of primary key and text."""
    for start in range(0, len(keys), CHUNK):
        rows = Inputs.objects.using(settings.DATABASE).filter(pk__in=keys[start : start + CHUNK])
        yield list(rows.order_by("pk").values_list("pk", "data"))


def _try_adapters(task_type: Declaration, keys: Sequence[int], why: str) -> Iterator[Judged]:
    """Try the Type's adapters on JSON inputs that do not fit the handler; ``why`` says why not."""
    for rows in _read_inputs(keys):
        for key, text in rows:
            yield key, *_try_adapters_on(task_type, key, text, why)


def _try_adapters_on(task_type: Declaration, key: int, text: str, why: str) -> tuple[Kind, str]:
    try:
        inputs = codec.decode(codec.Payload(codec.JSON, text))
        found = results_in(inputs)
        if found:
            nodes = _find_nodes(key, found)
            kind, missing = _find_missing_result(found, nodes)
            if kind is Kind.UNOPENED:
                return kind, NO_ADAPTER
            if kind is not None:
                return kind, missing
            if any(node.instance.state not in TERMINAL for node in nodes.values()):
                return Kind.UNOPENED, NOT_YET
            inputs = resolve_results(inputs, lambda name: _read_output(nodes[name]))
        _, still = binding.adapt_arguments(
            task_type.signatures, task_type.adapters, inputs, task_type.sensitive
        )
    except CorruptData as error:
        return Kind.UNREADABLE, str(error)
    return (Kind.MISFIT, still) if still else (Kind.ADAPTED, why)


def _compare_with_contract(task_type: Declaration, keys: Sequence[int]) -> Iterator[Judged]:
    """Compare the values in JSON inputs with the contract of the Type."""
    for rows in _read_inputs(keys):
        for key, text in rows:
            try:
                problems = check(task_type, codec.decode(codec.Payload(codec.JSON, text)))
            except CorruptData as error:
                yield key, Kind.UNREADABLE, str(error)
                continue
            # Only the names: values may be secret, and would divide findings that are alike.
            names = sorted({re.split(r"[.\[]", each.path)[0] for each in problems})
            why = f"the contract refuses the value of {', '.join(names)}" if names else ""
            yield key, Kind.MISFIT if why else None, why


def _check_pickled(task_type: Declaration, keys: Sequence[int], *, deep: bool) -> Iterator[Judged]:
    """Yield findings about pickled inputs.

    Each finding says if this process may read the inputs, and with ``deep`` also if they fit the
    handler. The cryptographic signature of the inputs is always checked.
    """

    def judge(text: str) -> tuple[str, bool]:
        try:
            inputs = codec.decode(codec.Payload(codec.PICKLE, text))
            _, before = binding.adapt_arguments(task_type.signatures, (), inputs)
            _, after = binding.adapt_arguments(
                task_type.signatures, task_type.adapters, inputs, task_type.sensitive
            )
        except Exception as error:  # an unpickled object may raise anything
            return f"{type(error).__name__}: {error}", False
        return after or before, bool(before and not after)

    for rows in _read_inputs(keys):
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
        for key, why, is_adapted in _open_in_child(signed, judge):
            yield key, (Kind.ADAPTED if is_adapted else Kind.MISFIT if why else None), why


def _check_results(keys: Sequence[int], *, deep: bool) -> Iterator[Judged]:
    """Yield findings about results of other nodes that JSON inputs refer to.

    The result of a node that has not ended yet is not a finding, because the node may still provide
    it. A pickled result is opened only with ``deep``, but its cryptographic signature is always
    checked.
    """
    for rows in _read_inputs(keys):
        for key, text in rows:
            try:
                found = results_in(codec.decode(codec.Payload(codec.JSON, text)))
            except CorruptData as error:
                yield key, Kind.UNREADABLE, str(error)
                continue
            yield key, *_find_missing_result(found, _find_nodes(key, found), deep=deep)


def _find_nodes(key: int, found: Sequence[Result]) -> dict[str, Node]:
    return read_nodes(key, {name for each in found for name in each.names})


def _find_missing_result(
    found: Sequence[Result], nodes: Mapping[str, Node], *, deep: bool = False
) -> tuple[Kind | None, str]:
    """Return the kind RESULT and a reason if a result can never exist; (None, "") otherwise.

    Returns the kind UNOPENED if the answer depends on a pickle that was not opened.
    """
    pickled = []
    for result in found:
        if absent := [name for name in result.names if name not in nodes]:
            return Kind.RESULT, f"There is no node {absent[0]!r} in its graph."
        if all(nodes[name].instance.state in TERMINAL for name in result.names):
            try:
                why = _why_no_value(result, nodes)
            except _Pickled:
                pickled.append(result)
            else:
                if why:
                    return Kind.RESULT, why
    if pickled and not deep:
        return Kind.UNOPENED, RESULT_NOT_OPENED
    for result in pickled:

        def judge(text: str, result: Result = result) -> tuple[str, bool]:
            return _why_no_value(result, nodes, opens=True), False

        [(_, why, _)] = _open_in_child([(0, "")], judge)
        if why:
            return Kind.RESULT, why
    return None, ""


class _Pickled(Exception):
    """The output of a node is a pickle, and this process does not open pickles."""


def _why_no_value(result: Result, nodes: Mapping[str, Node], *, opens: bool = False) -> str:
    """Return why a result of ended nodes has no value, or "" if it has a value."""
    try:
        result.value(lambda name: _read_output(nodes[name], opens=opens))
    except NoResult as error:
        return str(error)
    except _Pickled:
        raise
    except Exception as error:  # a stored response that cannot be read
        return f"{type(error).__name__}: {error}"
    return ""


def _read_output(node: Node, *, opens: bool = False) -> Any:
    """Return the output of a node. Raises NoResult, _Pickled, or an error of reading the output."""
    response = getattr(node.instance, "response", None)
    if node.instance.state == State.FINISHED and response and response.is_pickle and not opens:
        check_signature((response.body or b"").decode())
        raise _Pickled
    return result_of(node).value


# The check as a whole.


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A Type whose handler has another signature in a living ``daemon`` than in this code.

    ``here`` is the signature in this code, ``there`` the signature in the daemon.
    """

    type: str
    here: str
    there: str
    daemon: str
    release: str


@dataclass(frozen=True, kw_only=True)
class Pending:
    """The outcome of a check; ``looked_at`` is the number of live Instances that were checked."""

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


def _is_any(identifier: str) -> bool:
    return True


def pending(*, deep: bool = False, wants: Callable[[str], bool] = _is_any) -> Pending:
    """Check all live Instances and all schedules against the code of this process.

    ``wants(identifier)`` returns True for the Types to check. For JSON inputs, the check compares
    the names of the arguments with the signature of the handler, and some of the values with the
    contract. With ``deep``, the check opens pickled inputs in a child process. It then also opens
    all JSON inputs that have a contract, need adapters, or contain results of other nodes; without
    ``deep``, it opens only some of these.
    """
    now = overview.now()
    alive = releases.living_daemons(overview.daemons(), now)
    check_of_instances = _InstancesCheck(deep, wants, alive)
    findings = [
        *check_of_instances.findings(),
        *_check_schedules(wants),
        *_find_leftovers(wants),
    ]
    return Pending(
        time=now,
        looked_at=check_of_instances.count,
        findings=tuple(_sort_findings(findings)),
        differences=tuple(each for each in _find_differences(alive) if wants(each.type)),
    )


class _InstancesCheck:
    """One check of all live Instances; ``alive`` contains documents of the living daemons."""

    def __init__(self, deep: bool, wants: Callable[[str], bool], alive: list[Document]) -> None:
        self._deep = deep
        self._wants = wants
        self._alive = alive
        self._collected = FindingCollector()
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
                self._check_shape(shape)
            after = last

    def _identifier(self, key: int) -> str | None:
        if key not in self._types:
            self._types |= dict(
                Type.objects.using(settings.DATABASE).values_list("pk", "identifier")
            )
        return self._types.get(key)

    def _add(self, kind: Kind, why: str, type: str, shape: Shape, keys: Sequence[int] = ()) -> None:
        self._collected.add(kind, type, why, keys or shape.keys, shape.since)

    def _check_shape(self, shape: Shape) -> None:
        identifier = self._identifier(shape.type)
        if identifier is None or not self._wants(identifier):
            if identifier is None:
                self._add(Kind.UNDECLARED, _GONE, f"#{shape.type}", shape)
            return
        if identifier not in registry:
            if identifier in self._tailers:
                return  # an attempt of a removed tailer: its source keeps the records
            self._add(Kind.UNDECLARED, self._describe_daemons(identifier), identifier, shape)
            return
        task_type = registry.get(identifier)
        if shape.format == codec.PICKLE:
            found = _check_pickled(task_type, shape.keys, deep=self._deep)
            self._add_all(found, identifier, shape)
        elif shape.names is None:
            reasons = {None: "there are no inputs", codec.JSON: "the inputs are not a JSON object"}
            why = reasons.get(shape.format, f"unknown format {shape.format!r}")
            self._add(Kind.UNREADABLE, why, identifier, shape)
        else:
            self._check_names(task_type, identifier, shape, shape.names)

    def _describe_daemons(self, identifier: str) -> str:
        """Name the living daemons that serve a Type that this code does not declare."""
        serving = [
            releases.daemon_name(each) for each in self._alive if identifier in each["types"]
        ]
        return f"served by daemon {', '.join(serving)}" if serving else _UNSERVED

    def _check_names(
        self, task_type: Declaration, identifier: str, shape: Shape, names: tuple[str, ...]
    ) -> None:
        key = identifier, shape.placed, names
        if key not in self._judged:
            arguments = [None] * shape.placed, dict.fromkeys(names)
            self._judged[key] = binding.why_incompatible(task_type.signatures, *arguments)
        why = self._judged[key]
        if why and task_type.adapters:
            examples = self._choose(key, shape.keys, EXAMPLES)
            others = shape.keys[len(examples) :]
            found = list(_try_adapters(task_type, examples, why))
            self._add_all(found, identifier, shape)
            # The others are assumed to behave like the examples.
            for _, kind, still in found:
                if kind is Kind.MISFIT:
                    self._alike[key] = kind, still
            if others:
                self._add(*self._alike.get(key, (Kind.ADAPTED, why)), identifier, shape, others)
        elif why:
            self._add(Kind.MISFIT, why, identifier, shape)
        elif not shape.has_results and schema_of(task_type) is not None:
            examples = self._choose((_CONTRACT, *key), shape.keys, EXAMPLES)
            self._add_all(_compare_with_contract(task_type, examples), identifier, shape)
            if others := shape.keys[len(examples) :]:
                note = "not compared with the contract; --deep compares all of them"
                self._add(Kind.UNOPENED, note, identifier, shape, others)
        if shape.has_results:
            examples = self._choose(_RESULTS, shape.keys, MOST_RESULTS)
            self._add_all(_check_results(examples, deep=self._deep), identifier, shape)
            if others := shape.keys[len(examples) :]:
                note = "results of other nodes were not checked; --deep checks all of them"
                self._add(Kind.UNOPENED, note, identifier, shape, others)

    def _choose(self, key: object, keys: tuple[int, ...], most: int) -> tuple[int, ...]:
        """Return the keys of the Instances to open: all with ``deep``, otherwise the first ones.

        All calls with the same ``key`` together return at most ``most`` of them.
        """
        if self._deep:
            return keys
        chosen = keys[: max(0, most - self._tried[key])]
        self._tried[key] += len(chosen)
        return chosen

    def _add_all(self, found: Iterable[Judged], identifier: str, shape: Shape) -> None:
        groups = defaultdict(list)
        for key, kind, why in found:
            if kind is not None:
                groups[kind, why].append(key)
        for (kind, why), keys in groups.items():
            self._add(kind, why, identifier, shape, keys)


def _find_differences(alive: list[Document]) -> Iterator[Difference]:
    """Yield a Difference for each living daemon and each Type whose handler signature differs."""
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


# Pickles are opened in a child process: they can run any code of someone who can sign them.
#
# The child has no database connection. If it dies, that counts as the answer for the row.


def _open_in_child(
    rows: Sequence[Row], judge: Callable[[str], tuple[str, bool]]
) -> Iterator[Verdict]:
    """Yield the answer of ``judge(text)`` for each row, in order, computed in child processes."""
    left = list(rows)
    while left:
        answered = 0
        for verdict in _judge_in_child(left, judge):
            answered += 1
            yield verdict
        left = left[answered:]
        if left:
            key, _ = left.pop(0)
            yield (
                key,
                f"the process that opened them ended, or took longer than {PATIENCE} s",
                False,
            )


def _judge_in_child(
    rows: Sequence[Row], judge: Callable[[str], tuple[str, bool]]
) -> Iterator[Verdict]:
    """Yield the answers of one child process, which may die before it has answered all."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        _run_child(rows, judge, writing)
    os.close(writing)
    with os.fdopen(reading) as answers:
        for line in answers:
            if not line.endswith("\n"):
                break
            key, why, is_adapted = json.loads(line)
            yield key, why, is_adapted
    os.waitpid(pid, 0)


def _run_child(rows: Sequence[Row], judge: Callable[[str], tuple[str, bool]], writing: int) -> None:
    """Run in the child process: write the answer for each row, then exit. Never returns."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        # The connections belong to the parent: the child must neither use nor close them.
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


def _check_schedules(wants: Callable[[str], bool]) -> Iterator[Finding]:
    """Yield a Finding for each schedule in the database that the code of this process cannot run.

    Two kinds of schedules are not checked here. A schedule that this code declares was checked at
    its declaration. A schedule that only earlier code declared is retired by ``migrate``.
    """
    rows = Schedule.objects.using(settings.DATABASE).filter(retired__isnull=True)
    for row in rows.select_related("type").order_by("identifier"):
        is_declared = row.identifier in declared_schedules
        is_retired = row.declared is not None and not is_declared
        if is_retired or (is_declared and not row.is_set) or not wants(row.type.identifier):
            continue
        kind, why = _check_schedule(row)
        if why:
            yield Finding(kind=kind, type=row.type.identifier, schedule=row.identifier, why=why)


def _check_schedule(row: Schedule) -> tuple[Kind, str]:
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
        _, why = binding.adapt_arguments(
            task_type.signatures, task_type.adapters, inputs, task_type.sensitive
        )
    except (CorruptData, TypeError) as error:
        return Kind.UNREADABLE, str(error)
    return Kind.MISFIT, why


def _find_leftovers(wants: Callable[[str], bool]) -> Iterator[Finding]:
    """Yield a Finding for each Type that has shut gates or limits, but that no code declares."""
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
        why = f"its {' and '.join(words)} {are} still set"
        yield Finding(kind=Kind.LEFTOVER, type=identifier, why=why)
