"""The hooks of Instances and of Types: what was enqueued with an end, and what would be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..conf import settings
from ..models import Instance, LogRecord
from ..payload import hooks
from ..rows.log import Kind

# So many hooks of an Instance are told at most, the latest.
SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class WrittenHook:
    """A hook that the end of an Instance has enqueued; ``state`` is that of the end.

    ``instance`` is the hook itself; None if it has been removed since.
    """

    uuid: str
    state: str
    instance: Instance | None


def written(instance: Instance) -> list[WrittenHook]:
    """Return the hooks that the ends of an Instance have enqueued, oldest first."""
    if not (instance.is_terminal or instance.is_hooked):
        return []  # as most that somebody polls: without a look at the log
    records = LogRecord.objects.using(settings.DATABASE).filter(instance=instance, kind=Kind.HOOK)
    found = records.exclude(detail="").order_by("-pk").values_list("detail", "state")[:SHOWN]
    latest = list(found)[::-1]
    rows = Instance.objects.using(settings.DATABASE).select_related("type")
    there = {str(row.uuid): row for row in rows.filter(uuid__in=[uuid for uuid, _ in latest])}
    return [WrittenHook(uuid=uuid, state=state, instance=there.get(uuid)) for uuid, state in latest]


def words(entries: list[dict[str, Any]] | None) -> dict[str, list[str]]:
    """Return the hooks that a Type declares, in words, by the name of the parameter."""
    found: dict[str, list[str]] = {on: [] for on in hooks.STATES}
    for hook in hooks.read(entries):
        found.setdefault(hook.on, []).append(
            f"{hook.type} with {hook.inputs}" if hook.inputs else hook.type
        )
    return found
