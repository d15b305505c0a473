"""Settings in the database that this code does not fit: schedules, gates and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...conf import settings
from ...exceptions import CorruptData
from ...models import Limit, Schedule
from ...payload import adapting, codec
from ...payload.signed_pickle import check_signature
from ...verbs.control.gates import gates
from ...verbs.registry import registry
from ...verbs.schedule_specs import declared
from .findings import Finding, Kind

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
        _, why = adapting.fitted(
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
