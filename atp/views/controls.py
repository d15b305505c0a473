"""Gates and limits: a form for each, of a Type with its lanes, or of everything."""

from django import forms
from django.contrib import messages
from django.shortcuts import redirect
from django.urls import reverse

from .. import queue, wording
from ..exceptions import ATPError
from ..options import MAX_IDENTIFIER
from ..web import permissions
from ..web.actor import PAGE, actor
from ..web.problems import problem_of
from .base import Page
from .fields import MomentField

_GATES = {"hold": queue.hold, "drop": queue.drop, "open": queue.open_gate}
_DONE = {
    "hold": "Nothing more is started there.",
    "drop": "What waits there fails.",
    "open": "The gate is open.",
}


class _LaneForm(forms.Form):
    """A Type, or one of its lanes."""

    of = forms.ChoiceField(
        label="Of",
        choices=[("type", "the whole Type"), ("lane", "one collection of it")],
        initial="type",
    )
    collection = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_IDENTIFIER,
        help_text="which, if it is one; empty is that of Instances without any",
    )

    def place(self, identifier):
        if identifier is None:
            return {}
        is_lane = self.cleaned_data["of"] == "lane"
        return {
            "type": identifier,
            "collection": self.cleaned_data["collection"] if is_lane else None,
        }


class GateForm(_LaneForm):
    mode = forms.ChoiceField(
        label="What waits",
        choices=[("hold", "is held"), ("drop", "is dropped: it FAILs"), ("open", "is let go")],
    )
    reason = forms.CharField(required=False, max_length=MAX_IDENTIFIER)
    until = MomentField(
        required=False, help_text="opens by itself: 2030-01-31T18:00, or after a delay as 1h30m"
    )


class WholeGateForm(GateForm):
    of = collection = None


class LimitForm(_LaneForm):
    max_running = forms.IntegerField(
        required=False,
        min_value=1,
        label="At a time",
        help_text="over all daemons; empty: no limit",
    )
    rate = forms.CharField(
        required=False, help_text="started in a time, as 50/s, 100/m or 5/10s; empty: no limit"
    )
    burst = forms.IntegerField(
        required=False, min_value=1, help_text="of the rate at once, after a pause"
    )
    weight = forms.FloatField(
        required=False, help_text="share of the Type beside others: 1, if it is empty"
    )
    default = forms.BooleanField(required=False, label="Leave it to the code")


class _ControlPage(Page):
    permissions = (permissions.VIEW_TYPE, permissions.OPERATE)
    template_name = "atp/control.html"
    title = ""

    def form_of(self, identifier, data=None):
        """Return the form, empty or with what was given."""
        raise NotImplementedError

    def perform(self, form, identifier):
        """Call the verb; returns what is told of it."""
        raise NotImplementedError

    def get(self, request, identifier=None):
        type = None if identifier is None else queue.get_type(identifier)
        return self._show(type, self.form_of(identifier))

    def post(self, request, identifier=None):
        type = None if identifier is None else queue.get_type(identifier)
        form = self.form_of(identifier, request.POST)
        if not form.is_valid():
            return self._show(type, form, status=422)
        try:
            told = self.perform(form, identifier)
        except ATPError as error:
            form.add_error(None, str(error))
            return self._show(type, form, status=problem_of(error).status)
        messages.success(request, told, fail_silently=True)
        return redirect(reverse("atp:type", args=[identifier]) if identifier else "atp:overview")

    def _show(self, type, form, **context):
        return self.show(type=type, form=form, title=self.title, **context)


class GatePage(_ControlPage):
    """The gate of a Type or of a lane of it; without a Type that over everything."""

    title = "Gate"
    fields = tuple(GateForm.base_fields)

    def form_of(self, identifier, data=None):
        return (WholeGateForm if identifier is None else GateForm)(data)

    def perform(self, form, identifier):
        given = form.cleaned_data
        mode = given["mode"]
        more = {"until": given["until"]} if mode != "open" else {}
        by = actor(self.request, PAGE)
        _GATES[mode](**form.place(identifier), reason=given["reason"], **more, by=by)
        return _DONE[mode]


class LimitPage(_ControlPage):
    """The limits of a Type or of a lane of it. The form says all of them: what is empty is none."""

    title = "Limits"
    fields = tuple(LimitForm.base_fields)

    def form_of(self, identifier, data=None):
        if data is not None:
            return LimitForm(data)
        own = next((row for row in queue.limits(identifier) if row.collection is None), None)
        return LimitForm(
            initial=own
            and {
                "max_running": own.max_running,
                "rate": own.rate,
                "burst": own.burst if own.rate else None,
                "weight": wording.plain_number(own.weight),
            }
        )

    def perform(self, form, identifier):
        place, by = form.place(identifier), actor(self.request, PAGE)
        given = form.cleaned_data
        if given["default"]:
            queue.unlimit(**place, by=by)
            return "The limits are left to the code."
        limits = {"max_running": given["max_running"], "rate": given["rate"].strip() or None}
        if limits["rate"] or given["burst"]:
            limits["burst"] = given["burst"]
        if place["collection"] is None or given["weight"] is not None:
            limits["weight"] = given["weight"]
        queue.limit(**place, **limits, by=by)
        return "The limits are set."
