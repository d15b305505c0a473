"""The pages for schedules: a list, a page for each schedule, and forms with a preview of runs."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.conf import settings as project
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.db import transaction
from django.forms import Form
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from .. import queue
from ..conf import settings
from ..exceptions import ATPError, InvalidSchedule, ScheduleChanged
from ..models import Instance, LogRecord, Schedule, Slot
from ..operations.operation import Parameter, Text
from ..operations.registry import Declaration, is_enqueueable, registry
from ..operations.table import OPERATIONS, SCHEDULE
from ..pages.base import Page, show_inputs
from ..pages.instances import as_json, sketch
from ..pages.operations import (
    KindForm,
    OperationPage,
    add_operation_error,
    field_names,
    make_form_class,
)
from ..reports import overview
from ..web import permissions
from ..web.permissions import PAGE, actor
from ..web.problems import status_of
from . import reports
from .declaring import complete_changes
from .models import Missed, Overlap
from .operations import PARAMETERS, REVISION

# The most slots in the strip and in the table, log records, and next runs.
STRIP, SLOTS, LOG, UPCOMING = 200, 50, 50, 10
_IDENTIFIER = Parameter(
    name="identifier", kind=Text(), help="Unique among the schedules.", is_required=True
)
_TIMES = ("cron", "every", "timezone")


class SchedulesPage(Page):
    """The page that lists all schedules that the user may see."""

    permissions = (permissions.VIEW_SCHEDULE,)
    template_name = "atp/schedules.html"

    def get(self, request: HttpRequest) -> HttpResponseBase:
        may_create = self.may(permissions.VIEW_TYPE, permissions.CONTROL, permissions.ENQUEUE)
        declared = (type.identifier for type in registry)
        return self.show(
            now=overview.now(),
            schedules=[
                each
                for each in reports.documents()
                if self.filter_permitted([(each["type"], each["collection"])])
            ],
            types=sorted(filter(self._may_create_for, declared)) if may_create else [],
        )

    def _may_create_for(self, type: str) -> bool:
        """Return True if the user may create a schedule for at least one lane of a Type."""
        names = (permissions.CONTROL, permissions.ENQUEUE)
        return is_enqueueable(type) and self.touches(type, *names)


class SchedulePage(Page):
    """The page of a schedule, with its next runs and the outcomes of its slots."""

    permissions = (permissions.VIEW_SCHEDULE,)
    template_name = "atp/schedule.html"

    def get(self, request: HttpRequest, identifier: str) -> HttpResponseBase:
        row = self.look_up(Schedule, identifier, lambda: queue.get_schedule(identifier))
        decided = Slot.objects.using(settings.DATABASE).filter(schedule=row)
        slots: list[Any] = list(decided.order_by("-at")[:STRIP])
        keys = [slot.instance_id for slot in slots[:SLOTS]] + [row.last_id]
        instances = self._visible_instances(keys)
        for slot in slots[:SLOTS]:
            slot.instance = instances.get(slot.instance_id)
            slot.late = slot.decided - (slot.until or slot.at)
        return self.show(
            now=overview.now(),
            schedule=reports.document(row),
            row=row,
            last=instances.get(row.last_id) if row.last_id else None,
            in_line=reports.in_line(row),
            verbs=self._allowed_operations(row),
            runs=shown_runs(reports.upcoming_of(row, UPCOMING)),
            latest=slots,
            slots=slots[:SLOTS],
            inputs=show_inputs(row) if self.may(permissions.VIEW_INPUTS) else None,
            log=_find_log(row) if self.may(permissions.VIEW_LOG) else None,
        )

    def _visible_instances(self, keys: Iterable[int | None]) -> dict[int, Instance]:
        """Return those of the Instances with these primary keys that the user may see, by key."""
        instances = Instance.objects.using(settings.DATABASE)
        rows = self.narrow_rows(instances, permissions.VIEW_INSTANCE)
        return rows.in_bulk([key for key in keys if key is not None])

    def _allowed_operations(self, row: Schedule) -> list[Any]:
        verbs = OPERATIONS[SCHEDULE].values()
        return [verb for verb in verbs if verb.is_allowed(row) and self.may(*verb.needs)]


def shown_runs(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the times of runs as text: ``local`` in the schedule's time zone, and ``utc``."""
    return [
        run | {"local": _format_local(run["local"]), "utc": _format_utc(run["at"])} for run in runs
    ]


def _format_local(text: str) -> str:
    local = datetime.fromisoformat(text)
    return f"{local:%a} {local.isoformat(' ', 'seconds')}"


def _format_utc(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _find_log(row: Schedule) -> list[LogRecord]:
    records = LogRecord.objects.using(settings.DATABASE).about(f"schedule:{row.identifier}")
    return list(records.reverse()[:LOG])


# The forms that create and change schedules, with a preview of the next runs; other operations.

_ScheduleFields: Any = make_form_class((_IDENTIFIER, *PARAMETERS))


class ScheduleForm(_ScheduleFields):
    def filled_values(self) -> dict[str, Any]:
        """Return the values of all fields that are not empty, and always the collection.

        The collection "" means that the Instances have no collection.
        """
        values = {name: self.cleaned_data[name] for name in self.fields}
        return {
            name: value
            for name, value in values.items()
            if value is not None and (value != "" or name == "collection")
        }


class NewSchedulePage(Page):
    """The page that creates a schedule for a Type that this process declares."""

    permissions = (
        *(permissions.VIEW_TYPE, permissions.VIEW_SCHEDULE),
        *(permissions.CONTROL, permissions.ENQUEUE),
    )
    template_name = "atp/new_schedule.html"
    fields = ("preview", *field_names(ScheduleForm))

    def get(self, request: HttpRequest, identifier: str) -> HttpResponseBase:
        self.check_touches(identifier, permissions.CONTROL, permissions.ENQUEUE)
        declared = queue.declared(identifier)
        return self._show_form(declared, ScheduleForm(initial=_initial_values(declared)))

    def post(self, request: HttpRequest, identifier: str) -> HttpResponseBase:
        self.check_touches(identifier, permissions.CONTROL, permissions.ENQUEUE)
        declared = queue.declared(identifier)
        form = ScheduleForm(request.POST)
        if "preview" in request.POST:
            return self._show_form(declared, form, **_preview(form))
        if not form.is_valid():
            return self._show_form(declared, form, status=422)
        values = form.filled_values()
        try:
            with transaction.atomic(using=settings.DATABASE):
                created = queue.create_schedule(
                    values.pop("identifier"), declared.identifier, by=actor(request, PAGE), **values
                )
                needs = (permissions.CONTROL, permissions.ENQUEUE)
                permissions.require(request.user, created, *needs)
        except ATPError as error:
            is_taken = isinstance(error, ScheduleChanged)
            form.add_error("identifier", str(error)) if is_taken else add_operation_error(
                form, error
            )
            return self._show_form(declared, form, status=status_of(error))
        messages.success(request, "The schedule is created.", fail_silently=True)
        return redirect("atp:schedule", created.identifier)

    def _show_form(
        self, declared: Declaration, form: ScheduleForm, **context: Any
    ) -> HttpResponseBase:
        signature = f"{declared.identifier}{declared.signature}"
        now = overview.now()
        return self.show(declared=declared, form=form, signature=signature, now=now, **context)


def _initial_values(declared: Declaration) -> dict[str, Any]:
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


class ScheduleOperationPage(OperationPage):
    kind = SCHEDULE
    model = Schedule
    key = "identifier"
    view_permission = permissions.VIEW_SCHEDULE

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        names = super().fields
        return ("preview", "expected", *names) if self._is_change else names

    @property
    def _is_change(self) -> bool:
        return self.verb.name == "change"

    def find(self) -> Schedule:
        return queue.get_schedule(self.kwargs["identifier"])

    def check_allowed(self, subject: Schedule) -> None:
        if not self.verb.is_allowed(subject):
            state = reports.state(subject, overview.now())
            raise InvalidSchedule(
                f"{subject}: “{self.verb.label}” is not possible because the schedule is {state}."
            )

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if not (self._is_change and "preview" in request.POST):
            return super().post(request, **kwargs)
        subject = self._find_subject()
        form = make_form_class(self.verb.parameters)(request.POST)
        return self._show_form(subject, form, **_preview(form))

    def initial_values(self, subject: Schedule) -> dict[str, Any]:
        """Return the initial values of the form; hide the inputs if the user may not see them."""
        values = super().initial_values(subject)
        if not self.may(permissions.VIEW_INPUTS):
            values.pop("inputs", None)
        return values

    def arguments(self, form: KindForm) -> dict[str, Any]:
        """Return the values that the user has changed, and the schedule's revision as ``expected``.

        The revision is the one that the user saw on the page with the form.
        """
        values, revision = super().arguments(form), self.request.POST.get("expected")
        if revision is None:
            return values
        try:
            expected = REVISION.kind.from_text(revision)
        except ValueError as error:
            raise BadRequest(f"expected: {error}") from None
        return values | {"expected": expected} if values else {}

    def page_to_return_to(self) -> str:
        return reverse("atp:schedule", args=[self.kwargs["identifier"]])

    def address_after(self, subject: Schedule) -> str:
        return reverse("atp:schedules") if self.verb.is_final else self.page_to_return_to()

    def heading(self, subject: Schedule) -> str:
        return f"schedule {subject}"

    def hidden_fields(self, subject: Schedule) -> list[tuple[str, Any]]:
        revision = self.request.POST.get("expected", subject.revision)
        return [("expected", revision)] if self._is_change else super().hidden_fields(subject)

    def _show_form(self, subject: Schedule, form: Form, **context: Any) -> HttpResponseBase:
        if self._is_change:
            context["schedule"] = reports.document(subject)
        return super()._show_form(subject, form, **context)


def _preview(form: Form) -> dict[str, Any]:
    """Return the template context with the next runs for a form; add errors to the form."""
    form.is_valid()
    values = {name: form.cleaned_data.get(name) for name in _TIMES}
    times = ("cron", "every")
    changed: dict[str, Any] = {name: values[name] for name in times if name in form.changed_data}
    values |= complete_changes(changed)
    # Ignore errors in other fields: the user may not have filled them in yet.
    for name in form.errors.keys() - set(_TIMES):
        del form.errors[name]
    if form.errors:
        return {"status": 422}
    try:
        filled = {name: value for name, value in values.items() if value not in (None, "")}
        timing = queue.timing(**filled)
        runs = reports.upcoming(timing, UPCOMING)
    except InvalidSchedule as error:
        add_operation_error(form, error)
        return {"status": status_of(error)}
    return {"runs": shown_runs(runs), "words": timing.words(), "of_zone": timing.timezone}
