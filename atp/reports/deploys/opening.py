"""Open inputs of live Instances whose argument names alone do not tell whether they fit."""

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

# The key of an Instance, the kind of the finding (None for none), and the reason.
Judged = tuple[int, Kind | None, str]

# The number of inputs that are read at once.
CHUNK = 500
NOT_OPENED = "pickled: --deep opens them, in a process of its own"
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
        if found and (missing := _missing(key, found)):
            return Kind.RESULT, missing
        if found and (inputs := _with_results(key, inputs)) is None:
            return Kind.UNOPENED, NOT_YET
        _, still = adapting.fitted(task_type.signatures, task_type.adapters, inputs)
    except CorruptData as error:
        return Kind.UNREADABLE, str(error)
    return (Kind.MISFIT, still) if still else (Kind.ADAPTED, why)


def pickled(task_type: TaskType, keys: Sequence[int], *, deep: bool) -> Iterator[Judged]:
    """Yield findings about pickled inputs: may this process read them; with ``deep``, do they fit.

    Their cryptographic signature is checked in any case.
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
    """Yield findings about results of other nodes that JSON inputs contain.

    A node that has not ended yet may still provide its result, so it is no finding.
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
    """Return inputs with the results of other nodes inserted; None if one is not there yet."""
    nodes = results_of(key, {name for each in results_in(inputs) for name in each.names})
    if any(node.state not in TERMINAL for node in nodes.values()):
        return None
    return resolved(inputs, lambda name: nodes[name].value)


def _missing(key: int, found: Sequence[Any]) -> str:
    """Return the reason why a result will never exist; "" if all may still exist."""
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
