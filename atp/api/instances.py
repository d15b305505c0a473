"""Instances in the API: a list, a single one with its parts, enqueueing, and the verbs."""

import math

from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from drf_spectacular.utils import OpenApiResponse
from rest_framework.exceptions import Throttled
from rest_framework.response import Response

from .. import queue
from ..conf import settings
from ..exceptions import UnknownInstance
from ..models import Instance, Type
from ..reports import overview
from ..verbs import changing
from ..verbs.table import INSTANCE, VERBS
from ..web.filters import InstanceFilter
from ..web.permissions import ENQUEUE, VIEW_INPUTS, VIEW_INSTANCE
from . import enqueueing
from .base import ViewSet, body_of, is_uuid, with_verbs
from .parts import Parts
from .queries import Filters, Pages, WaitQuery, query_of
from .schema import header, named, one_or_many, operation
from .serializers import InstanceDetailSerializer, InstanceSerializer
from .waiting.pending import pending
from .waiting.slots import THREADS, let_connections_go, look, most_threads, turns

_CHANGE, _DELETE = VERBS[INSTANCE]["change"], VERBS[INSTANCE]["delete"]
ENQUEUED = one_or_many({"$ref": "#/components/schemas/Instance"})


@with_verbs(
    INSTANCE, VIEW_INSTANCE, lambda verb: (verb.id, verb.said_of("an Instance"), verb.explanation)
)
class InstanceViewSet(Parts, ViewSet):
    tag = "instances"
    lookup_field = "uuid"
    model = Instance
    serializer_class = InstanceSerializer
    pagination_class = Pages
    filter_backends = (Filters,)
    filterset_class = InstanceFilter
    named = (
        named("uuid", "The Instance's uuid.", type="string", format="uuid"),
        named(
            "number",
            "The place of the file among those published, from 0.",
            type="integer",
            minimum=0,
            maximum=2**31 - 1,
        ),
    )
    # False if requests with ``?wait=`` take too many threads already.
    is_admitted = True

    def get_queryset(self):
        rows = self.narrowed(Instance.objects.using(settings.DATABASE))
        return rows.select_related("type").order_by("-id")

    def find(self):
        """Return the Instance whose uuid is in the URL. Raises UnknownInstance."""
        uuid = self.kwargs["uuid"]
        if not is_uuid(uuid):
            raise UnknownInstance(f"{uuid!r} is not a uuid, so there is no such Instance.")
        return queue.get(uuid)

    def detail_of(self, instance, **more):
        """Answer with the full document of an Instance."""
        context = self.get_serializer_context()
        return Response(InstanceDetailSerializer(instance, context=context).data, **more)

    def answer(self, instance, outcome):
        return self.detail_of(instance)

    @operation(
        "list_instances", "Instances, newest first", VIEW_INSTANCE, query=query_of(InstanceFilter)
    )
    def list(self, request):
        return self.listed(self.filter_queryset(self.get_queryset()))

    @operation(
        "enqueue",
        "Enqueue one Instance, or many",
        ENQUEUE,
        description="An object enqueues one Instance. An array enqueues one for each item, all or "
        "none. The answer is an Instance or an array accordingly. With `existing`, it may show an "
        "Instance that was there, which takes `atp.view_instance`, or change it, which takes "
        "`atp.operate` too.",
        body=enqueueing.EnqueueSerializer,
        answer={
            201: OpenApiResponse(ENQUEUED, "Enqueued; for an array, at least one."),
            200: OpenApiResponse(ENQUEUED, "No Instance was made: all existed already."),
        },
        headers=(header("Location", "Address of the Instance; not for an array.", 201),),
        problems=(409, 429),
    )
    def create(self, request):
        many = isinstance(request.data, list)
        calls = self.values("enqueued", many=many)
        calls = calls if many else [calls]
        enqueued = enqueueing.enqueue(calls, request.user, many=many)
        types = Type.objects.using(settings.DATABASE).in_bulk({each.type_id for each in enqueued})
        for instance in enqueued:
            instance.type = types[instance.type_id]
        made = self.get_serializer(enqueued, many=True).data
        sees_inputs = request.user.has_perm(VIEW_INPUTS)
        arrivals = enqueueing.arrivals(calls, enqueued, sees_inputs=sees_inputs)
        made = [document | more for document, more in zip(made, arrivals, strict=True)]
        status = 201 if any(instance.is_new for instance in enqueued) else 200
        if many:
            return Response(made, status=status)
        return Response(made[0], status=status, headers={"Location": made[0]["url"]})

    def dispatch(self, request, *args, **kwargs):
        # Search the raw query string: ``initial`` parses and validates the query later.
        asks = "wait" in request.META.get("QUERY_STRING", "")
        if not asks or "retrieve" not in self.action_map.values():
            return super().dispatch(request, *args, **kwargs)
        most = math.inf if isinstance(request, ASGIRequest) else most_threads()
        with THREADS.one(most) as self.is_admitted:
            if not self.is_admitted:  # ``initial`` refuses it before any query to the database
                return super().dispatch(request, *args, **kwargs)
            with look():
                return super().dispatch(request, *args, **kwargs)

    def initial(self, request, *args, **kwargs):
        if not self.is_admitted:
            raise Throttled(turns.take(), "Too many requests with `wait` are open.")
        super().initial(request, *args, **kwargs)

    @operation(
        "get_instance",
        "One Instance; with `wait`, as soon as it has ended",
        VIEW_INSTANCE,
        query=WaitQuery,
        headers=(header("Retry-After", "Seconds; only if too many clients wait already.", 200),),
    )
    def retrieve(self, request, uuid):
        instance = self.get_object()
        seconds = self.query["wait"]
        if not seconds or instance.is_terminal or _is_in_transaction():
            return self.detail_of(instance)
        later = pending(request._request, instance, seconds, self._after_wait)
        if later is None:
            return self.detail_of(instance, headers={"Retry-After": str(turns.take(seconds))})
        let_connections_go()
        return later

    def _after_wait(self):
        """Answer with the Instance as it is after the wait, or with a problem, as a view would."""
        with look():
            try:
                response = self.detail_of(self.get_object())
            except Exception as error:
                response = self.handle_exception(error)
            return self.finalize_response(self.request, response).render()

    @operation(
        "change",
        "Change a waiting Instance",
        VIEW_INSTANCE,
        *_CHANGE.needs,
        description="Change the priority, due time or collection. An Instance that a daemon holds "
        "or that has ended cannot be changed. The body may also be `application/merge-patch+json`.",
        body=body_of(_CHANGE),
        problems=(409,),
    )
    def partial_update(self, request, uuid):
        instance, values = self.get_object(), self.values("changed")
        changing.checked(**values, now=overview.now, due_name="due_at")
        self.perform(_CHANGE, instance, **values)
        return self.detail_of(instance)

    @operation(
        "delete",
        "Remove an Instance, cancelling it first",
        VIEW_INSTANCE,
        *_DELETE.needs,
        description="An Instance that has ended or waits is removed at once, with its inputs, "
        "response, files and log. If a daemon holds it, it is only cancelled: delete it again "
        "when it has ended. An Instance that has not ended needs `atp.operate` too.",
        answer={
            200: OpenApiResponse(InstanceSerializer, "The Instance as it was; it is removed."),
            202: OpenApiResponse(InstanceSerializer, "It will be cancelled; it is not removed."),
        },
        problems=(409,),
    )
    def destroy(self, request, uuid):
        instance = self.get_object()
        self.require(*_DELETE.permissions(instance))
        document = self.detail_of(instance)
        if self.perform(_DELETE, instance).value:
            return document
        return self.detail_of(self.get_object(), status=202)  # raises if it is gone by now


def _is_in_transaction():
    """Return whether a transaction is open: a wait in it might never see the Instance end."""
    return connections[settings.DATABASE].in_atomic_block
