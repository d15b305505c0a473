"""Plans in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...models import Instance
from .plan import Plan
from .selection import CANCEL, DELETE, REDRIVE

if TYPE_CHECKING:
    from datetime import timedelta

_WOULD = {
    REDRIVE: "FAILED would be tried again",
    CANCEL: "would be cancelled",
    DELETE: "FAILED would be removed for good",
}
# The maximum number of Types, groups or collections that are named.
NAMED = 5


def of(outcome: Plan | Instance) -> str:
    """Describe the outcome of a verb: a plan, or the Instance that carries it out."""
    if isinstance(outcome, Plan):
        return plan(outcome)
    return f"{outcome.type} {outcome.uuid} does it, and shows how far it is."


def plan(found: Plan) -> str:
    """Describe a plan in one or two lines."""
    most = "" if found.judged is None else "up to "
    would = f"{most}{found.count:,} {_WOULD[found.selection.verb]}"
    collections = {name: count for name, count in found.by_collection.items() if name}
    facts = [_named(found.by_type)]
    if found.selection.verb != CANCEL and found.by_error:
        facts.append(f"errors {_named({k or 'none': v for k, v in found.by_error.items()})}")
    if collections:
        facts.append(f"collections {_named(collections)}")
    if found.takes is not None:
        facts.append(f"it takes {_length(found.takes)}")
    lines = [f"{would}: {'; '.join(filter(None, facts))}" if found.count else would]
    of = "" if found.judged is None else f" of the first {found.judged:,}"
    if found.cannot:
        told = ", ".join(f"{count:,} {why}" for why, count in found.cannot.items())
        lines.append(f"{sum(found.cannot.values()):,}{of} cannot: {told}")
    elif of:
        lines.append(f"all{of} can; the others are judged one by one")
    return "\n".join(lines)


def _named(counts: Mapping[str, int]) -> str:
    told = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:NAMED])
    return f"{told}, … ({len(counts)} in all)" if len(counts) > NAMED else told


def _length(takes: timedelta) -> str:
    minutes, seconds = divmod(round(takes.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (seconds, "s")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"
