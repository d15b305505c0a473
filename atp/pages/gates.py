"""The pages for gates, limits and downstreams."""

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.http import HttpRequest, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from .. import queue, text
from ..conf import settings
from ..downstreams import operations as downstreams
from ..exceptions import ATPError, GateChanged
from ..models import Downstream, Gate, Limit, LogRecord, Type
from ..operations.gates import default_burst
from ..operations.table import DOWNSTREAM, OPERATIONS, TARGET
from ..options import MAX_IDENTIFIER
from ..reports import overview
from ..web import permissions
from ..web.permissions import PAGE, Place, actor
from ..web.problems import status_of
from .base import Page
from .operations import make_field, make_form_class

# Log records below a form, and on a downstream's page.
LOG_BELOW_FORM, LOG_OF_DOWNSTREAM = 10, 50
# The page counts at most this many waiting Instances.
COUNTED = 10_000

# The base of the pages for gates and limits: the choice of a target, and a form for it.


class TargetForm(forms.Form):
    """The form in which the user chooses a target: the whole Type, or one of its lanes."""

    of = forms.ChoiceField(
        label="For",
        required=False,
        choices=[("type", "the whole Type"), ("lane", "one collection of it")],
    )
    collection = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_IDENTIFIER,
        help_text="the name of the collection; empty stands for Instances without a collection",
    )

    def clean(self) -> dict[str, Any]:
        super().clean()
        if self.cleaned_data.get("of") == "type" and self.cleaned_data.get("collection"):
            self.add_error(
                "collection",
                "A collection is given, but “For” says the whole Type. Choose one of them.",
            )
        return self.cleaned_data

    @property
    def chosen(self) -> str | None:
        """The chosen collection, or None if the user chose the whole Type."""
        return self.cleaned_data["collection"] if self.cleaned_data["of"] == "lane" else None


class TargetPage(Page):
    """The base class of a page with a form that shows and changes a target's gate or limits.

    The query string and hidden fields of the form name the target.
    """

    permissions = (permissions.VIEW_TYPE, permissions.CONTROL)
    template_name = "atp/control.html"
    parameters = ("of", "collection")
    title = ""

    def make_form(self, target: Place, data: QueryDict | None = None) -> Any:
        """Return the form for a target, filled with ``data``, or else with the current settings."""
        raise NotImplementedError

    def perform(self, form: Any, target: Place) -> str | HttpResponseBase:
        """Perform the operation and return its outcome, or return a page that asks to confirm."""
        raise NotImplementedError

    def describe_state(self, target: Place) -> str:
        """Return the current gate or limits of a target in words."""
        raise NotImplementedError

    def get(self, request: HttpRequest, identifier: str | None = None) -> HttpResponseBase:
        type = self._find_type(identifier)
        chooser = self._make_chooser(type, request.GET)
        if chooser is not None and not chooser.is_valid():
            return self.show_form(None, type, chooser=chooser, status=422)
        target = self._chosen_target(identifier, chooser)
        permissions.require(request.user, target, permissions.CONTROL)
        return self.show_form(target, type, form=self.make_form(target), chooser=chooser)

    def post(self, request: HttpRequest, identifier: str | None = None) -> HttpResponseBase:
        type = self._find_type(identifier)
        # The hidden fields name the target; without them, the query string does.
        data = request.POST if {"of", "collection"} & request.POST.keys() else request.GET
        chooser = self._make_chooser(type, data)
        if chooser is not None and not chooser.is_valid():
            return self.show_form(None, type, chooser=chooser, status=422)
        target = self._chosen_target(identifier, chooser)
        permissions.require(request.user, target, permissions.CONTROL)
        form = self.make_form(target, request.POST)
        if not form.is_valid():
            return self.show_form(target, type, form=form, chooser=chooser, status=422)
        try:
            outcome = self.perform(form, target)
        except ATPError as error:
            form = self.form_after(error, form, target)
            form.add_error(None, str(error))
            return self.show_form(target, type, form=form, chooser=chooser, status=status_of(error))
        if not isinstance(outcome, str):
            return outcome
        messages.success(request, outcome, fail_silently=True)
        return redirect(reverse("atp:type", args=[identifier]) if identifier else "atp:overview")

    def _find_type(self, identifier: str | None) -> Type | None:
        """Return the Type with this identifier, or None without an identifier.

        Raises UnknownType if the user may not see the Type.
        """
        if identifier is None:
            return None
        user = self.request.user
        return permissions.look_up(
            user, lambda: queue.get_type(identifier), Type, identifier, permissions.VIEW_TYPE
        )

    def form_after(self, error: ATPError, form: Any, target: Place) -> Any:
        """Return the form to show with the error of an operation; by default the same form."""
        return form

    def show_form(
        self,
        target: Place | None,
        type: Type | None,
        *,
        form: Any = None,
        chooser: TargetForm | None = None,
        **context: Any,
    ) -> HttpResponseBase:
        """Return the page. If ``target`` is None, it has only the form that chooses a target."""
        user = self.request.user
        may_see_log = target is not None and permissions.holds(user, permissions.VIEW_LOG, target)
        return self.show(
            type=type,
            scope=target,
            of=None if target is None else text.describe_target(*target),
            state=None if target is None else self.describe_state(target),
            log=queue.scope_log(*target, limit=LOG_BELOW_FORM) if target and may_see_log else None,
            hidden=hidden_fields(target),
            form=form,
            chooser=chooser,
            title=self.title,
            now=overview.now(),
            **context,
        )

    @staticmethod
    def _make_chooser(type: Type | None, data: QueryDict) -> TargetForm | None:
        """Return the form that chooses a target within a Type, or None without a Type."""
        chosen = {name: data[name] for name in ("of", "collection") if name in data}
        if type is None:
            if chosen:
                raise BadRequest("A collection belongs to a Type. Choose a Type first.")
            return None
        if "of" not in chosen:
            chosen["of"] = "lane" if "collection" in chosen else "type"
        return TargetForm(chosen, auto_id="scope_%s")

    @staticmethod
    def _chosen_target(identifier: str | None, chooser: TargetForm | None) -> Place:
        return identifier, None if chooser is None else chooser.chosen


def hidden_fields(target: Place | None) -> list[tuple[str, str]]:
    """Return the hidden fields that name a form's target, as pairs of name and value."""
    if target is None or target[0] is None:
        return []
    return [("of", "type")] if target[1] is None else [("of", "lane"), ("collection", target[1])]


# The page of a gate: its form sets the gate, unless the gate has changed meanwhile.


class GateForm(forms.Form):
    mode = forms.ChoiceField(
        label="Gate",
        choices=[
            ("hold", "hold: nothing is started"),
            ("drop", "drop: what waits is FAILED"),
            ("open", "open: what waits is started"),
        ],
    )
    reason, until = map(make_field, OPERATIONS[TARGET]["hold"].parameters[:2])
    # The gate when the form was shown: "open", or its time ``since``.
    expected = forms.CharField(required=False, widget=forms.HiddenInput)
    sure = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        super().clean()
        values = self.cleaned_data
        try:
            values["expected"] = _parse_expected(values.get("expected"))
        except ValueError:
            self.add_error(None, "The form has been changed on its way.")
        if values.get("mode") == "open":
            # Unless the user changed them, ``until`` and ``reason`` belong to the shut gate.
            if "until" in self.changed_data and values.get("until"):
                self.add_error("until", "This field is only for a gate that is shut.")
            values.pop("until", None)
            if "reason" not in self.changed_data:
                values["reason"] = ""
        return values


class GatePage(TargetPage):
    """The page for the gate over a Type, over a lane, or over everything if no Type is given.

    Before an operation drops Instances, the page shows how many are waiting and asks the user to
    confirm.
    """

    title = "Gate"
    fields = (*GateForm.base_fields, "initial-reason", "initial-until", "of", "collection")

    def make_form(self, target: Place, data: QueryDict | None = None) -> GateForm:
        if data is not None:
            return GateForm(data)
        return GateForm(initial=_initial_gate_values(_find_gate(target)))

    def form_after(self, error: ATPError, form: GateForm, target: Place) -> GateForm:
        if not isinstance(error, GateChanged):
            return form
        # Expect the gate as it is now, so that the user can send the form again.
        data = form.data.copy()  # type: ignore[attr-defined]
        data["expected"] = _initial_gate_values(error.gate)["expected"]
        data.pop("sure", None)
        form = GateForm(data)
        form.full_clean()
        return form

    def describe_state(self, target: Place) -> str:
        states = [text.describe_gate(_find_gate(target))]
        for gate in text.wider_gates(*target, queue.gates()):
            states.append(f"{text.describe_target(gate.type, None)} is {text.describe_gate(gate)}")
        return "; ".join(states)

    def perform(self, form: GateForm, target: Place) -> str | HttpResponseBase:
        values = form.cleaned_data
        mode = values["mode"]
        if mode == "drop" and not values["sure"]:
            return self._confirm_drop(form, target)
        names = ("reason", "expected") if mode == "open" else ("until", "reason", "expected")
        arguments = {name: values[name] for name in names}
        return OPERATIONS[TARGET][mode].perform(target, actor(self.request, PAGE), **arguments).told

    def _confirm_drop(self, form: GateForm, target: Place) -> HttpResponseBase:
        waiting = queue.waiting(*target, most=COUNTED + 1)
        return self.show(
            template="atp/drop.html",
            of=text.describe_target(*target),
            scope=target,
            hidden=hidden_fields(target),
            waiting=min(waiting, COUNTED),
            more=waiting > COUNTED,
            given=[
                (name, form.data[name])
                for name in (*GateForm.base_fields, "initial-reason", "initial-until")
                if name in form.data and name != "sure"
            ],
        )


def _find_gate(target: Place) -> Gate | None:
    """Return the gate over a target if it is shut, or None if it is open."""
    return next((gate for gate in queue.gates() if text.is_gate_for(gate, *target)), None)


def _parse_expected(word: str | None) -> datetime | str | None:
    if word in (None, "", "open"):
        return word or None
    return datetime.fromisoformat(word)


def _initial_gate_values(gate: Gate | None) -> dict[str, Any]:
    if gate is None:
        return {"expected": "open", "mode": "hold"}
    until = gate.until and timezone.localtime(gate.until).isoformat(timespec="seconds")
    return {
        # Whoever comes to a shut gate mostly wants to open it.
        "mode": "open",
        "reason": gate.reason,
        "until": until,
        "expected": gate.since.isoformat(),
    }


# The page of limits, with a form for a Type or a lane.

_LIMIT, _UNLIMIT = (OPERATIONS[TARGET][name] for name in ("limit", "unlimit"))
# The limits that only a whole Type has.
TYPE_LIMITS = ("max_running_per_collection", "weight")
_LIMIT_NAMES = tuple(parameter.name for parameter in _LIMIT.parameters)
_LimitFields: Any = make_form_class(_LIMIT.parameters)


class LimitForm(_LimitFields):
    default = forms.BooleanField(required=False, label="Use the limits that the code declares")

    def clean(self) -> dict[str, Any]:
        super().clean()
        if self.cleaned_data.get("default") and set(self.changed_data) & set(_LIMIT_NAMES):
            self.add_error("default", "Give either the default or limits, not both.")
        return self.cleaned_data

    def changed_values(self) -> dict[str, Any]:
        values = super().changed_values()
        if values.get("rate"):
            # A new rate is set together with the burst that the form shows.
            values.setdefault("burst", self.cleaned_data["burst"])
        return values


class LimitPage(TargetPage):
    """The page for the limits on a Type or a lane."""

    title = "Limits"
    fields = (
        *LimitForm.base_fields,
        *(f"initial-{name}" for name in _LIMIT_NAMES),
        *("of", "collection"),
    )

    def make_form(self, target: Place, data: QueryDict | None = None) -> LimitForm:
        if data is None:
            form = LimitForm(initial=_initial_limit_values(_find_limit(target)))
        else:
            form = LimitForm(data)
        for name in TYPE_LIMITS if target[1] is not None else ():
            if not form.data.get(name):
                del form.fields[name]
        return form

    def describe_state(self, target: Place) -> str:
        limit = _find_limit(target)
        if limit is None:
            return "nothing is limited"
        by = (limit.who or "nobody named") if limit.is_set else "the code"
        return f"{text.describe_limits(limit)}, set by {by}, since {text.moment(limit.since)}"

    def perform(self, form: LimitForm, target: Place) -> str:
        by = actor(self.request, PAGE)
        if form.cleaned_data["default"]:
            return _UNLIMIT.perform(target, by).told
        values = form.changed_values()
        return _LIMIT.perform(target, by, **values).told if values else "Nothing was changed."


def _find_limit(target: Place) -> Limit | None:
    type, collection = target
    return next((row for row in queue.limits(type) if row.collection == collection), None)


def _initial_limit_values(limit: Limit | None) -> dict[str, Any]:
    if limit is None:
        return {}
    has_burst = limit.rate and limit.burst != default_burst(limit.rate)
    return {
        "max_running": limit.max_running,
        "max_running_per_collection": limit.max_running_per_collection,
        "rate": limit.rate,
        "burst": limit.burst if has_burst else None,
        "weight": text.plain_number(limit.weight),
        "max_waiting": limit.max_waiting,
        "max_wait": text.delay_text(limit.max_wait) or None,
    }


# The pages of downstreams.


class DownstreamsPage(Page):
    """The page that lists all downstreams, which are the services that handlers call."""

    permissions = (permissions.VIEW_DOWNSTREAM,)
    template_name = "atp/downstreams.html"

    def get(self, request: HttpRequest) -> HttpResponseBase:
        rows = self.filter_permitted(queue.downstreams())
        return self.show(now=overview.now(), downstreams=[_describe_row(row) for row in rows])


class DownstreamPage(Page):
    """The page for one downstream, with its operations and its log."""

    permissions = (permissions.VIEW_DOWNSTREAM,)
    template_name = "atp/downstream.html"

    def get(self, request: HttpRequest, downstream: str) -> HttpResponseBase:
        row = self.look_up(Downstream, downstream, lambda: queue.get_downstream(downstream))
        verbs = OPERATIONS[DOWNSTREAM].values()
        return self.show(
            now=overview.now(),
            downstream=_describe_row(row),
            verbs=[verb for verb in verbs if verb.is_allowed(row) and self.may(*verb.needs)],
            log=_find_log(row) if self.may(permissions.VIEW_LOG) else None,
        )


def _describe_row(row: Downstream) -> dict[str, Any]:
    return downstreams.downstream_document(row) | {"waits": downstreams.count_due_tasks(row)}


def _find_log(row: Downstream) -> list[LogRecord]:
    records = LogRecord.objects.using(settings.DATABASE).about(f"downstream:{row.name}")
    return list(records.reverse()[:LOG_OF_DOWNSTREAM])
