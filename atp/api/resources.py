"""Types, Tasks and daemons in the API."""

from django.http import Http404
from rest_framework.decorators import action
from rest_framework.response import Response

from .. import contracts, queue
from ..conf import settings
from ..exceptions import UnknownDaemon, UnknownType
from ..models import Daemon, Task, Type
from ..reports import documents, overview
from ..rows.querysets import LANES_ORDER
from ..verbs.registry import registry
from ..verbs.table import DAEMON, SCOPE
from ..verbs.table.scopes import Level
from ..web.authorization import EVERYTHING, look_up, require
from ..web.filters import TaskFilter
from ..web.permissions import VIEW_DAEMON, VIEW_TASK, VIEW_TYPE
from ..words.hints import did_you_mean
from . import fields
from .base import ViewSet, is_uuid, with_verbs
from .fields import TypeIdentifier
from .parts import ExplanationSerializer, explained
from .queries import Filters, LaneQuery, Pages, query_of
from .schema import named, operation
from .serializers import DaemonSerializer, Document, TaskSerializer


class TypeSerializer(Document):
    identifier = fields.text()
    handler = fields.text("Where the function of the handler is, for display.")
    timeout = fields.seconds("A running attempt is killed after this; null is never.", null=True)
    max_restarts = fields.count("Attempts that may be lost while running.")
    max_retries = fields.count("Attempts that may raise and try again.")
    backoff = fields.seconds("Delay before the first retry.")
    backoff_max = fields.seconds("Longest delay before a retry.")
    retention = fields.seconds("Ended Instances are kept this long; null is for ever.", null=True)
    max_memory = fields.count(
        "In bytes; an attempt is killed when its processes take more. Null is no limit.", null=True
    )
    serializer = fields.text("How inputs are stored.")
    downstream = fields.text("The downstream that its handler calls, empty if none.")
    owner = fields.text("Who looks after it, empty if nobody is named.")
    runbook = fields.text("The address of a page about its failures, empty if there is none.")
    sensitive = fields.texts("Arguments that are masked wherever inputs are shown.")
    on_finished = fields.texts("Types enqueued when an Instance is FINISHED, some with inputs.")
    on_failed = fields.texts("Types enqueued when an Instance is FAILED, some with inputs.")
    late_writes = fields.count("Results refused so far, because their Task had been taken away.")
    registered = fields.time("When its parameters were last changed; null if never.", null=True)
    declared = fields.flag("Whether this server can enqueue it.")
    inputs_schema = fields.schema("Contract of the inputs")
    outputs_schema = fields.schema("Contract of what the handler returns")


class OutcomeSerializer(Document):
    told = fields.text("What was done.")

    @staticmethod
    def render(outcome):
        return {"told": outcome.told}


@with_verbs(
    SCOPE,
    VIEW_TYPE,
    lambda verb: (verb.id, verb.said_of("a Type"), verb.explanation),
    fits=lambda verb: not verb.of and Level.TYPE in verb.levels,
    answer=OutcomeSerializer,
)
class TypeViewSet(ViewSet):
    """The Types, registered or only declared."""

    tag = "types"
    lookup_field = "identifier"
    model = Type
    serializer_class = TypeSerializer
    named = (named("identifier", "The Type's identifier.", **TypeIdentifier.schema),)

    @operation("list_types", "All Types, by identifier", VIEW_TYPE)
    def list(self, request):
        return self.listed(self._types().values())

    @operation("get_type", "One Type", VIEW_TYPE)
    def retrieve(self, request, identifier):
        types = self._types()
        if identifier not in types:
            hint = did_you_mean(identifier, types)
            raise UnknownType(f"There is no Type {identifier!r}.{hint}")
        declared = registry.get(identifier) if identifier in registry else None
        return Response(types[identifier] | contracts.document_of(declared))

    def _types(self):
        """Return the documents of the Types that the user may see, by identifier."""
        found = {document["identifier"]: document for document in documents.types()}
        seen = self.seen((identifier, None) for identifier in found)
        return {identifier: found[identifier] for identifier, _ in seen}

    def find(self):
        """Return the scope of the whole Type: ``(identifier, None)``. Raises UnknownType."""
        return queue.get_type(self.kwargs["identifier"]).identifier, None

    def answer(self, scope, outcome):
        return Response(OutcomeSerializer(outcome).data)

    @operation(
        "explain_type",
        "Why a Type or a lane does not run, and when an Instance would start",
        VIEW_TYPE,
        query=LaneQuery,
    )
    @action(detail=True, serializer_class=ExplanationSerializer)
    def explanation(self, request, identifier):
        collection = self.query.get("collection")
        lane = look_up(
            request.user,
            lambda: (queue.get_type(identifier).identifier, collection),
            *(Type, identifier, VIEW_TYPE),
        )
        return explained(self, queue.get_type(identifier) if collection is None else lane)


class TaskViewSet(ViewSet):
    """The queue: Tasks of each lane in the order in which they are claimed."""

    tag = "tasks"
    serializer_class = TaskSerializer
    pagination_class = Pages
    filter_backends = (Filters,)
    filterset_class = TaskFilter

    @operation(
        "list_tasks",
        "The queue: waiting Tasks, lane by lane in claiming order",
        VIEW_TASK,
        description="With `claimed=true`, the Tasks that daemons hold instead.",
        query=query_of(TaskFilter),
    )
    def list(self, request):
        rows = Task.objects.using(settings.DATABASE).select_related("instance", "type", "daemon")
        return self.listed(self.filter_queryset(self.narrowed(rows).order_by(*LANES_ORDER)))


@with_verbs(
    DAEMON,
    VIEW_DAEMON,
    lambda verb: (
        f"{verb.id}_daemon",
        f"Tell a daemon to {verb.order.label}",
        f"{verb.explanation} The daemon obeys within a second or two, and then changes its `mode`.",
    ),
)
class DaemonViewSet(ViewSet):
    """The daemons, and the attempt that each of their workers runs."""

    tag = "daemons"
    lookup_field = "uuid"
    model = Daemon
    serializer_class = DaemonSerializer
    named = (named("uuid", "The daemon's uuid.", type="string", format="uuid"),)

    def get_serializer_context(self):
        context = super().get_serializer_context()
        # drf-spectacular marks the views that it makes for the schema. They ask no database.
        if not getattr(self, "swagger_fake_view", False):
            context["now"] = overview.now()
        return context

    def find(self):
        """Return the daemon whose uuid is in the URL. Raises UnknownDaemon."""
        uuid = self.kwargs["uuid"]
        if not is_uuid(uuid):
            raise UnknownDaemon(f"{uuid!r} is not a uuid, so there is no such daemon.")
        return queue.get_daemon(uuid)

    @operation("list_daemons", "All daemons, those longest running first", VIEW_DAEMON)
    def list(self, request):
        require(request.user, EVERYTHING, VIEW_DAEMON)
        return self.listed(overview.daemons())

    @operation("get_daemon", "One daemon", VIEW_DAEMON)
    def retrieve(self, request, uuid):
        try:
            return Response(self.get_serializer(self.get_object()).data)
        except UnknownDaemon:
            raise Http404(f"There is no daemon {uuid}.") from None

    def answer(self, daemon, outcome):
        return Response(self.get_serializer(outcome.value).data)
