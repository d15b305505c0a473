"""Instances: list, one with its parts, operations."""

import math
import re

from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import Http404
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers as rest
from rest_framework.decorators import action
from rest_framework.exceptions import Throttled
from rest_framework.response import Response

from .. import queue
from ..conf import settings
from ..exceptions import UnknownInstance
from ..models import Instance, LogRecord, Type
from ..operations import instances as changing
from ..operations.table import INSTANCE, VERBS
from ..reports import documents, overview
from ..reports.explaining.explain import explain
from ..reports.explaining.sentences import document
from ..web import raw
from ..web.filters import InstanceFilter
from ..web.permissions import (
    ENQUEUE,
    VIEW_INPUTS,
    VIEW_INSTANCE,
    VIEW_LOG,
    VIEW_RESPONSE,
    VIEW_STEP,
    told_to,
)
from . import enqueueing, schema
from .base import ViewSet, body_of, is_uuid, with_verbs
from .problems import AnyAccept
from .schema import (
    NEWEST,
    RAW,
    Filters,
    LogQuery,
    PageQuery,
    Pages,
    WaitQuery,
    Whole,
    header,
    named,
    one_or_many,
    operation,
    page_of,
    query_of,
)
from .serializers import (
    Document,
    FileSerializer,
    InputsSerializer,
    InstanceDetailSerializer,
    InstanceSerializer,
    LogRecordSerializer,
)
from .waiting import THREADS, let_connections_go, look, most_threads, pending, turns

# The parts of an Instance in the API: explanation, log, steps, inputs, response and files.

_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_AS_IT_IS = (
    "The bytes as the handler has made them, with their content type. The headers forbid browsers "
    "to run them in this site."
)


class StepSerializer(Document):
    name = schema.text("The name, with the key of its round in brackets if it has one.")
    attempt = schema.count("The last attempt that began it.")
    started = schema.time("When that attempt began it.")
    finished = schema.time("When its result was stored; null if it was not.", null=True)
    until = schema.time("When a sleep is over; null for other steps.", null=True)
    is_done = schema.flag("Whether its result is stored for later attempts, or the sleep is over.")
    format = schema.text("How its result is stored, `json` or `pickle`.")
    value = rest.JSONField(
        help_text="Its result; null if there is none, and for a pickle, which is never opened. "
        f"{schema.TAGGED}"
    )

    def to_representation(self, instance):
        return documents.step_document(instance, self.context["view"].now)


class HelpSerializer(rest.Serializer):
    label = schema.text("The name of the act, for people.")
    command = schema.text("A shell command that does it.")
    verb = schema.text("The name of the verb that does it; empty if no verb does.")
    permission = schema.text("The permission that it needs over HTTP; empty if done on a host.")


class ReasonSerializer(rest.Serializer):
    code = schema.text("The cause, as a word for programs.")
    sentence = schema.text("The cause, in words.")
    facts = rest.DictField(child=rest.JSONField(), help_text="Its numbers and names.")
    since = schema.time("When the cause began; null if unknown.", null=True)
    until = schema.time("When the cause ends by itself; null if unknown.", null=True)
    helps = HelpSerializer(
        help_text="The act that would resolve the cause; null if there is none.", allow_null=True
    )


class StartSerializer(rest.Serializer):
    low = schema.seconds("The shortest time until the start; null if unknown.", null=True)
    likely = schema.seconds("The likely time until the start; null if unknown.", null=True)
    high = schema.seconds("The longest likely time until the start; null if unknown.", null=True)
    why = schema.text("The code of the cause that makes the start unknown; otherwise empty.")
    told = schema.text("The estimate in words.")


class ExplanationSerializer(Document):
    subject = schema.text("The Instance's uuid, or the Type's identifier.")
    state = schema.text("The Instance's state; empty for a Type.")
    reasons = ReasonSerializer(
        many=True, help_text="All causes; the first has to be resolved first."
    )
    ahead = schema.count(
        "Instances of its lane that start before it, up to 50,000; null if it does not wait.",
        null=True,
    )
    starts = StartSerializer(
        help_text="The time until the start; null if it will not start any more.",
        allow_null=True,
    )
    looked_at = schema.time("By the database's clock.")

    render = staticmethod(document)


def explained(view, subject):
    """Answer with the explanation of an Instance, a Type or a lane, as far as the user may see."""
    found = explain(subject, **told_to(view.request.user, subject))
    return Response(view.get_serializer(found).data)


class Parts:
    """A mixin of InstanceViewSet: the addresses below that of an Instance."""

    @operation(
        "explain_instance",
        "Why an Instance does not run, who can change that, and when it starts",
        VIEW_INSTANCE,
        description="Errors of the handler need `atp.view_logrecord` or `atp.operate`; names of "
        "daemons need `atp.view_daemon`.",
    )
    @action(detail=True, serializer_class=ExplanationSerializer)
    def explanation(self, request, uuid):
        return explained(self, self.get_object())

    @operation(
        "list_log",
        "The log of an Instance",
        VIEW_INSTANCE,
        VIEW_LOG,
        query=LogQuery,
        answer=page_of(LogRecordSerializer),
    )
    @action(detail=True, serializer_class=LogRecordSerializer)
    def log(self, request, uuid):
        records = LogRecord.objects.using(settings.DATABASE).filter(instance=self.get_object())
        is_reversed = self.query["order"] == NEWEST
        return self.listed(records.order_by("-id" if is_reversed else "id"))

    @operation(
        "list_steps",
        "The steps of an Instance, in the order in which they were begun",
        VIEW_INSTANCE,
        VIEW_STEP,
        query=PageQuery,
        answer=page_of(StepSerializer),
    )
    @action(detail=True, serializer_class=StepSerializer)
    def steps(self, request, uuid):
        self.now = overview.now()
        return self.listed(queue.steps(self.get_object()))

    @operation("get_inputs", "The inputs of an Instance", VIEW_INSTANCE, VIEW_INPUTS)
    @action(detail=True, serializer_class=InputsSerializer)
    def inputs(self, request, uuid):
        row = queue.inputs(self.get_object())
        if row is None:
            raise Http404("There are no inputs.")
        return Response(self.get_serializer(row).data)

    @operation(
        "get_response",
        "The response of an Instance: the output of its handler",
        VIEW_INSTANCE,
        VIEW_RESPONSE,
        description=_AS_IT_IS,
        answer=RAW,
    )
    # Not named ``response``: REST framework's views have an attribute of that name.
    @action(detail=True, url_path="response", content_negotiation_class=AnyAccept)
    def output(self, request, uuid):
        instance = self.get_object()
        return raw.body_of(queue.response(instance), f"response-{instance.uuid}")

    @operation(
        "list_files",
        "The files that the handler has published",
        VIEW_INSTANCE,
        VIEW_RESPONSE,
        answer=page_of(FileSerializer),
    )
    @action(detail=True, serializer_class=FileSerializer, pagination_class=Whole)
    def files(self, request, uuid):
        instance = self.get_object()
        response = queue.response(instance)
        files = [] if response is None else documents.response(response)["files"]
        return self.listed(
            {"number": number, **file, "url": self.url("instances-file", instance.uuid, number)}
            for number, file in enumerate(files)
        )

    @operation(
        "get_file",
        "A file that the handler has published",
        VIEW_INSTANCE,
        VIEW_RESPONSE,
        description=_AS_IT_IS,
        answer=RAW,
    )
    @action(
        detail=True,
        url_path="files/<str:number>",
        url_name="file",
        content_negotiation_class=AnyAccept,
    )
    def file(self, request, uuid, number):
        instance = self.get_object()
        if not _NUMBER.fullmatch(number):
            raise Http404(f"{number!r} is no number of a file.")
        return raw.file_of(queue.response(instance), int(number))


# Instances in the API: a list, a single one with its parts, enqueueing, and the verbs.

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
