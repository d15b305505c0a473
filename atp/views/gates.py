"""Gates: a form that shows how one is, and sets it if it still is so."""

from datetime import datetime

from django import forms
from django.utils import timezone

from .. import queue, told
from ..exceptions import GateChanged
from ..options import MAX_IDENTIFIER
from ..web.actor import PAGE, actor
from .fields import MomentField
from .places import PlacePage, hidden_fields

_VERBS = {"hold": queue.hold, "drop": queue.drop, "open": queue.open_gate}
# More that wait are not counted.
COUNTED = 10_000


class GateForm(forms.Form):
    mode = forms.ChoiceField(
        label="What waits",
        choices=[("hold", "is held"), ("drop", "is dropped: it FAILs"), ("open", "is let go")],
    )
    reason = forms.CharField(required=False, show_hidden_initial=True, max_length=MAX_IDENTIFIER)
    until = MomentField(
        required=False,
        show_hidden_initial=True,
        help_text="opens by itself: 2030-01-31T18:00, or after a delay as 1h30m",
    )
    # How the gate was when the form was shown: open, or since when it has been as it is.
    expected = forms.CharField(required=False, widget=forms.HiddenInput)
    sure = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean(self):
        given = super().clean()
        try:
            given["expected"] = _expected(given.get("expected"))
        except ValueError:
            self.add_error(None, "The form has been changed on its way.")
        if given.get("mode") == "open":
            # What the form showed of the gate that is opened is not said of its opening.
            if "until" in self.changed_data and given.get("until"):
                self.add_error("until", "A gate that is opened does not open by itself.")
            given.pop("until", None)
            if "reason" not in self.changed_data:
                given["reason"] = ""
        return given


class GatePage(PlacePage):
    """The gate of a Type or of a lane of it; without a Type that over everything.

    To drop it asks once more, and says how many wait there.
    """

    title = "Gate"
    fields = (*GateForm.base_fields, "initial-reason", "initial-until", "of", "collection")

    def form_of(self, place, data=None):
        return GateForm(data) if data is not None else GateForm(initial=_initial(_gate(place)))

    def form_after(self, error, form, place):
        if not isinstance(error, GateChanged):
            return form
        # Who sends it once more has seen how the gate is now.
        data = form.data.copy()
        data["expected"] = _initial(error.gate)["expected"]
        data.pop("sure", None)
        form = GateForm(data)
        form.full_clean()
        return form

    def state(self, place):
        found = [told.state_of(_gate(place))]
        for gate in told.above(*place, queue.gates()):
            found.append(f"{told.where(gate.type, None)} is {told.state_of(gate)}")
        return "; ".join(found)

    def perform(self, form, place):
        given = form.cleaned_data
        mode = given["mode"]
        more = {"until": given["until"]} if mode != "open" else {}
        if mode == "drop" and not given["sure"]:
            return self._ask(form, place)
        gate = _VERBS[mode](
            *place,
            reason=given["reason"],
            expected=given["expected"],
            **more,
            by=actor(self.request, PAGE),
        )
        return told.of_gate(mode, *place, gate if mode == "open" else gate.was, queue.gates())

    def _ask(self, form, place):
        waiting = queue.waiting(*place, most=COUNTED + 1)
        return self.show(
            template="atp/drop.html",
            of=told.where(*place),
            place=place,
            hidden=hidden_fields(place),
            waiting=min(waiting, COUNTED),
            more=waiting > COUNTED,
            given=[
                (name, form.data[name])
                for name in (*GateForm.base_fields, "initial-reason", "initial-until")
                if name in form.data and name != "sure"
            ],
        )


def _gate(place):
    """The Gate of a place, None if it is open."""
    return next((gate for gate in queue.gates() if told.is_of(gate, *place)), None)


def _expected(given):
    if given in (None, "", "open"):
        return given or None
    return datetime.fromisoformat(given)


def _initial(gate):
    if gate is None:
        return {"expected": "open", "mode": "hold"}
    until = gate.until and timezone.localtime(gate.until).isoformat(timespec="seconds")
    return {
        "mode": gate.mode,
        "reason": gate.reason,
        "until": until,
        "expected": gate.since.isoformat(),
    }
