"""Schedules on the pages: list, one, forms with a preview of the next runs."""

from datetime import UTC, datetime

from django.conf import settings as project
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.db import transaction
from django.shortcuts import redirect
from django.urls import reverse

from .. import queue
from ..conf import settings
from ..exceptions import ATPError, InvalidSchedule, ScheduleChanged
from ..models import Instance, LogRecord, Schedule, Slot
from ..operations.operation import Parameter, Text
from ..operations.registry import is_enqueueable, registry
from ..operations.table import SCHEDULE, VERBS
from ..pages.base import Page, shown_inputs
from ..pages.instances import as_json, sketch
from ..pages.operations import VerbPage, form_of, names_in, tell
from ..reports import overview
from ..web import permissions
from ..web.permissions import PAGE, actor
from ..web.problems import problem_of
from . import reports
from .declaring import changes_of
from .models import Missed, Overlap
from .operations import PARAMETERS, REVISION

# The pages of schedules: their next runs, and the outcomes of their slots.

# The most slots in the strip and in the table, log records, and next runs.
STRIP, SLOTS, LOG, UPCOMING = 200, 50, 50, 10


class SchedulesPage(Page):
    permissions = (permissions.VIEW_SCHEDULE,)
    template_name = "atp/schedules.html"

    def get(self, request):
        may_make = self.may(permissions.VIEW_TYPE, permissions.CONTROL, permissions.ENQUEUE)
        declared = (type.identifier for type in registry)
        return self.show(
            now=overview.now(),
            schedules=[
                each
                for each in reports.documents()
                if self.seen([(each["type"], each["collection"])])
            ],
            types=sorted(filter(self._may_make, declared)) if may_make else [],
        )

    def _may_make(self, type):
        """Return whether the user may make a schedule of some lane of a Type."""
        names = (permissions.CONTROL, permissions.ENQUEUE)
        return is_enqueueable(type) and self.touches(type, *names)


class SchedulePage(Page):
    permissions = (permissions.VIEW_SCHEDULE,)
    template_name = "atp/schedule.html"

    def get(self, request, identifier):
        row = self.look_up(Schedule, identifier, lambda: queue.get_schedule(identifier))
        slots = list(_own(Slot).filter(schedule=row).order_by("-at")[:STRIP])
        keys = [slot.instance_id for slot in slots[:SLOTS]] + [row.last_id]
        instances = self._instances(keys)
        for slot in slots[:SLOTS]:
            slot.instance = instances.get(slot.instance_id)
            slot.late = slot.decided - (slot.until or slot.at)
        return self.show(
            now=overview.now(),
            schedule=reports.document(row),
            row=row,
            last=instances.get(row.last_id),
            in_line=reports.in_line(row),
            verbs=self._verbs(row),
            runs=shown_runs(reports.upcoming_of(row, UPCOMING)),
            latest=slots,
            slots=slots[:SLOTS],
            inputs=shown_inputs(row) if self.may(permissions.VIEW_INPUTS) else None,
            log=_log(row) if self.may(permissions.VIEW_LOG) else None,
        )

    def _instances(self, keys):
        """Return the Instances with these keys, by key, that the rule lets the user see."""
        rows = self.narrowed(_own(Instance), permissions.VIEW_INSTANCE)
        return rows.in_bulk([key for key in keys if key is not None])

    def _verbs(self, row):
        verbs = VERBS[SCHEDULE].values()
        return [verb for verb in verbs if verb.is_allowed(row) and self.may(*verb.needs)]


def shown_runs(runs):
    """Return runs with their times as text, ``local`` in the schedule's zone and ``utc``."""
    return [run | {"local": _of_zone(run["local"]), "utc": _of_utc(run["at"])} for run in runs]


def _of_zone(text):
    local = datetime.fromisoformat(text)
    return f"{local:%a} {local.isoformat(' ', 'seconds')}"


def _of_utc(time):
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _log(row):
    return list(_own(LogRecord).about(f"schedule:{row.identifier}").reverse()[:LOG])


def _own(model):
    return model.objects.using(settings.DATABASE)


# The forms that make and change schedules, with a preview of the next runs; other verbs.

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
                permissions.require(request.user, made, *needs)
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
