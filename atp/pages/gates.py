"""Gates, limits, downstreams."""

from datetime import datetime

from django import forms
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from .. import queue, text
from ..conf import settings
from ..downstreams import operations as downstreams
from ..exceptions import ATPError, GateChanged
from ..models import Downstream, LogRecord, Type
from ..operations.gates import default_burst
from ..operations.table import DOWNSTREAM, SCOPE, VERBS
from ..options import MAX_IDENTIFIER
from ..reports import overview
from ..web import permissions
from ..web.permissions import PAGE, actor
from ..web.problems import problem_of
from .base import Page
from .operations import field_of, form_of

# The base of the pages of gates and limits: the choice of a scope, and a form for it.

# Log records below the form.
SHOWN = 10


class ScopeForm(forms.Form):
    """A form that chooses a scope: the whole Type, or one of its lanes."""

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

    def clean(self):
        given = super().clean()
        if given.get("of") == "type" and given.get("collection"):
            self.add_error(
                "collection", "This is a collection, and “For” says the whole Type: which is it?"
            )
        return given

    @property
    def chosen(self):
        """The chosen collection, None for the whole Type."""
        return self.cleaned_data["collection"] if self.cleaned_data["of"] == "lane" else None


class ScopePage(Page):
    """The base of a page with a form that shows and sets the gate or the limits of a scope.

    The scope is in the query string, and in hidden fields of the form.
    """

    permissions = (permissions.VIEW_TYPE, permissions.CONTROL)
    template_name = "atp/control.html"
    parameters = ("of", "collection")
    title = ""

    def form_of(self, scope, data=None):
        """Return the form of a scope, with ``data`` if given, else with the present settings."""
        raise NotImplementedError

    def perform(self, form, scope):
        """Call the verb; return a sentence about the outcome, or a page that asks to confirm."""
        raise NotImplementedError

    def state(self, scope):
        """Return the present gate or limits of a scope in words."""
        raise NotImplementedError

    def get(self, request, identifier=None):
        type = self._type(identifier)
        chooser = self._chooser(type, request.GET)
        if chooser is not None and not chooser.is_valid():
            return self.shown(None, type, chooser=chooser, status=422)
        scope = self._scope(identifier, chooser)
        permissions.require(request.user, scope, permissions.CONTROL)
        return self.shown(scope, type, form=self.form_of(scope), chooser=chooser)

    def post(self, request, identifier=None):
        type = self._type(identifier)
        # The scope is that of the hidden fields; without them, that of the query string.
        given = request.POST if {"of", "collection"} & request.POST.keys() else request.GET
        chooser = self._chooser(type, given)
        if chooser is not None and not chooser.is_valid():
            return self.shown(None, type, chooser=chooser, status=422)
        scope = self._scope(identifier, chooser)
        permissions.require(request.user, scope, permissions.CONTROL)
        form = self.form_of(scope, request.POST)
        if not form.is_valid():
            return self.shown(scope, type, form=form, chooser=chooser, status=422)
        try:
            done = self.perform(form, scope)
        except ATPError as error:
            form = self.form_after(error, form, scope)
            form.add_error(None, str(error))
            status = problem_of(error).status
            return self.shown(scope, type, form=form, chooser=chooser, status=status)
        if not isinstance(done, str):
            return done
        messages.success(request, done, fail_silently=True)
        return redirect(reverse("atp:type", args=[identifier]) if identifier else "atp:overview")

    def _type(self, identifier):
        """Return the Type of the address, if the user may see it; None for everything."""
        if identifier is None:
            return None
        user = self.request.user
        return permissions.look_up(
            user, lambda: queue.get_type(identifier), Type, identifier, permissions.VIEW_TYPE
        )

    def form_after(self, error, form, scope):
        """Return the form to show with the error; by default the same form."""
        return form

    def shown(self, scope, type, *, form=None, chooser=None, **context):
        """Answer with the page. If the scope is None, show only the form that chooses one."""
        user = self.request.user
        may_see_log = scope is not None and permissions.holds(user, permissions.VIEW_LOG, scope)
        return self.show(
            type=type,
            scope=scope,
            of=None if scope is None else text.where(*scope),
            state=None if scope is None else self.state(scope),
            hidden=hidden_fields(scope),
            form=form,
            chooser=chooser,
            title=self.title,
            now=overview.now(),
            log=queue.scope_log(*scope, limit=SHOWN) if may_see_log else None,
            **context,
        )

    @staticmethod
    def _chooser(type, data):
        given = {name: data[name] for name in ("of", "collection") if name in data}
        if type is None:
            if given:
                raise BadRequest("Everything has no collections: choose a Type first.")
            return None
        if "of" not in given:
            given["of"] = "lane" if "collection" in given else "type"
        return ScopeForm(given, auto_id="scope_%s")

    @staticmethod
    def _scope(identifier, chooser):
        return identifier, None if chooser is None else chooser.chosen


def hidden_fields(scope):
    """Return the hidden fields of a form that name its scope, as pairs of name and value."""
    if scope is None or scope[0] is None:
        return []
    return [("of", "type")] if scope[1] is None else [("of", "lane"), ("collection", scope[1])]


# The page of a gate: a form that sets it, unless it has changed since the form was shown.

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
        found = [text.state_of(_gate(scope))]
        for gate in text.above(*scope, queue.gates()):
            found.append(f"{text.where(gate.type, None)} is {text.state_of(gate)}")
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
            of=text.where(*scope),
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
    return next((gate for gate in queue.gates() if text.is_of(gate, *scope)), None)


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


# The pages of limits, with a form for a Type or a lane, and of downstreams.

_LIMIT, _UNLIMIT = (VERBS[SCOPE][name] for name in ("limit", "unlimit"))
OF_TYPES = ("max_running_per_collection", "weight")
_LIMITS = tuple(parameter.name for parameter in _LIMIT.parameters)


class LimitForm(form_of(_LIMIT.parameters)):
    default = forms.BooleanField(required=False, label="Use the limits that the code declares")

    def clean(self):
        given = super().clean()
        if given.get("default") and set(self.changed_data) & set(_LIMITS):
            self.add_error("default", "It takes no limits beside it.")
        return given

    def given(self):
        given = super().given()
        if given.get("rate"):
            # A new rate is set together with the burst that the form shows.
            given.setdefault("burst", self.cleaned_data["burst"])
        return given


class LimitPage(ScopePage):
    """The page of the limits of a Type or a lane."""

    title = "Limits"
    fields = (
        *LimitForm.base_fields,
        *(f"initial-{name}" for name in _LIMITS),
        *("of", "collection"),
    )

    def form_of(self, scope, data=None):
        form = (
            LimitForm(data)
            if data is not None
            else LimitForm(initial=_limits_initial(_limit(scope)))
        )
        for name in OF_TYPES if scope[1] is not None else ():
            if not form.data.get(name):
                del form.fields[name]  # a lane has no such limits
        return form

    def state(self, scope):
        limit = _limit(scope)
        if limit is None:
            return "nothing is limited"
        by = (limit.who or "nobody named") if limit.is_set else "the code"
        return f"{text.of_limits(limit)}, set by {by}, since {text.moment(limit.since)}"

    def perform(self, form, scope):
        by = actor(self.request, PAGE)
        if form.cleaned_data["default"]:
            return _UNLIMIT.perform(scope, by).told
        given = form.given()
        return _LIMIT.perform(scope, by, **given).told if given else "Nothing was changed."


def _limit(scope):
    type, collection = scope
    return next((row for row in queue.limits(type) if row.collection == collection), None)


def _limits_initial(limit):
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
        "max_wait": text.written(limit.max_wait) or None,
    }


# Log records on a downstream's page.
LOG = 50


class DownstreamsPage(Page):
    """The page of all downstreams: the services that handlers call, with their states."""

    permissions = (permissions.VIEW_DOWNSTREAM,)
    template_name = "atp/downstreams.html"

    def get(self, request):
        rows = self.seen(queue.downstreams())
        return self.show(now=overview.now(), downstreams=[_shown(row) for row in rows])


class DownstreamPage(Page):
    """The page of a downstream, with its verbs and its log."""

    permissions = (permissions.VIEW_DOWNSTREAM,)
    template_name = "atp/downstream.html"

    def get(self, request, downstream):
        row = self.look_up(Downstream, downstream, lambda: queue.get_downstream(downstream))
        verbs = VERBS[DOWNSTREAM].values()
        return self.show(
            now=overview.now(),
            downstream=_shown(row),
            verbs=[verb for verb in verbs if verb.is_allowed(row) and self.may(*verb.needs)],
            log=_log(row) if self.may(permissions.VIEW_LOG) else None,
        )


def _shown(row):
    return downstreams.document(row) | {"waits": downstreams.due(row)}


def _log(row):
    records = LogRecord.objects.using(settings.DATABASE).about(f"downstream:{row.name}")
    return list(records.reverse()[:LOG])
