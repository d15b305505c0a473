"""Template tags of the pages: times and durations in words, states, the time line."""

import logging
from datetime import timedelta

from django import template
from django.utils import timezone
from django.utils.html import format_html

from .. import documents, wording

register = template.Library()


@register.filter
def moment(time):
    """A time in the current time zone, to the second; the title has it to the millisecond."""
    return _moment(time, wording.moment(time))


@register.filter
def precise(time):
    """A time in the current time zone, to the millisecond."""
    return _moment(time, wording.moment(time, precise=True))


@register.simple_tag
def age(time, now):
    """How long ago a time was, or in how long it will be."""
    return _moment(time, wording.age(time, now))


def _moment(time, text):
    if time is None:
        return ""
    local = timezone.localtime(time)
    title = f"{wording.moment(time, precise=True)} {local:%Z}"
    return format_html('<time datetime="{}" title="{}">{}</time>', local.isoformat(), title, text)


register.filter("duration", wording.duration)
register.filter("size", wording.size)
register.filter("percent", wording.percent)


@register.filter
def zone(time):
    """The name of the current time zone at a time."""
    return f"{timezone.localtime(time):%Z}"


@register.filter
def seconds(value):
    """A duration that may be None, which is called "none"."""
    return wording.duration(value) or "none"


@register.filter
def level(number):
    """The name of a level of logging."""
    return logging.getLevelName(number)


@register.filter
def short(uuid):
    """The end of a uuid, by which those of the same minute differ."""
    return f"…{str(uuid)[-12:]}"


@register.filter
def brief(text, limit):
    """Text cut to so many characters."""
    return wording.shorten(text, limit)


@register.simple_tag
def total(queue, name):
    """One count of an Overview over all Types."""
    return queue.total(name)


@register.inclusion_tag("atp/parts/state.html")
def state(of, reason=""):
    """The state as a coloured word; ``of`` is an Instance or a word."""
    if hasattr(of, "state"):
        return {"state": of.state, "reason": of.reason}
    return {"state": of, "reason": reason}


@register.simple_tag
def took(instance, now):
    """How long the last attempt took, or has taken so far."""
    return wording.duration(documents.took(documents.instance(instance), now))


# Width of the drawn time line, in its own units; narrower spans could not be seen.
_WIDTH, _NARROWEST = 1000, 3


@register.inclusion_tag("atp/parts/timeline.html")
def drawn(timeline, now):
    """The spans as coloured bars, their length in proportion to how long they took."""
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
