"""Schedules in the API: a list, a single one with its next runs and slots, and the verbs."""

from django.db import transaction
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers as rest
from rest_framework.decorators import action
from rest_framework.response import Response

from .. import queue
from ..api import schema
from ..api.base import Body, ViewSet, body_of, with_verbs
from ..api.schema import TypeIdentifier, Value, named, operation, page_of
from ..api.serializers import Document
from ..conf import settings
from ..models import Instance, Schedule
from ..operations.operation import Text
from ..operations.table import SCHEDULE, VERBS
from ..web import permissions
from ..web.permissions import API, CONTROL, ENQUEUE, VIEW_INPUTS, VIEW_SCHEDULE, actor
from . import reports
from .models import Missed, Outcome, Overlap
from .operations import PARAMETERS

UPCOMING, SLOTS = 10, 200
_CHANGE, _DELETE = (VERBS[SCHEDULE][name] for name in ("change", "delete"))


class RunSerializer(Document):
    at = schema.time("The slot, in UTC.")
    local = schema.text("The slot in the time zone of the schedule.")
    remark = schema.text("A remark if the clocks change around the slot; otherwise empty.")


class SlotSerializer(Document):
    at = schema.time("The time of the slot, or of the first of several, without jitter.")
    until = schema.time("The time of the last of several slots; null for one.", null=True)
    count = schema.count("Slots that share this outcome.")
    is_more = schema.flag("Whether there were more slots than were counted.")
    outcome = schema.word(Outcome.values)
    decided = schema.time()
    who = schema.text("Who has decided the outcome: a daemon, or an operator.")
    message = schema.text()
    instance = rest.UUIDField(
        allow_null=True, help_text="The Instance enqueued, or in the way; null once removed."
    )


class SchedulesSerializer(rest.ListSerializer):
    """A list of schedules, read with a fixed number of queries."""

    def to_representation(self, data):
        return _documents(self.context["request"], list(data))


class ScheduleSerializer(Document):
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
    most = schema.count("The most missed slots run with `all`, or Instances waiting with `queue`.")
    window = schema.seconds("Missed slots that are older are not run.")
    late_after = schema.seconds("A slot that is later counts as missed.")
    overlap = schema.word(Overlap.values, "What a slot does while the last Instance has not ended.")
    jitter = schema.seconds("The longest delay by which slots are spread.")
    start_before = schema.seconds(
        "Time after its slot by which an Instance must have started; null for none.", null=True
    )
    timeout = schema.seconds("Time-out of the Instances; null for that of the Type.", null=True)
    on_finished = schema.texts("Types enqueued when an Instance is FINISHED, some with inputs.")
    on_failed = schema.texts("Types enqueued when an Instance is FAILED, some with inputs.")
    next_at = schema.time("The next slot; null if it is retired.", null=True)
    last_slot = SlotSerializer(allow_null=True)
    missed_lately = schema.count("Slots of the last day that were MISSED.")
    skipped_lately = schema.count("Slots of the last day that were SKIPPED.")
    paused_since = schema.time(null=True)
    paused_until = schema.time("When the schedule resumes by itself.", null=True)
    paused_by = schema.text()
    paused_reason = schema.text()
    is_set = schema.flag("Whether an operator has set it; if not, the code declares it.")
    who = schema.text("Who has changed it last, and through which channel.")
    since = schema.time()
    revision = schema.count("The number of changes; `expected` is compared with it.")
    retired = schema.time("Since when no code declares it.", null=True)
    trouble = schema.text("Why it cannot be planned; otherwise empty.")
    actions = schema.texts("Actions that the state allows: names of addresses below its own.")
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

    def to_representation(self, instance):
        [found] = _documents(self.context["request"], [instance])
        return found


def _documents(request, rows):
    return [
        document
        | {"actions": _actions(row)}
        | ({} if permissions.holds(request.user, VIEW_INPUTS, row) else {"inputs": None})
        for document, row in zip(reports.documents_of(rows), rows, strict=True)
    ]


def _actions(row):
    verbs = VERBS[SCHEDULE].values()
    return [verb.name for verb in verbs if verb.method == "POST" and verb.is_allowed(row)]


def _enqueued(value):
    """Return ``enqueued`` and ``instances`` of a verb's value; {} if the verb enqueues nothing."""
    uuids = [value.uuid] if isinstance(value, Instance) else getattr(value, "instances", None)
    return {} if uuids is None else {"enqueued": len(uuids), "instances": list(uuids)}


class CreateScheduleSerializer(Body):
    identifier = Value(Text(), "Letters, digits and _ . : -", required=True)
    type = Value(TypeIdentifier(), "Identifier of a Type that is declared.", required=True)
    parameters = PARAMETERS


@with_verbs(
    SCHEDULE,
    VIEW_SCHEDULE,
    lambda verb: (f"{verb.id}_schedule", verb.said_of("a schedule"), verb.explanation),
)
class ScheduleViewSet(ViewSet):
    """The schedules, by identifier."""

    tag = "schedules"
    lookup_field = "identifier"
    model = Schedule
    serializer_class = ScheduleSerializer
    named = (named("identifier", "The schedule's identifier.", **TypeIdentifier.schema),)

    def find(self):
        return queue.get_schedule(self.kwargs["identifier"])

    def detail_of(self, row, **more):
        """Answer with one schedule and its next runs."""
        upcoming = {"upcoming": reports.upcoming_of(row, UPCOMING)}
        return Response(self.get_serializer(row).data | upcoming, **more)

    def answer(self, row, outcome):
        answer = self.detail_of(self.get_object())
        answer.data.update(_enqueued(outcome.value))
        return answer

    @operation("list_schedules", "All schedules, by identifier", VIEW_SCHEDULE)
    def list(self, request):
        return self.listed(self.seen(queue.schedules()))

    @operation("get_schedule", "One schedule, with its next runs", VIEW_SCHEDULE)
    def retrieve(self, request, identifier):
        return self.detail_of(self.get_object())

    @operation(
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
    def create(self, request):
        given = self.values("made")
        with transaction.atomic(using=settings.DATABASE):
            row = queue.create_schedule(
                given.pop("identifier"), given.pop("type"), by=actor(request, API), **given
            )
            # Its collection may be that of the Type.
            permissions.require(request.user, row, CONTROL, ENQUEUE)
        return self.detail_of(row, status=201)

    @operation(
        "change_schedule",
        "Change a schedule",
        VIEW_SCHEDULE,
        *_CHANGE.needs,
        description=_CHANGE.explanation,
        body=body_of(_CHANGE, "Schedule"),
        problems=(409,),
    )
    def partial_update(self, request, identifier):
        row, values = self.get_object(), self.values("changed")
        self.perform(_CHANGE, row, **values)
        return self.detail_of(self.get_object())

    @operation(
        "delete_schedule",
        "Remove a schedule",
        VIEW_SCHEDULE,
        *_DELETE.needs,
        description=_DELETE.explanation,
        problems=(409,),
    )
    def destroy(self, request, identifier):
        row = self.get_object()
        document = self.detail_of(row)
        self.perform(_DELETE, row)
        return document

    @operation(
        "list_slots",
        "The last slots of a schedule, the newest first",
        VIEW_SCHEDULE,
        description=f"At most {SLOTS} slots.",
        answer=page_of(SlotSerializer),
    )
    @action(detail=True, serializer_class=SlotSerializer)
    def slots(self, request, identifier):
        rows = queue.slots(self.get_object().identifier, limit=SLOTS)
        return self.listed(reports.slots(rows))
