"""The estimate of the time until the start. No database, no clock.

The number of Tasks ahead is divided by the start rate of the Type. There are two rates: that of
the last minutes, and that which the workers, the Type's share of them and its limits allow. The
slower one with the worst order of lanes gives ``high``, the faster one with the best order ``low``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from ...conf import settings
from .causes.table import OPEN
from .facts import MOST_COUNTED, Facts, Flow, Queued
from .values import Estimate, Reason

# The factors for low and high: the Tasks ahead may run faster, or slower, than those before.
QUICKER, SLOWER = 0.7, 1.6
# In seconds, for the claim, the hand-out and the record.
LEAST_HIGH = 2.0


def estimated(facts: Facts, reasons: Sequence[Reason]) -> Estimate | None:
    """Return the :class:`Estimate`; None if the subject does not wait."""
    if not facts.is_waiting:
        return None
    for reason in reasons:
        if reason.code == "gate" and reason.facts["mode"] == "drop":
            return None
        if reason.code in OPEN and reason.until is None:
            return Estimate(why=reason.code)
    if facts.queued is None or facts.flow is None:
        return Estimate(why="no-figures")
    floor = _floor(facts, reasons)
    low, likely, high = _turn(facts, facts.queued, facts.flow)
    if high is None:
        return Estimate(why="no-figures")
    found = Estimate(
        low=_delay(max(floor, low)),
        likely=_delay(max(floor, likely)),
        high=_delay(max(floor + LEAST_HIGH, high)),
    )
    # Beyond the bound of a count nobody knows how many more there are.
    if facts.queued.ahead >= MOST_COUNTED:
        return replace(found, likely=None, high=None, why="many")
    if facts.queued.beside >= MOST_COUNTED:
        return replace(found, high=None, why="many")
    return found


def _delay(seconds: float) -> timedelta:
    return timedelta(seconds=max(0.0, seconds))


def _floor(facts: Facts, reasons: Sequence[Reason]) -> float:
    """Return the seconds before which it cannot start: by its due time, by gates, by rates."""
    times = [reason.until for reason in reasons if reason.until is not None]
    if facts.task is not None and not facts.is_blocked:
        times.append(facts.task.due_at)
    return max([0.0, *((at - facts.now).total_seconds() for at in times)])


def _turn(facts: Facts, queued: Queued, flow: Flow) -> tuple[float, float, float | None]:
    """Return the seconds until its turn: low, likely and high. Without figures high is None."""
    others = min(queued.beside, queued.ahead + 1)
    counts = queued.ahead, queued.ahead + others, queued.ahead + queued.beside
    if not counts[2] and not facts.is_busy and not _is_full(facts):
        return 0.0, min(0.1, settings.POLL_EVERY), settings.POLL_EVERY + LEAST_HIGH
    most = _most(facts)
    found = flow.rate, _capacity(facts, queued, flow)
    rates = [min(rate, most) for rate in found if rate > 0]
    if not rates:
        return 0.0, 0.0, None
    free = _wait_for_worker(facts, flow)
    alone = _capacity(facts, queued, flow, share=1.0)
    quick, slow = min(most, max(*rates, alone)), min(rates)
    lane = _in_lane(facts, queued, flow)
    return (
        QUICKER * max(counts[0] / quick, lane),
        max((counts[1] + 0.5) / rates[0] + (0.0 if counts[1] else free / 2), lane),
        SLOWER * max((counts[2] + 1) / slow, lane) + free,
    )


def _capacity(facts: Facts, queued: Queued, flow: Flow, share: float | None = None) -> float:
    """Return how many attempts of its Type the workers can start a second, by its share."""
    if flow.run is None or not facts.places:
        return 0.0
    if share is None:
        share = queued.weight / (queued.weight + sum(queued.rivals.values()))
    running = [row.max_running for row in facts.limits if row.max_running is not None]
    workers = min([share * facts.places, *running])
    return workers / max(flow.run[0], 0.001)


def _most(facts: Facts) -> float:
    """Return the starts a second that the rates of its limits allow."""
    rates = [row.per_second for row in facts.limits if row.per_second]
    return min(rates, default=float("inf"))


def _wait_for_worker(facts: Facts, flow: Flow) -> float:
    """Return the seconds until a worker is free and limits have room, with 95% probability."""
    is_to_wait = facts.is_busy or _is_full(facts)
    return flow.run[1] if is_to_wait and flow.run is not None else 0.0


def _is_full(facts: Facts) -> bool:
    """Return whether something has to end before it may start, by a limit."""
    return any(full.kind != "rate" for full in facts.full)


def _in_lane(facts: Facts, queued: Queued, flow: Flow) -> float:
    """Return the seconds that those ahead take at least, so many at once as its lane may run."""
    if facts.lane is None or flow.run is None:
        return 0.0
    own = [row.max_running for row in facts.limits if row.collection is not None]
    each = [row.max_running_per_collection for row in facts.limits if row.collection is None]
    # The limit of a lane replaces that for each lane.
    found = [number for number in own if number is not None] or each
    most = min((number for number in found if number is not None), default=None)
    return 0.0 if most is None else queued.ahead * flow.run[0] / max(most, 1)
