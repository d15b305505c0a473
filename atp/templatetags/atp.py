"""Template tags for the pages: times and durations in words, states, time lines and charts."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import template
from django.utils import timezone
from django.utils.html import format_html

from .. import placement, text
from ..models import Instance
from ..pages import charts
from ..reports import documents, timeline
from ..reports.explaining.facts import Reason
from ..reports.overview import Overview
from ..reports.statistics import Ends, Point
from ..schedules.models import Outcome, Slot

# The width of the time line and of its narrowest bar, in units of the drawing.
_WIDTH, _NARROWEST = 1000, 3
# The strip's greatest and smallest width, and the greatest width of one bar, in slots.
MOST_SLOTS, _FEWEST, _WIDEST = 200, 50, 20
# The heights of bars, so that outcomes do not differ by colour alone.
_HEIGHTS = {Outcome.ENQUEUED: 24, Outcome.SKIPPED: 15, Outcome.PAUSED: 7, Outcome.MISSED: 24}

register = template.Library()

register.filter("clock", text.moment)
register.filter("duration", text.duration)
register.filter("size", text.size)
register.filter("percent", text.percent)
register.filter("described", placement.described)
register.filter("headline", text.headline)
register.filter("without_own_frames", text.without_own_frames)


# Django imports this module as soon as a project uses any template. Most modules of the pages need
# the extra [web], so only the tags that use them import them.


@register.simple_tag
def content_policy() -> str:
    """Return the Content-Security-Policy for a ``<meta>`` element."""
    from ..pages.base import content_security_policy_in_page

    return content_security_policy_in_page()


@register.filter
def moment(time: datetime | None) -> str:
    """Show a time to the second, in the current time zone. Its tooltip has the milliseconds."""
    return _time_element(time, text.moment(time))


@register.filter
def precise(time: datetime | None) -> str:
    """Show a time to the millisecond, in the current time zone."""
    return _time_element(time, text.moment(time, precise=True))


@register.simple_tag
def age(time: datetime | None, now: datetime) -> str:
    """Show the duration since a past time, or until a future time."""
    return _time_element(time, text.age(time, now))


@register.simple_tag
def ago(time: datetime | None, now: datetime) -> str:
    """Show how long ago a past time was, such as "5 s ago"."""
    return _time_element(time, text.ago(time, now))


@register.simple_tag
def due(time: datetime | None, now: datetime) -> str:
    """Show when something is due, such as "in 5 s" or "due for 5 s"."""
    return _time_element(time, text.due(time, now))


def _time_element(time: datetime | None, words: str) -> str:
    if time is None:
        return ""
    local = timezone.localtime(time)
    title = f"{text.moment(time, precise=True)} {local:%Z}"
    return format_html('<time datetime="{}" title="{}">{}</time>', local.isoformat(), title, words)


@register.filter
def zone(time: datetime) -> str:
    """Return the name that the current time zone has at a given time, such as CET or CEST."""
    return f"{timezone.localtime(time):%Z}"


@register.filter
def seconds(value: timedelta | None) -> str:
    """Return a duration in words, or "no limit" for None."""
    return text.duration(value) or "no limit"


@register.filter
def number(value: int) -> str:
    """Return a whole number with a comma between thousands, such as 25,000."""
    return text.number(value)


@register.filter
def brief_seconds(value: float | None) -> str:
    """Return a number of seconds as a duration in words, or "" for None."""
    return "" if value is None else text.duration(timedelta(seconds=value))


@register.filter
def level(number: int) -> str:
    """Return the name of a logging level, such as WARNING."""
    return logging.getLevelName(number)


@register.filter
def short(uuid: UUID | str) -> str:
    """Return the first eight and the last four digits of a uuid.

    The first eight alone are not enough, because uuids from the same minute begin alike.
    """
    return f"{str(uuid)[:8]}…{str(uuid)[-4:]}"


@register.filter
def brief(value: str, limit: int) -> str:
    """Return a text, cut to ``limit`` characters."""
    return text.shorten(value, limit)


@register.filter
def rate(value: float) -> str:
    """Return a number of events per minute, with a decimal if it is below ten."""
    return f"{value:.1f}".removesuffix(".0") if value < 10 else f"{value:,.0f}"


@register.simple_tag
def total(queue: Overview, name: str) -> str:
    """Return the count ``name`` in an Overview, summed over all Types."""
    return text.number(queue.total(name))


@register.filter
def has(queue: Overview, name: str) -> bool:
    """Return True if a flag, such as ``failed_more``, is set for any Type in an Overview."""
    return queue.has(name)


@register.inclusion_tag("atp/parts/state.html")
def state(of: Any, reason: str = "") -> dict[str, Any]:
    """Show a state as a coloured word. ``of`` is an Instance, or the state itself."""
    if hasattr(of, "state"):
        return {"state": of.state, "reason": of.reason}
    return {"state": of, "reason": reason}


# The kind of page on which the cause of a delay can be resolved, by the cause's code; and the fact
# that names the subject.
_REMEDIES = {
    "gate": ("gate", "type"),
    "max-running": ("limit", "type"),
    "max-running-per-collection": ("limit", "type"),
    "rate": ("limit", "type"),
    "downstream": ("downstream", "downstream"),
    "schedule-paused": ("schedule", "schedule"),
}


@register.filter
def remedy(reason: Reason) -> str:
    """Return the address of the page on which the cause of a delay can be resolved, or ""."""
    from ..pages.activity import address_of

    if reason.code not in _REMEDIES:
        return ""
    kind, fact = _REMEDIES[reason.code]
    return address_of(kind, reason.facts[fact] or "", reason.facts.get("collection"))


@register.simple_tag
def took(instance: Instance, now: datetime) -> str:
    """Return how long the last attempt took, or has taken until ``now`` if it still runs."""
    return text.duration(timeline.attempt_duration(documents.instance(instance), now))


@register.inclusion_tag("atp/parts/timeline.html")
def drawn(line: timeline.Timeline, now: datetime) -> dict[str, Any]:
    """Draw each span of a time line as a coloured bar. Its width shows the span's duration.

    Below are the times of both ends, and how long the Instance was in each state.
    """
    spans = [(span, (span.end or now) - span.begin) for span in line.spans]
    if not spans:
        return {"bars": []}
    begin = spans[0][0].begin
    whole = max(((spans[-1][0].end or now) - begin).total_seconds(), 0.001)
    bars = [
        {
            "x": round((span.begin - begin).total_seconds() / whole * _WIDTH, 1),
            "width": max(round(length.total_seconds() / whole * _WIDTH, 1), _NARROWEST),
            "state": span.state,
            "took": text.duration(length),
        }
        for span, length in spans
    ]
    states: dict[str, timedelta] = {}
    for span, length in spans:
        states[span.state] = states.get(span.state, timedelta()) + length
    return {
        "bars": bars,
        "width": _WIDTH + _NARROWEST,
        "whole": timedelta(seconds=whole),
        "begin": begin,
        "end": spans[-1][0].end or now,
        "states": list(states.items()),
    }


@register.inclusion_tag("atp/parts/strip.html")
def strip(slots: Iterable[Slot]) -> dict[str, Any]:
    """Draw a schedule's slots as coloured bars, the oldest first.

    ``slots`` are rows, the newest first. A row that stands for several slots becomes a wider bar.
    Only the newest MOST_SLOTS slots are drawn.
    """
    bars: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    left = MOST_SLOTS
    for slot in slots:
        width = min(slot.count, _WIDEST, left)
        left -= width
        bars.append({"slot": slot, "width": width, "height": _HEIGHTS[Outcome(slot.outcome)]})
        counts[slot.outcome] += slot.count
        if not left:
            break
    whole = max(MOST_SLOTS - left, _FEWEST)
    x = whole
    for bar in bars:
        x -= bar["width"]
        bar |= {"x": x, "y": 24 - bar["height"], "width": bar["width"] - 0.15}
    return {"bars": bars[::-1], "whole": whole, "counts": counts.most_common()}


@register.inclusion_tag("atp/parts/chart.html")
def chart(drawing: charts.Chart) -> dict[str, Any]:
    """Show a chart, with its numbers in a folded table."""
    return {"chart": drawing, "units": charts.UNITS}


@register.inclusion_tag("atp/parts/sparkline.html")
def sparkline(points: Sequence[Point | Ends]) -> dict[str, Any]:
    """Show the failed and the finished Instances of each point as a tiny picture."""
    return {"line": charts.draw_sparkline(points), "height": charts.SPARKLINE_HEIGHT}
