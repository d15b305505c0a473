"""Open inputs of live Instances whose argument names alone do not tell whether they fit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...conf import settings
from ...contracts.checking import check
from ...exceptions import CorruptData, NoResult
from ...graphs.results import Result, resolved, results_in
from ...models import Inputs, Node
from ...payload import adapting, codec
from ...payload.signed_pickle import check_signature
from ...rows.graph import result_of
from ...states import TERMINAL, State
from ...verbs.graphs import nodes_beside
from . import pickles
from .findings import Kind

if TYPE_CHECKING:
    from ...authoring.task_type import TaskType

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


def adapted(task_type: TaskType, keys: Sequence[int], why: str) -> Iterator[Judged]:
    """Yield for JSON inputs that do not fit (``why``) whether the Type's adapters help."""
    for rows in _rows(keys):
        for key, text in rows:
            yield key, *_adapted(task_type, key, text, why)


def _adapted(task_type: TaskType, key: int, text: str, why: str) -> tuple[Kind, str]:
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
        _, still = adapting.fitted(
            task_type.signatures, task_type.adapters, inputs, task_type.sensitive
        )
    except CorruptData as error:
        return Kind.UNREADABLE, str(error)
    return (Kind.MISFIT, still) if still else (Kind.ADAPTED, why)


def against_contract(task_type: TaskType, keys: Sequence[int]) -> Iterator[Judged]:
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


def pickled(task_type: TaskType, keys: Sequence[int], *, deep: bool) -> Iterator[Judged]:
    """Yield findings about pickled inputs: may this process read them; with ``deep``, do they fit.

    Their cryptographic signature is checked in any case.
    """

    def judge(text: str) -> tuple[str, bool]:
        try:
            inputs = codec.decode(codec.Payload(codec.PICKLE, text))
            _, before = adapting.fitted(task_type.signatures, (), inputs)
            _, after = adapting.fitted(
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
        for key, why, is_adapted in pickles.opened(signed, judge):
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

        [(_, why, _)] = pickles.opened([(0, "")], judge)
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
