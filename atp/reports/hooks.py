"""The hooks of Instances and Types: those that an end has enqueued, and those that are declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..conf import settings
from ..models import Instance, LogRecord
from ..payload import hooks
from ..rows.log import Kind

# The maximum number of hooks of an Instance that are returned: the latest.
SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class WrittenHook:
    """A hook that an end of an Instance has enqueued; ``state`` is the state of that end.

    ``instance`` is the Instance of the hook; None if it has been removed since.
    """

    uuid: str
    state: str
    instance: Instance | None


def written(instance: Instance) -> list[WrittenHook]:
    """Return the hooks that the ends of an Instance have enqueued, oldest first."""
    if not (instance.is_terminal or instance.is_hooked):
        return []  # the usual case when somebody polls: no query of the log
    records = LogRecord.objects.using(settings.DATABASE).filter(instance=instance, kind=Kind.HOOK)
    found = records.exclude(detail="").order_by("-pk").values_list("detail", "state")[:SHOWN]
    latest = list(found)[::-1]
    rows = Instance.objects.using(settings.DATABASE).select_related("type")
    there = {str(row.uuid): row for row in rows.filter(uuid__in=[uuid for uuid, _ in latest])}
    return [WrittenHook(uuid=uuid, state=state, instance=there.get(uuid)) for uuid, state in latest]


def words(entries: list[dict[str, Any]] | None) -> dict[str, list[str]]:
    """Return the declared hooks of a Type in words, by the name of the parameter."""
    found: dict[str, list[str]] = {on: [] for on in hooks.STATES}
    for hook in hooks.read(entries):
        found.setdefault(hook.on, []).append(
            f"{hook.type} with {hook.inputs}" if hook.inputs else hook.type
        )
    return found
