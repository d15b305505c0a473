"""Limits: a form of those of a Type, or of one of its lanes."""

from django import forms

from .. import queue, told, wording
from ..rates import HOLD, default_burst
from ..web.actor import PAGE, actor
from .places import PlacePage

_LIMITS = ("max_running", "rate", "burst", "weight")


class LimitForm(forms.Form):
    """What is as it was when the form was shown is not given: another may have set it."""

    max_running = forms.IntegerField(
        required=False,
        show_hidden_initial=True,
        min_value=1,
        error_messages={"min_value": f"A whole number from 1. {HOLD}"},
        label="At a time",
        help_text="over all daemons; empty: no limit",
    )
    rate = forms.CharField(
        required=False,
        show_hidden_initial=True,
        help_text="started in a time, as 50/s, 100/min or 5/10s; empty: no limit",
    )
    burst = forms.IntegerField(
        required=False,
        show_hidden_initial=True,
        min_value=1,
        help_text="of the rate at once, after a pause; empty: what comes in a tenth of a second",
    )
    weight = forms.FloatField(
        required=False,
        show_hidden_initial=True,
        help_text="share of the Type beside others: 1, if it is empty",
    )
    default = forms.BooleanField(required=False, label="Leave it to the code")

    def clean(self):
        given = super().clean()
        if given.get("default") and set(self.changed_data) & set(_LIMITS):
            self.add_error("default", "It takes no limits beside it.")
        return given

    def limits(self):
        """Return what was given, as ``queue.limit`` takes it."""
        given = {name: self.cleaned_data[name] for name in self.changed_data if name in _LIMITS}
        if "rate" in given:
            given["rate"] = given["rate"] or None
            if given["rate"]:
                given.setdefault("burst", self.cleaned_data["burst"])
        return given


class LimitPage(PlacePage):
    """The limits of a Type or of a lane of it."""

    title = "Limits"
    fields = (
        *LimitForm.base_fields,
        *(f"initial-{name}" for name in _LIMITS),
        *("of", "collection"),
    )

    def form_of(self, place, data=None):
        form = LimitForm(data) if data is not None else LimitForm(initial=_initial(_limit(place)))
        if place[1] is not None and not form.data.get("weight"):
            del form.fields["weight"]  # a lane has none
        return form

    def state(self, place):
        limit = _limit(place)
        if limit is None:
            return "nothing is limited"
        by = (limit.who or "nobody named") if limit.is_set else "the code"
        return f"{told.of_limits(limit)}, set by {by}, since {wording.moment(limit.since)}"

    def perform(self, form, place):
        by = actor(self.request, PAGE)
        if form.cleaned_data["default"]:
            return told.of_unlimit(queue.unlimit(*place, by=by))
        given = form.limits()
        if not given:
            return "Nothing was different."
        limit = queue.limit(*place, **given, by=by)
        return f"The limits are set: {told.of_limits(limit)}."


def _limit(place):
    type, collection = place
    return next((row for row in queue.limits(type) if row.collection == collection), None)


def _initial(limit):
    if limit is None:
        return {}
    has_burst = limit.rate and limit.burst != default_burst(limit.rate)
    return {
        "max_running": limit.max_running,
        "rate": limit.rate,
        "burst": limit.burst if has_burst else None,
        "weight": wording.plain_number(limit.weight),
    }
