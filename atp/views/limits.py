"""The pages of limits, with a form for a Type or a lane, and of downstreams."""

from django import forms

from .. import queue
from ..conf import settings
from ..models import Downstream, LogRecord
from ..reports import downstreams, overview
from ..verbs.table import DOWNSTREAM, SCOPE, VERBS
from ..web import permissions
from ..web.actor import PAGE, actor
from ..web.forms import form_of
from ..words import sentences, wording
from ..words.rates import default_burst
from .base import Page
from .scopes import ScopePage

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
        form = LimitForm(data) if data is not None else LimitForm(initial=_initial(_limit(scope)))
        for name in OF_TYPES if scope[1] is not None else ():
            if not form.data.get(name):
                del form.fields[name]  # a lane has no such limits
        return form

    def state(self, scope):
        limit = _limit(scope)
        if limit is None:
            return "nothing is limited"
        by = (limit.who or "nobody named") if limit.is_set else "the code"
        return f"{sentences.of_limits(limit)}, set by {by}, since {wording.moment(limit.since)}"

    def perform(self, form, scope):
        by = actor(self.request, PAGE)
        if form.cleaned_data["default"]:
            return _UNLIMIT.perform(scope, by).told
        given = form.given()
        return _LIMIT.perform(scope, by, **given).told if given else "Nothing was changed."


def _limit(scope):
    type, collection = scope
    return next((row for row in queue.limits(type) if row.collection == collection), None)


def _initial(limit):
    if limit is None:
        return {}
    has_burst = limit.rate and limit.burst != default_burst(limit.rate)
    return {
        "max_running": limit.max_running,
        "max_running_per_collection": limit.max_running_per_collection,
        "rate": limit.rate,
        "burst": limit.burst if has_burst else None,
        "weight": wording.plain_number(limit.weight),
        "max_waiting": limit.max_waiting,
        "max_wait": wording.written(limit.max_wait) or None,
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
