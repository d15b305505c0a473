"""Causes that operators and code have set: gates, limits and downstreams."""

from __future__ import annotations

from collections.abc import Iterator

from ....verbs.table import DOWNSTREAM, SCHEDULE
from .. import helps, sentences
from ..facts import Facts
from ..values import Reason

_CODES = {"running": "max-running", "lane": "max-running-per-collection", "rate": "rate"}
# The option of the verb "limit" that removes a limit of this kind.
_OPTIONS = {"running": "max_running", "lane": "max_running_per_collection", "rate": "rate"}


def gate(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason for each shut gate: over everything, of the Type, or of the lane."""
    if not facts.is_waiting:
        return
    for row in sorted(facts.gates, key=_level):
        yield Reason(
            code="gate",
            sentence=f"{sentences.shut(row)}.",
            facts={
                "type": None if row.type is None else row.type.identifier,
                "collection": row.collection,
                "mode": row.mode,
                "who": row.who,
                "reason": row.reason,
            },
            since=row.since,
            until=row.until,
            helps=helps.scope("open", row),
        )


def limit(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason for each full limit: the maximum is running, or the rate is used up."""
    if not facts.is_waiting:
        return
    for full in sorted(facts.full, key=lambda full: list(_CODES).index(full.kind)):
        row = full.limit
        yield Reason(
            code=_CODES[full.kind],
            sentence=f"{sentences.full(full, facts.lane)}.",
            facts={
                "type": row.type.identifier,
                "collection": row.collection,
                "limit": row.rate if full.kind == "rate" else getattr(row, _OPTIONS[full.kind]),
                "held": full.held,
                "is_set": row.is_set,
                "who": row.who,
            },
            until=full.at,
            helps=helps.scope("limit", row, **{_OPTIONS[full.kind]: "none"}),
        )


def downstream(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the service that the Type calls fails, or accepts no more calls."""
    row = facts.downstream
    if row is None or not facts.is_waiting:
        return
    yield Reason(
        code="downstream",
        sentence=sentences.downstream(row, facts.now),
        facts={"downstream": row.name, "state": row.state, "per_second": row.per_second},
        since=row.since,
        until=row.not_before,
        helps=helps.verb(DOWNSTREAM, "reset", row.name),
    )


def schedule(facts: Facts) -> Iterator[Reason]:
    """Yield a Reason if the schedule that enqueues the Type, as that of a tailer, is paused."""
    row = facts.schedule
    if row is None:
        return
    by = f" by {row.paused_by}" if row.paused_by else ""
    why = f": {row.paused_reason}" if row.paused_reason else ""
    yield Reason(
        code="schedule-paused",
        sentence=f"Its schedule {row.identifier!r} is paused{by}{why}".rstrip(".") + ".",
        facts={"schedule": row.identifier, "who": row.paused_by, "reason": row.paused_reason},
        since=row.paused_since,
        until=row.paused_until,
        helps=helps.verb(SCHEDULE, "resume", row.identifier),
    )


def _level(row: object) -> int:
    """Return 0 for the gate over everything, 1 for the gate of a Type, 2 for that of a lane."""
    return sum(getattr(row, name) is not None for name in ("type", "collection"))
