"""API views for Types, Tasks, daemons, gates, limits and downstreams."""

from collections.abc import Sequence
from typing import Any

from django.http import Http404
from rest_framework import serializers as rest
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from .. import contracts, queue
from ..conf import settings
from ..downstreams import operations as downstreams
from ..exceptions import UnknownDaemon, UnknownType
from ..models import Daemon, Downstream, Gate, Task, Type
from ..operations.operation import Choice, Flag, Outcome, Text
from ..operations.registry import registry
from ..operations.table import DAEMON, DOWNSTREAM, OPERATIONS, TARGET, Level
from ..querysets import LANES_ORDER
from ..reports import documents, overview
from ..reports.statistics import utilisation_now
from ..text import did_you_mean
from ..web.filters import TaskFilter
from ..web.permissions import (
    CONTROL,
    EVERYTHING,
    VIEW_DAEMON,
    VIEW_DOWNSTREAM,
    VIEW_TASK,
    VIEW_TYPE,
    look_up,
    require,
)
from . import schema
from .base import OperationBody, ViewSet, is_uuid, with_operations
from .instances import ExplanationSerializer, explanation_response
from .problems import BODY, problem_with_errors
from .schema import (
    Filters,
    KindField,
    LaneQuery,
    Pages,
    TypeIdentifier,
    endpoint,
    page_of,
    path_parameter,
    query_of,
)
from .serializers import DaemonSerializer, DocumentSerializer, TaskSerializer

_GATES = {name: OPERATIONS[TARGET][name] for name in ("hold", "drop", "open")}
_LIMIT, _UNLIMIT = OPERATIONS[TARGET]["limit"], OPERATIONS[TARGET]["unlimit"]


class TypeSerializer(DocumentSerializer):
    identifier = schema.text()
    handler = schema.text("Where the function of the handler is, for display.")
    timeout = schema.seconds("A running attempt is killed after this; null is never.", null=True)
    max_restarts = schema.count("Attempts that may be lost while running.")
    max_retries = schema.count("Attempts that may raise and try again.")
    backoff = schema.seconds("Delay before the first retry.")
    backoff_max = schema.seconds("Longest delay before a retry.")
    retention = schema.seconds("Ended Instances are kept this long; null is for ever.", null=True)
    max_memory = schema.count(
        "In bytes; an attempt is killed when its processes take more. Null is no limit.", null=True
    )
    serializer = schema.text("How inputs are stored.")
    downstream = schema.text("The downstream that its handler calls, empty if none.")
    owner = schema.text("Who looks after it, empty if nobody is named.")
    runbook = schema.text("The address of a page about its failures, empty if there is none.")
    needs = rest.DictField(
        child=schema.text(), help_text="Labels that a daemon must have to run it."
    )
    resources = rest.DictField(
        child=schema.count(), help_text="What each attempt takes of the capacity of its daemon."
    )
    sensitive = schema.texts("Arguments that are masked wherever inputs are shown.")
    on_finished = schema.texts("Types enqueued when an Instance is FINISHED, some with inputs.")
    on_failed = schema.texts("Types enqueued when an Instance is FAILED, some with inputs.")
    late_writes = schema.count("Results refused so far, because their Task had been taken away.")
    registered = schema.time("When its parameters were last changed; null if never.", null=True)
    declared = schema.flag("Whether this server can enqueue it.")
    inputs_schema = schema.schema("Contract of the inputs")
    outputs_schema = schema.schema("Contract of what the handler returns")


class OutcomeSerializer(DocumentSerializer):
    told = schema.text("What was done.")

    @staticmethod
    def render(outcome: Outcome) -> dict[str, Any]:
        return {"told": outcome.told}


@with_operations(
    TARGET,
    VIEW_TYPE,
    lambda each: (each.id, each.said_of("a Type"), each.explanation),
    fits=lambda each: not each.of and Level.TYPE in each.levels,
    answer=OutcomeSerializer,
)
class TypeViewSet(ViewSet):
    """All Types: those in the database, and those that only this process's code declares."""

    tag = "types"
    lookup_field = "identifier"
    model = Type
    serializer_class = TypeSerializer
    path_parameters = (
        path_parameter("identifier", "The Type's identifier.", **TypeIdentifier.schema),
    )

    @endpoint("list_types", "All Types, by identifier", VIEW_TYPE)
    def list(self, request: Request) -> Response:
        return self.page_response(self._types().values())

    @endpoint("get_type", "One Type", VIEW_TYPE)
    def retrieve(self, request: Request, identifier: str) -> Response:
        types = self._types()
        if identifier not in types:
            hint = did_you_mean(identifier, types)
            raise UnknownType(f"There is no Type {identifier!r}.{hint}")
        declared = registry.get(identifier) if identifier in registry else None
        return Response(types[identifier] | contracts.document_of(declared))

    def _types(self) -> dict[str, dict[str, Any]]:
        """Return a dict from identifiers to documents, for all Types that the user may see."""
        types = {document["identifier"]: document for document in documents.types()}
        visible = self.visible((identifier, None) for identifier in types)
        return {identifier: types[identifier] for identifier, _ in visible}

    def find(self) -> tuple[str, None]:
        """Return the Type in the URL as a target, ``(identifier, None)``. Raises UnknownType."""
        return queue.get_type(self.kwargs["identifier"]).identifier, None

    def answer(self, target: tuple[str, None], outcome: Outcome) -> Response:
        return Response(OutcomeSerializer(outcome).data)

    @endpoint(
        "explain_type",
        "Why a Type or a lane does not run, and when an Instance would start",
        VIEW_TYPE,
        query=LaneQuery,
    )
    @action(detail=True, serializer_class=ExplanationSerializer)
    def explanation(self, request: Request, identifier: str) -> Response:
        collection = self.query.get("collection")
        lane = look_up(
            request.user,
            lambda: (queue.get_type(identifier).identifier, collection),
            *(Type, identifier, VIEW_TYPE),
        )
        return explanation_response(
            self, queue.get_type(identifier) if collection is None else lane
        )


class TaskViewSet(ViewSet):
    """The queue: the Tasks of each lane, in the order in which daemons claim them."""

    tag = "tasks"
    serializer_class = TaskSerializer
    pagination_class = Pages
    filter_backends = (Filters,)
    filterset_class = TaskFilter

    @endpoint(
        "list_tasks",
        "The queue: waiting Tasks, lane by lane in claiming order",
        VIEW_TASK,
        description="With `claimed=true`, the Tasks that daemons hold instead.",
        query=query_of(TaskFilter),
    )
    def list(self, request: Request) -> Response:
        tasks = Task.objects.using(settings.DATABASE).select_related("instance", "type", "daemon")
        rows = self.visible_rows(tasks).order_by(*LANES_ORDER)
        return self.page_response(self.filter_queryset(rows))


@with_operations(
    DAEMON,
    VIEW_DAEMON,
    lambda each: (
        f"{each.id}_daemon",
        f"Tell a daemon to {each.order.label}",
        f"{each.explanation} The daemon obeys within a second or two, and then changes its `mode`.",
    ),
)
class DaemonViewSet(ViewSet):
    """The daemons, and for each of their workers the attempt that it runs."""

    tag = "daemons"
    lookup_field = "uuid"
    model = Daemon
    serializer_class = DaemonSerializer
    path_parameters = (path_parameter("uuid", "The daemon's uuid.", type="string", format="uuid"),)

    def get_serializer_context(self) -> dict[str, Any]:
        context = super().get_serializer_context()
        # The views that drf-spectacular makes for the schema have a mark. They must not query the
        # database.
        if not getattr(self, "swagger_fake_view", False):
            context["now"] = now = overview.now()
            context["utilisation"] = utilisation_now(now)
        return context

    def find(self) -> Daemon:
        """Return the daemon whose uuid is in the URL. Raises UnknownDaemon."""
        uuid = self.kwargs["uuid"]
        if not is_uuid(uuid):
            raise UnknownDaemon(f"{uuid!r} is not a uuid, so there is no such daemon.")
        return queue.get_daemon(uuid)

    @endpoint("list_daemons", "All daemons, those longest running first", VIEW_DAEMON)
    def list(self, request: Request) -> Response:
        require(request.user, EVERYTHING, VIEW_DAEMON)
        return self.page_response(overview.daemons())

    @endpoint("get_daemon", "One daemon", VIEW_DAEMON)
    def retrieve(self, request: Request, uuid: str) -> Response:
        try:
            return Response(self.get_serializer(self.get_object()).data)
        except UnknownDaemon:
            raise Http404(f"There is no daemon {uuid}.") from None

    def answer(self, daemon: Daemon, outcome: Outcome) -> Response:
        return Response(self.get_serializer(outcome.value).data)


# Gates, limits and downstreams.


class GateSerializer(DocumentSerializer):
    type = schema.text("Identifier of the Type; null means all Types.", null=True)
    collection = schema.text("The lane of the Type; null means the whole Type.", null=True)
    mode = schema.word(("hold", "drop"), "Hold: Instances wait. Drop: they become FAILED.")
    reason = schema.text()
    who = schema.text("Who has set it, and through which channel.")
    since = schema.time()
    until = schema.time("When the gate opens by itself; null is never.", null=True)

    render = staticmethod(documents.gate)


class GatesSetSerializer(page_of(GateSerializer)):  # type: ignore[misc]
    """All gates that are shut after a change, and a sentence about the gate that was changed."""

    told = schema.text("What was done, the gate before, and other gates over the target.")
    was = GateSerializer(help_text="The gate that was shut before.", allow_null=True)


class LimitSerializer(DocumentSerializer):
    type = schema.text("Identifier of the Type.")
    collection = schema.text("The lane of the Type; null means the whole Type.", null=True)
    max_running = schema.count("The most Instances claimed at a time; null is no limit.", null=True)
    max_running_per_collection = schema.count(
        "The most Instances of each lane claimed at a time; null is no limit.",
        null=True,
    )
    rate = schema.text("Instances started per period, as `100/m`; empty is no limit.")
    burst = schema.count("The most Instances that the rate lets start at once after a pause.")
    weight = rest.FloatField(min_value=0, help_text="Share of the Type relative to others.")
    max_waiting = schema.count(
        "The most Instances that may wait; a further enqueue is refused. Null is no limit.",
        null=True,
    )
    max_wait = schema.seconds(
        "An enqueue is refused only if the oldest due Instance has waited longer; null: no limit.",
        null=True,
    )
    is_set = schema.flag("Whether an operator has set the limits; if not, the code declares them.")
    who = schema.text("Who has set it, and through which channel.")
    since = schema.time()

    render = staticmethod(documents.limit)


class LimitsSetSerializer(page_of(LimitSerializer)):  # type: ignore[misc]
    """All limits after a change. With `default`, also a sentence about the limits in force."""

    told = schema.text("With `default`, the limits in force, in words; otherwise empty.")


class SetGateSerializer(OperationBody):
    type = KindField(TypeIdentifier(), "Without it, the gate is over all Types.", allow_null=True)
    collection = KindField(Text(), "Only this lane of the Type; printable.", allow_null=True)
    mode = KindField(Choice(tuple(_GATES)), required=True)
    parameters = _GATES["hold"].parameters
    # A null means the same as an absent field.
    nullable = True


class SetLimitSerializer(OperationBody):
    type = KindField(TypeIdentifier(), "Identifier of the Type.", required=True)
    collection = KindField(Text(), "Only this lane of the Type; printable.", allow_null=True)
    default = KindField(Flag(), "Use the limits that the code declares; give no limits with it.")
    parameters = _LIMIT.parameters


class DownstreamSerializer(DocumentSerializer):
    name = schema.text()
    state = schema.text("Closed (healthy), throttled, open or half-open.")
    per_second = rest.FloatField(help_text="Calls a second, while throttled.")
    ceiling = rest.FloatField(allow_null=True, help_text="The highest rate; null is none.")
    floor = rest.FloatField(allow_null=True, help_text="The lowest rate; null is none.")
    not_before = schema.time("Handlers make no calls before this; null is at any time.", null=True)
    trips = schema.count("Outages in a row.")
    who = schema.text("Who has changed its state: a daemon, or an operator.")
    since = schema.time("When its state changed.")
    types = schema.texts("Identifiers of the Types that call it.")
    actions = schema.texts("Actions that the state allows: names of addresses below its own.")

    @staticmethod
    def render(row: Downstream) -> dict[str, Any]:
        actions = [each.name for each in OPERATIONS[DOWNSTREAM].values() if each.is_allowed(row)]
        return downstreams.downstream_document(row) | {"actions": actions}


@with_operations(
    DOWNSTREAM,
    VIEW_DOWNSTREAM,
    lambda each: (f"{each.id}_downstream", each.said_of("a downstream"), each.explanation),
)
class DownstreamViewSet(ViewSet):
    """The downstreams, which are the services that handlers call."""

    tag = "downstreams"
    lookup_field = "name"
    model = Downstream
    serializer_class = DownstreamSerializer
    path_parameters = (path_parameter("name", "The downstream's name.", **TypeIdentifier.schema),)

    def find(self) -> Downstream:
        return queue.get_downstream(self.kwargs["name"])

    def answer(self, row: Downstream, outcome: Outcome) -> Response:
        return Response(self.get_serializer(outcome.value).data)

    @endpoint("list_downstreams", "The services that handlers call", VIEW_DOWNSTREAM)
    def list(self, request: Request) -> Response:
        return self.page_response(self.visible(queue.downstreams()))

    @endpoint("get_downstream", "One downstream", VIEW_DOWNSTREAM)
    def retrieve(self, request: Request, name: str) -> Response:
        return Response(self.get_serializer(self.get_object()).data)


class GateViewSet(ViewSet):
    tag = "gates"
    serializer_class = GateSerializer

    def _shut_gates(self) -> Sequence[Gate]:
        """Return the shut gates that the user may see, including the gate over all Types."""
        gates = queue.gates()
        visible = self.visible(gates)
        # The gate over all Types also stops what the user may see.
        return [gate for gate in gates if gate.type_id is None or gate in visible]

    @endpoint("list_gates", "The gates that are shut", VIEW_TYPE)
    def list(self, request: Request) -> Response:
        return self.page_response(self._shut_gates())

    @endpoint(
        "set_gate",
        "Hold or drop waiting Instances, or open a gate",
        VIEW_TYPE,
        CONTROL,
        description="The gate is that of a Type, of a lane (with `collection`), or of everything "
        "(without `type`). The answer is all gates that are shut then, and the gate that was shut "
        "before. With `expected`, a gate that somebody else has set meanwhile stays.",
        body=SetGateSerializer,
        answer=GatesSetSerializer,
        problems=(404, 409),
    )
    def create(self, request: Request) -> Response:
        values = self.read_body("set")
        change = _GATES[values.pop("mode")]
        target = values.pop("type", None), values.pop("collection", None)
        values = {name: value for name, value in values.items() if value is not None}
        if "until" in values and change.name == "open":
            raise problem_with_errors(
                BODY, [("until", "This field is only for a gate that is shut.")]
            )
        outcome = self.perform(change, target, **values)
        gate: Any = outcome.value
        before = gate if change.name == "open" else gate.was
        was = None if before is None else self.get_serializer(before).data
        return self.page_response(self._shut_gates(), told=outcome.told, was=was)


class LimitViewSet(ViewSet):
    tag = "limits"
    serializer_class = LimitSerializer

    @endpoint("list_limits", "All limits, and the weights of Types", VIEW_TYPE)
    def list(self, request: Request) -> Response:
        return self.page_response(self.visible(queue.limits()))

    @endpoint(
        "set_limit",
        "Limit a Type or a lane, over all daemons",
        VIEW_TYPE,
        CONTROL,
        description="A limit that is not given stays; null removes it. With `default`, the limits "
        "that the code declares apply again. The answer is all limits that are set then.",
        body=SetLimitSerializer,
        answer=LimitsSetSerializer,
        problems=(404,),
    )
    def create(self, request: Request) -> Response:
        values = self.read_body("set")
        target = values.pop("type"), values.pop("collection", None)
        if not values.pop("default", False):
            self.perform(_LIMIT, target, **values)
            return self.page_response(self.visible(queue.limits()), told="")
        if values:
            raise problem_with_errors(
                BODY, [("default", "Give either the default or limits, not both.")]
            )
        outcome = self.perform(_UNLIMIT, target)
        return self.page_response(self.visible(queue.limits()), told=outcome.told)
