"""Notes for operators: due Tasks that wait because of a gate or a limit, and who has set it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q

from ...conf import settings
from ...models import Gate, Limit, Task
from ...rows.querysets import TaskQuerySet
from ...verbs.control.gates import gates
from ...verbs.control.limits import limits
from ...words import sentences
from . import sentences as words
from .limited import full_of, rows

# The maximum number of Tasks that are counted, and of gates and limits that are shown.
MOST, SHOWN = 1000, 20
NOTHING = "nothing of that is due"


def notes(now: datetime, shut: Sequence[Gate] | None = None) -> tuple[str, ...]:
    """Return sentences about the due Tasks that wait because of gates and limits.

    ``shut`` are the gates that are shut, if the caller knows them. The time is the same for a
    million waiting Tasks as for some thousand.
    """
    shut = gates(now=now) if shut is None else shut
    told = [f"{words.shut(gate)}: {_due(gate, now)}." for gate in shut[:SHOWN]]
    if len(shut) > SHOWN:
        told.append(f"{len(shut) - SHOWN} more gates are shut.")
    return (*told, *limited(now, shut))


def limited(now: datetime, shut: Sequence[Gate]) -> tuple[str, ...]:
    """Return sentences about due Tasks that wait because of a limit alone; see :func:`notes`."""
    told = []
    binding = [row for row in limits() if _is_limiting(row) and not _is_shut(row, shut)]
    shown = [row.pk for row in binding[:SHOWN]]
    for limit in rows(Q(pk__in=shown)) if shown else ():
        full = full_of(limit, now)
        if full is not None and (due := _due(limit, now)) != NOTHING:
            told.append(f"{words.full(full)}: {due}.")
    if len(binding) > SHOWN:
        told.append(f"There are {len(binding) - SHOWN} more limits, which are not looked at here.")
    return tuple(told)


def controls() -> dict[str, list[str]]:
    """Return the gates and limits that are set, in a few words each, by the identifier of the Type.

    Shut gates come first, and those of a whole Type before those of its lanes. A gate over
    everything is left out.
    """
    told = defaultdict(list)
    for gate in sorted(gates(), key=_whole_first):
        if gate.type is not None:
            told[gate.type.identifier].append(_of_lane(gate, sentences.MODES[gate.mode]))
    for limit in sorted(limits(), key=_whole_first):
        told[limit.type.identifier].append(_of_lane(limit, sentences.of_limits(limit)))
    return told


def _whole_first(row: Any) -> str:
    return row.subject if row.collection is not None else ""


def _of_lane(row: Any, words: str) -> str:
    return words if row.collection is None else f"{row.collection!r} {words}"


def _is_shut(limit: Limit, shut: Sequence[Gate]) -> bool:
    """Whether a shut gate covers the whole scope of a Limit."""
    return any(
        gate.type_id in (None, limit.type_id) and gate.collection in (None, limit.collection)
        for gate in shut
    )


def _is_limiting(limit: Limit) -> bool:
    given = limit.max_running, limit.per_second, limit.max_running_per_collection
    return any(value is not None for value in given)


def _due(row: Any, now: datetime) -> str:
    count = _of(row).due(now).order_by()[: MOST + 1].count()
    if not count:
        return NOTHING
    number = f"more than {MOST}" if count > MOST else count
    return f"{number} that {'waits' if count == 1 else 'wait'} there {_are(count)} due"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _of(row: Any) -> TaskQuerySet[Task]:
    """Return the Tasks in the scope of a Gate or a Limit."""
    tasks = Task.objects.using(settings.DATABASE)
    if row.type_id is None:
        return tasks
    tasks = tasks.filter(type=row.type_id)
    return tasks if row.collection is None else tasks.filter(collection=row.collection)
