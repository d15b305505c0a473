"""The forms that make and change schedules, with a preview of the next runs; other verbs."""

from django.conf import settings as project
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.db import transaction
from django.shortcuts import redirect
from django.urls import reverse

from .. import queue
from ..conf import settings
from ..exceptions import ATPError, InvalidSchedule, ScheduleChanged
from ..models import Schedule
from ..reports import overview
from ..reports import schedules as reports
from ..rows.schedule import Missed, Overlap
from ..verbs.schedule_specs import changes_of
from ..verbs.table import SCHEDULE
from ..verbs.table.schedules import PARAMETERS, REVISION
from ..verbs.table.verb import Parameter
from ..web import authorization, permissions
from ..web.actor import PAGE, actor
from ..web.forms import form_of, names_in, tell
from ..web.problems import problem_of
from ..words.kinds import Text
from .base import Page
from .enqueueing import as_json, sketch
from .schedules import UPCOMING, shown_runs
from .verbs import VerbPage

_IDENTIFIER = Parameter(
    name="identifier", kind=Text(), help="Unique among the schedules.", is_required=True
)
_TIMES = ("cron", "every", "timezone")


class ScheduleForm(form_of((_IDENTIFIER, *PARAMETERS))):
    def given(self):
        """Return the values that are not empty; an empty collection stays, and means none."""
        found = {name: self.cleaned_data[name] for name in self.fields}
        return {
            name: value
            for name, value in found.items()
            if value is not None and (value != "" or name == "collection")
        }


class NewSchedulePage(Page):
    """The page that makes a schedule of a Type that this process declares."""

    permissions = (
        *(permissions.VIEW_TYPE, permissions.VIEW_SCHEDULE),
        *(permissions.CONTROL, permissions.ENQUEUE),
    )
    template_name = "atp/new_schedule.html"
    fields = ("preview", *names_in(ScheduleForm))

    def get(self, request, identifier):
        self.check_touched(identifier, permissions.CONTROL, permissions.ENQUEUE)
        declared = queue.declared(identifier)
        return self._form(declared, ScheduleForm(initial=_initial(declared)))

    def post(self, request, identifier):
        self.check_touched(identifier, permissions.CONTROL, permissions.ENQUEUE)
        declared = queue.declared(identifier)
        form = ScheduleForm(request.POST)
        if "preview" in request.POST:
            return self._form(declared, form, **_previewed(form))
        if not form.is_valid():
            return self._form(declared, form, status=422)
        given = form.given()
        try:
            with transaction.atomic(using=settings.DATABASE):
                made = queue.create_schedule(
                    given.pop("identifier"), declared.identifier, by=actor(request, PAGE), **given
                )
                needs = (permissions.CONTROL, permissions.ENQUEUE)
                authorization.require(request.user, made, *needs)
        except ATPError as error:
            is_taken = isinstance(error, ScheduleChanged)
            form.add_error("identifier", str(error)) if is_taken else tell(form, error)
            return self._form(declared, form, status=problem_of(error).status)
        messages.success(request, "The schedule is made.", fail_silently=True)
        return redirect("atp:schedule", made.identifier)

    def _form(self, declared, form, **context):
        signature = f"{declared.identifier}{declared.signature}"
        now = overview.now()
        return self.show(declared=declared, form=form, signature=signature, now=now, **context)


def _initial(declared):
    inputs = sketch(declared.signature)
    inputs.pop("slot", None)
    return {
        "timezone": project.TIME_ZONE,
        "inputs": as_json(inputs),
        "missed": Missed.ONE.value,
        "most": 100,
        "window": "1d",
        "late_after": "1m",
        "overlap": Overlap.ALLOW.value,
        "jitter": "0s",
        "priority": declared.options.priority,
        "collection": declared.options.collection,
    }


class ScheduleVerbPage(VerbPage):
    kind = SCHEDULE
    model = Schedule
    key = "identifier"
    view_permission = permissions.VIEW_SCHEDULE

    @property
    def fields(self):
        return ("preview", "expected", *super().fields) if self._edits else super().fields

    @property
    def _edits(self):
        return self.verb.name == "change"

    def find(self):
        return queue.get_schedule(self.kwargs["identifier"])

    def check_allowed(self, subject):
        if not self.verb.is_allowed(subject):
            state = reports.state(subject, overview.now())
            raise InvalidSchedule(
                f"{subject}: “{self.verb.label}” is not possible. The schedule is {state}."
            )

    def post(self, request, **kwargs):
        if not (self._edits and "preview" in request.POST):
            return super().post(request, **kwargs)
        subject = self._subject()
        form = form_of(self.verb.parameters)(request.POST)
        return self._page(subject, form, **_previewed(form))

    def current(self, subject):
        """Return the initial values, without the inputs if the user may not see them."""
        found = super().current(subject)
        if not self.may(permissions.VIEW_INPUTS):
            found.pop("inputs", None)
        return found

    def given(self, form):
        """Return the changed values, with the revision that the form has shown as ``expected``."""
        given, revision = super().given(form), self.request.POST.get("expected")
        if revision is None:
            return given
        try:
            expected = REVISION.kind.from_text(revision)
        except ValueError as error:
            raise BadRequest(f"expected: {error}") from None
        return given | {"expected": expected} if given else {}

    def page_to_return_to(self):
        return reverse("atp:schedule", args=[self.kwargs["identifier"]])

    def after(self, subject):
        return reverse("atp:schedules") if self.verb.is_final else self.page_to_return_to()

    def name_of(self, subject):
        return f"schedule {subject}"

    def hidden(self, subject):
        revision = self.request.POST.get("expected", subject.revision)
        return [("expected", revision)] if self._edits else super().hidden(subject)

    def _page(self, subject, form, **context):
        if self._edits:
            context["schedule"] = reports.document(subject)
        return super()._page(subject, form, **context)


def _previewed(form):
    """Return the next runs under a form's values as context; add errors to the form."""
    form.is_valid()
    given = {name: form.cleaned_data.get(name) for name in _TIMES}
    changed = {name: given[name] for name in ("cron", "every") if name in form.changed_data}
    given |= changes_of(changed)
    # Ignore errors of other fields: they may not be filled in yet.
    for name in form.errors.keys() - set(_TIMES):
        del form.errors[name]
    if form.errors:
        return {"status": 422}
    try:
        timing = queue.timing(**{n: value for n, value in given.items() if value not in (None, "")})
        runs = reports.upcoming(timing, UPCOMING)
    except InvalidSchedule as error:
        tell(form, error)
        return {"status": problem_of(error).status}
    return {"runs": shown_runs(runs), "words": timing.words(), "of_zone": timing.timezone}
