"""The REST API for schedules: list, read, create, change and delete them, and act on them."""

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers as rest
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from .. import queue
from ..api import schema
from ..api.base import OperationBody, ViewSet, body_of, with_operations
from ..api.schema import KindField, TypeIdentifier, endpoint, page_of, path_parameter
from ..api.serializers import DocumentSerializer
from ..conf import settings
from ..models import Instance, Schedule
from ..operations.operation import Outcome as OperationOutcome
from ..operations.operation import Text
from ..operations.table import OPERATIONS, SCHEDULE
from ..web import permissions
from ..web.permissions import API, CONTROL, ENQUEUE, VIEW_INPUTS, VIEW_SCHEDULE, actor
from . import reports
from .models import Missed, Outcome, Overlap
from .operations import PARAMETERS

UPCOMING, SLOTS = 10, 200
_CHANGE, _DELETE = (OPERATIONS[SCHEDULE][name] for name in ("change", "delete"))


class RunSerializer(DocumentSerializer):
    at = schema.time("The slot, in UTC.")
    local = schema.text("The slot in the time zone of the schedule.")
    remark = schema.text("A remark if the clocks change around the slot; otherwise empty.")


class SlotSerializer(DocumentSerializer):
    at = schema.time("The time of the slot, or of the first of several, without jitter.")
    until = schema.time("The time of the last of several slots; null for one.", null=True)
    count = schema.count("Slots that share this outcome.")
    is_more = schema.flag("True if there were more slots than were counted.")
    outcome = schema.word(Outcome.values)
    decided = schema.time()
    who = schema.text("The daemon or operator that decided the outcome.")
    message = schema.text()
    instance = rest.UUIDField(
        allow_null=True,
        help_text="The Instance that was enqueued, or that had not ended; null once removed.",
    )


class SchedulesSerializer(rest.ListSerializer):
    """Serializes a list of schedules with a fixed number of queries."""

    def to_representation(self, data: Iterable[Schedule]) -> list[dict[str, Any]]:
        return _documents(self.context["request"], list(data))


class ScheduleSerializer(DocumentSerializer):
    identifier = schema.text()
    type = schema.text("Identifier of the Type that is enqueued.")
    state = schema.text("Active, paused, in trouble or retired.")
    words = schema.text("When it runs, in words.")
    cron = schema.text("Five fields or a nickname; empty with `every`.")
    every = schema.seconds(
        "The time between slots, aligned to the Unix epoch; null with `cron`.", null=True
    )
    timezone = schema.text("Time zone of the cron expression.")
    inputs = rest.JSONField(
        help_text="Keyword arguments of the handler; null for a pickle, and for users without "
        "`atp.view_inputs`."
    )
    collection = schema.text()
    priority = rest.IntegerField()
    missed = schema.word(Missed.values, "Which missed slots are run.")
    most = schema.count(
        "Maximum of missed slots that `all` runs, or of waiting Instances with `queue`."
    )
    window = schema.seconds("Missed slots that are older are not run.")
    late_after = schema.seconds("A slot that is later counts as missed.")
    overlap = schema.word(Overlap.values, "What a slot does while the last Instance has not ended.")
    jitter = schema.seconds("The maximum delay of a slot; it spreads slots over time.")
    start_before = schema.seconds(
        "Time within which an Instance must start after its slot; null for no limit.", null=True
    )
    timeout = schema.seconds("Time-out of the Instances; null for that of the Type.", null=True)
    on_finished = schema.texts("Types enqueued when an Instance is FINISHED, some with inputs.")
    on_failed = schema.texts("Types enqueued when an Instance is FAILED, some with inputs.")
    next_at = schema.time("The next slot; null if the schedule is retired.", null=True)
    last_slot = SlotSerializer(allow_null=True)
    missed_lately = schema.count("Slots of the last day that were MISSED.")
    skipped_lately = schema.count("Slots of the last day that were SKIPPED.")
    paused_since = schema.time(null=True)
    paused_until = schema.time("When the schedule resumes automatically.", null=True)
    paused_by = schema.text()
    paused_reason = schema.text()
    is_set = schema.flag(
        "True if an operator has set the schedule; otherwise the code declares it."
    )
    who = schema.text("Who made the last change, and through which channel.")
    since = schema.time()
    revision = schema.count("The number of changes; `expected` is compared with it.")
    retired = schema.time("Since when no code declares the schedule.", null=True)
    trouble = schema.text("Why daemons cannot plan the schedule; otherwise empty.")
    actions = schema.texts("Actions that the state allows, as last parts of their URLs.")
    upcoming = RunSerializer(many=True, required=False, help_text="Next runs. Not given in lists.")
    enqueued = schema.count(
        "The number of `instances`. Given only after `run` and `backfill`.", absent=True
    )
    instances = rest.ListField(
        child=rest.UUIDField(),
        required=False,
        help_text="Uuids of the enqueued Instances. Given only after `run` and `backfill`.",
    )

    class Meta:
        list_serializer_class = SchedulesSerializer

    def to_representation(self, instance: Schedule) -> dict[str, Any]:
        [document] = _documents(self.context["request"], [instance])
        return document


def _documents(request: Request, rows: list[Schedule]) -> list[dict[str, Any]]:
    return [
        document
        | {"actions": _allowed_actions(row)}
        | ({} if permissions.holds(request.user, VIEW_INPUTS, row) else {"inputs": None})
        for document, row in zip(reports.schedule_documents(rows), rows, strict=True)
    ]


def _allowed_actions(row: Schedule) -> list[str]:
    posted = (each for each in OPERATIONS[SCHEDULE].values() if each.method == "POST")
    return [each.name for each in posted if each.is_allowed(row)]


def _enqueued_keys(value: Any) -> dict[str, Any]:
    """Return the keys ``enqueued`` and ``instances`` for the result of an operation.

    ``value`` is the result. Return {} if the operation enqueues nothing.
    """
    uuids = [value.uuid] if isinstance(value, Instance) else getattr(value, "instances", None)
    return {} if uuids is None else {"enqueued": len(uuids), "instances": list(uuids)}


class CreateScheduleSerializer(OperationBody):
    identifier = KindField(Text(), "Letters, digits and _ . : -", required=True)
    type = KindField(TypeIdentifier(), "Identifier of a Type that is declared.", required=True)
    parameters = PARAMETERS


@with_operations(
    SCHEDULE,
    VIEW_SCHEDULE,
    lambda each: (f"{each.id}_schedule", each.said_of("a schedule"), each.explanation),
)
class ScheduleViewSet(ViewSet):
    """The endpoints for schedules, which clients address by identifier."""

    tag = "schedules"
    lookup_field = "identifier"
    model = Schedule
    serializer_class = ScheduleSerializer
    path_parameters = (
        path_parameter("identifier", "The schedule's identifier.", **TypeIdentifier.schema),
    )

    def find(self) -> Schedule:
        return queue.get_schedule(self.kwargs["identifier"])

    def detail_response(self, row: Schedule, **more: Any) -> Response:
        """Return the response that shows one schedule with its next runs."""
        upcoming = {"upcoming": reports.upcoming_of(row, UPCOMING)}
        return Response(self.get_serializer(row).data | upcoming, **more)

    def answer(self, row: Schedule, outcome: OperationOutcome) -> Response:
        response = self.detail_response(self.get_object())
        response.data.update(_enqueued_keys(outcome.value))
        return response

    @endpoint("list_schedules", "All schedules, by identifier", VIEW_SCHEDULE)
    def list(self, request: Request) -> Response:
        return self.page_response(self.visible(queue.schedules()))

    @endpoint("get_schedule", "One schedule, with its next runs", VIEW_SCHEDULE)
    def retrieve(self, request: Request, identifier: str) -> Response:
        return self.detail_response(self.get_object())

    @endpoint(
        "create_schedule",
        "Make a schedule",
        VIEW_SCHEDULE,
        CONTROL,
        ENQUEUE,
        description="Its Type must be declared. Give either `cron` or `every`.",
        body=CreateScheduleSerializer,
        answer={201: OpenApiResponse(ScheduleSerializer, "The schedule.")},
        problems=(404, 409),
    )
    def create(self, request: Request) -> Response:
        values = self.read_body("made")
        with transaction.atomic(using=settings.DATABASE):
            row = queue.create_schedule(
                values.pop("identifier"), values.pop("type"), by=actor(request, API), **values
            )
            # Its collection may be that of the Type.
            permissions.require(request.user, row, CONTROL, ENQUEUE)
        return self.detail_response(row, status=201)

    @endpoint(
        "change_schedule",
        "Change a schedule",
        VIEW_SCHEDULE,
        *_CHANGE.needs,
        description=_CHANGE.explanation,
        body=body_of(_CHANGE, "Schedule"),
        problems=(409,),
    )
    def partial_update(self, request: Request, identifier: str) -> Response:
        row, values = self.get_object(), self.read_body("changed")
        self.perform(_CHANGE, row, **values)
        return self.detail_response(self.get_object())

    @endpoint(
        "delete_schedule",
        "Remove a schedule",
        VIEW_SCHEDULE,
        *_DELETE.needs,
        description=_DELETE.explanation,
        problems=(409,),
    )
    def destroy(self, request: Request, identifier: str) -> Response:
        row = self.get_object()
        response = self.detail_response(row)
        self.perform(_DELETE, row)
        return response

    @endpoint(
        "list_slots",
        "The last slots of a schedule, the newest first",
        VIEW_SCHEDULE,
        description=f"At most {SLOTS} slots.",
        answer=page_of(SlotSerializer),
    )
    @action(detail=True, serializer_class=SlotSerializer)
    def slots(self, request: Request, identifier: str) -> Response:
        rows = queue.slots(self.get_object().identifier, limit=SLOTS)
        return self.page_response(reports.slots(rows))
