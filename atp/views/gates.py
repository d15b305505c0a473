"""The page of a gate: a form that sets it, unless it has changed since the form was shown."""

from datetime import datetime

from django import forms
from django.utils import timezone

from .. import queue
from ..exceptions import GateChanged
from ..verbs.table import SCOPE, VERBS
from ..web.actor import PAGE, actor
from ..web.forms import field_of
from ..words import sentences
from .scopes import ScopePage, hidden_fields

# The most waiting Instances that are counted.
COUNTED = 10_000


class GateForm(forms.Form):
    mode = forms.ChoiceField(
        label="Gate",
        choices=[
            ("hold", "hold: nothing is started"),
            ("drop", "drop: what waits is FAILED"),
            ("open", "open: what waits is started"),
        ],
    )
    reason, until = map(field_of, VERBS[SCOPE]["hold"].parameters[:2])
    # The gate when the form was shown: "open", or its ``since``.
    expected = forms.CharField(required=False, widget=forms.HiddenInput)
    sure = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean(self):
        given = super().clean()
        try:
            given["expected"] = _expected(given.get("expected"))
        except ValueError:
            self.add_error(None, "The form has been changed on its way.")
        if given.get("mode") == "open":
            # ``until`` and ``reason`` are those of the shut gate, unless the user changed them.
            if "until" in self.changed_data and given.get("until"):
                self.add_error("until", "A gate that is opened does not open by itself.")
            given.pop("until", None)
            if "reason" not in self.changed_data:
                given["reason"] = ""
        return given


class GatePage(ScopePage):
    """The page of the gate of a Type, of a lane, or over everything if no Type is given.

    Before a drop it asks for confirmation, with the number of waiting Instances.
    """

    title = "Gate"
    fields = (*GateForm.base_fields, "initial-reason", "initial-until", "of", "collection")

    def form_of(self, scope, data=None):
        return GateForm(data) if data is not None else GateForm(initial=_initial(_gate(scope)))

    def form_after(self, error, form, scope):
        if not isinstance(error, GateChanged):
            return form
        # Show the form with the gate as it is now, so that the user can send it again.
        data = form.data.copy()
        data["expected"] = _initial(error.gate)["expected"]
        data.pop("sure", None)
        form = GateForm(data)
        form.full_clean()
        return form

    def state(self, scope):
        found = [sentences.state_of(_gate(scope))]
        for gate in sentences.above(*scope, queue.gates()):
            found.append(f"{sentences.where(gate.type, None)} is {sentences.state_of(gate)}")
        return "; ".join(found)

    def perform(self, form, scope):
        given = form.cleaned_data
        mode = given["mode"]
        more = {"until": given["until"]} if mode != "open" else {}
        if mode == "drop" and not given["sure"]:
            return self._ask(form, scope)
        more |= {"reason": given["reason"], "expected": given["expected"]}
        return VERBS[SCOPE][mode].perform(scope, actor(self.request, PAGE), **more).told

    def _ask(self, form, scope):
        waiting = queue.waiting(*scope, most=COUNTED + 1)
        return self.show(
            template="atp/drop.html",
            of=sentences.where(*scope),
            scope=scope,
            hidden=hidden_fields(scope),
            waiting=min(waiting, COUNTED),
            more=waiting > COUNTED,
            given=[
                (name, form.data[name])
                for name in (*GateForm.base_fields, "initial-reason", "initial-until")
                if name in form.data and name != "sure"
            ],
        )


def _gate(scope):
    """Return the Gate of a scope, None if it is open."""
    return next((gate for gate in queue.gates() if sentences.is_of(gate, *scope)), None)


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
