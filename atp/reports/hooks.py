"""The hooks of Instances and Types: those that an end has enqueued, and those that are declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..conf import settings
from ..models import Instance, LogRecord, Type
from ..payload import hooks, sensitive
from ..rows.log import Kind
from ..verbs.types import sensitive_names

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
            f"{hook.type} with {_shown(hook)}" if hook.inputs else hook.type
        )
    return found


def entries_shown(entries: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Return stored hooks with masks for what is sensitive in their inputs."""
    return [
        entry | ({"inputs": _shown(hook)} if hook.inputs else {})
        for entry, hook in zip(entries or (), hooks.read(entries), strict=True)
    ]


def _shown(hook: hooks.Hook) -> str:
    """Return the inputs of a hook, with masks for what is sensitive."""
    row = Type.objects.using(settings.DATABASE).filter(identifier=hook.type).first()
    names = sensitive_names(row or Type(identifier=hook.type))
    return sensitive.masked_json(hook.inputs, names)
