"""Template tags of the pages: times and durations in words, states, the time line."""

import logging
from collections import Counter
from datetime import timedelta

from django import template
from django.utils import timezone
from django.utils.html import format_html

from .. import text as wording
from ..pages.base import policy_in_page
from ..reports import documents
from ..reports import timeline as history
from ..schedules.models import Outcome

register = template.Library()


register.simple_tag(policy_in_page, name="content_policy")


@register.filter
def moment(time):
    """Return a time in the current time zone to the second, with the millisecond in its title."""
    return _moment(time, wording.moment(time))


@register.filter
def precise(time):
    """Return a time in the current time zone, to the millisecond."""
    return _moment(time, wording.moment(time, precise=True))


@register.simple_tag
def age(time, now):
    """Return the duration since a past time, or until a future one."""
    return _moment(time, wording.age(time, now))


@register.simple_tag
def ago(time, now):
    """Return how long ago a past time was, as "5 s ago"."""
    return _moment(time, wording.ago(time, now))


@register.simple_tag
def due(time, now):
    """Return when something comes: "in 5 s", or "due for 5 s"."""
    return _moment(time, wording.due(time, now))


def _moment(time, text):
    if time is None:
        return ""
    local = timezone.localtime(time)
    title = f"{wording.moment(time, precise=True)} {local:%Z}"
    return format_html('<time datetime="{}" title="{}">{}</time>', local.isoformat(), title, text)


register.filter("clock", wording.moment)
register.filter("duration", wording.duration)
register.filter("size", wording.size)
register.filter("percent", wording.percent)
register.filter("headline", wording.headline)
register.filter("without_own_frames", wording.without_own_frames)


@register.filter
def zone(time):
    """Return the name of the current time zone at a time, as CET or CEST."""
    return f"{timezone.localtime(time):%Z}"


@register.filter
def seconds(value):
    """Return a duration in words, "no limit" for None."""
    return wording.duration(value) or "no limit"


@register.filter
def level(number):
    """Return the name of a logging level."""
    return logging.getLevelName(number)


@register.filter
def short(uuid):
    """Return both ends of a uuid: uuids that were made in the same minute begin alike."""
    return f"{str(uuid)[:8]}…{str(uuid)[-4:]}"


@register.filter
def brief(text, limit):
    """Return a text cut to ``limit`` characters."""
    return wording.shorten(text, limit)


@register.simple_tag
def total(queue, name):
    """Return a count of an Overview, summed over all Types."""
    return queue.total(name)


@register.filter
def has(queue, name):
    """Return whether a Type of an Overview has a mark, such as ``failed_more``."""
    return queue.has(name)


@register.inclusion_tag("atp/parts/state.html")
def state(of, reason=""):
    """Show a state as a coloured word; ``of`` is an Instance or the state itself."""
    if hasattr(of, "state"):
        return {"state": of.state, "reason": of.reason}
    return {"state": of, "reason": reason}


@register.simple_tag
def took(instance, now):
    """Return the duration of the last attempt: up to ``now`` if it still runs."""
    return wording.duration(history.took(documents.instance(instance), now))


# The width of the time line and of its narrowest bar, in units of the drawing.
_WIDTH, _NARROWEST = 1000, 3


@register.inclusion_tag("atp/parts/timeline.html")
def drawn(timeline, now):
    """Draw the spans of a time line as coloured bars, as wide as the spans are long."""
    spans = [(span, (span.end or now) - span.begin) for span in timeline.spans]
    if not spans:
        return {"bars": []}
    begin = spans[0][0].begin
    whole = max(((spans[-1][0].end or now) - begin).total_seconds(), 0.001)
    bars = [
        {
            "x": round((span.begin - begin).total_seconds() / whole * _WIDTH, 1),
            "width": max(round(took.total_seconds() / whole * _WIDTH, 1), _NARROWEST),
            "state": span.state,
            "took": wording.duration(took),
        }
        for span, took in spans
    ]
    return {"bars": bars, "width": _WIDTH + _NARROWEST, "whole": timedelta(seconds=whole)}


# The widths of the strip, in slots: at most and at least; and the most of a single bar.
MOST_SLOTS, _FEWEST, _WIDEST = 200, 50, 20
# The heights of bars, so that outcomes do not differ by colour alone.
_HEIGHTS = {Outcome.ENQUEUED: 24, Outcome.SKIPPED: 15, Outcome.PAUSED: 7, Outcome.MISSED: 24}


@register.inclusion_tag("atp/parts/strip.html")
def strip(slots):
    """Draw slots as coloured bars, the oldest first. ``slots`` are records, the newest first.

    A record that stands for several slots becomes a wider bar. Only the newest MOST_SLOTS slots
    are drawn.
    """
    bars, left, counts = [], MOST_SLOTS, Counter()
    for slot in slots:
        width = min(slot.count, _WIDEST, left)
        left -= width
        bars.append({"slot": slot, "width": width, "height": _HEIGHTS[slot.outcome]})
        counts[slot.outcome] += slot.count
        if not left:
            break
    whole = max(MOST_SLOTS - left, _FEWEST)
    x = whole
    for bar in bars:
        x -= bar["width"]
        bar |= {"x": x, "y": 24 - bar["height"], "width": bar["width"] - 0.15}
    return {"bars": bars[::-1], "whole": whole, "counts": counts.most_common()}
