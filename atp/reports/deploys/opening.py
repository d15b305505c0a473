"""Inputs of live Instances that have to be opened: names alone do not tell whether they fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...conf import settings
from ...exceptions import CorruptData
from ...graphs.results import NoResult, resolved, results_in
from ...models import Inputs
from ...payload import adapting, codec
from ...payload.signed_pickle import check_signature
from ...states import TERMINAL
from ...verbs.graphs import results_of
from . import pickles
from .findings import Kind

if TYPE_CHECKING:
    from ...authoring.task_type import TaskType

# Of an Instance by key: what was found, if anything, and why.
Judged = tuple[int, Kind | None, str]

# So many are read at once.
CHUNK = 500
NOT_OPENED = "pickled: --deep opens them, in a process of its own"
NOT_YET = "they have results of other nodes that are not there yet: no adapter was tried"


def _rows(keys: Sequence[int]) -> Iterator[list[tuple[int, str]]]:
    """Yield pairs of key and stored text, in chunks."""
    for start in range(0, len(keys), CHUNK):
        rows = Inputs.objects.using(settings.DATABASE).filter(pk__in=keys[start : start + CHUNK])
        yield list(rows.order_by("pk").values_list("pk", "data"))


def adapted(task_type: TaskType, keys: Sequence[int], why: str) -> Iterator[Judged]:
    """Yield whether the adapters of a Type make inputs in JSON fit, which do not: ``why``."""
    for rows in _rows(keys):
        for key, text in rows:
            yield key, *_adapted(task_type, key, text, why)


def _adapted(task_type: TaskType, key: int, text: str, why: str) -> tuple[Kind, str]:
    try:
        inputs = codec.decode(codec.Payload(codec.JSON, text))
        found = results_in(inputs)
        if found and (missing := _missing(key, found)):
            return Kind.RESULT, missing
        if found and (inputs := _with_results(key, inputs)) is None:
            return Kind.UNOPENED, NOT_YET
        _, still = adapting.fitted(task_type.signatures, task_type.adapters, inputs)
    except CorruptData as error:
        return Kind.UNREADABLE, str(error)
    return (Kind.MISFIT, still) if still else (Kind.ADAPTED, why)


def pickled(task_type: TaskType, keys: Sequence[int], *, deep: bool) -> Iterator[Judged]:
    """Yield what is found of pickled inputs: may they be read here, and with ``deep``: do they fit.

    Their signatures are checked in any case.
    """

    def judge(text: str) -> tuple[str, bool]:
        try:
            inputs = codec.decode(codec.Payload(codec.PICKLE, text))
            _, before = adapting.fitted(task_type.signatures, (), inputs)
            _, after = adapting.fitted(task_type.signatures, task_type.adapters, inputs)
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


def results(keys: Sequence[int]) -> Iterator[Judged]:
    """Yield what is found of the results of other nodes that stand in inputs in JSON.

    Only what has ended is known: a node that has not may still have the result.
    """
    for rows in _rows(keys):
        for key, text in rows:
            try:
                found = results_in(codec.decode(codec.Payload(codec.JSON, text)))
            except CorruptData as error:
                yield key, Kind.UNREADABLE, str(error)
                continue
            why = _missing(key, found)
            yield key, (Kind.RESULT if why else None), why


def _with_results(key: int, inputs: Any) -> Any:
    """Return inputs with the results of other nodes in them; None if not all are there."""
    nodes = results_of(key, {name for each in results_in(inputs) for name in each.names})
    if any(node.state not in TERMINAL for node in nodes.values()):
        return None
    return resolved(inputs, lambda name: nodes[name].value)


def _missing(key: int, found: Sequence[Any]) -> str:
    """Return why a result is not there and will never be; empty if all may be."""
    nodes = results_of(key, {name for each in found for name in each.names})
    for result in found:
        if absent := [name for name in result.names if name not in nodes]:
            return f"There is no node {absent[0]!r} in its graph."
        if all(nodes[name].state in TERMINAL for name in result.names):
            try:
                result.value(lambda name: nodes[name].value)
            except NoResult as error:
                return str(error)
            except Exception as error:  # a stored response that cannot be read
                return f"{type(error).__name__}: {error}"
    return ""
