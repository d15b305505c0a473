"""API views for Instances: the list, one Instance and its parts, and operations."""

import math
import re
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers as rest
from rest_framework.decorators import action
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.response import Response

from .. import queue
from ..conf import settings
from ..exceptions import UnknownInstance
from ..models import Instance, LogRecord, Step, Type
from ..operations import instances
from ..operations.operation import Outcome
from ..operations.table import INSTANCE, OPERATIONS
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
    explanation_options,
)
from . import enqueueing, schema
from .base import ViewSet, body_of, is_uuid, with_operations
from .problems import AnyAccept
from .schema import (
    NEWEST,
    RAW,
    Filters,
    LogQuery,
    PageQuery,
    Pages,
    SinglePage,
    WaitQuery,
    endpoint,
    one_or_many,
    page_of,
    path_parameter,
    query_of,
    response_header,
)
from .serializers import (
    DocumentSerializer,
    FileSerializer,
    InputsSerializer,
    InstanceDetailSerializer,
    InstanceSerializer,
    LogRecordSerializer,
)
from .waiting import (
    THREADS,
    close_connections,
    limited_reads,
    most_threads,
    turns,
    waiting_response,
)

_CHANGE, _DELETE = OPERATIONS[INSTANCE]["change"], OPERATIONS[INSTANCE]["delete"]
ENQUEUED = one_or_many({"$ref": "#/components/schemas/Instance"})

_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_AS_IT_IS = (
    "The bytes as the handler has made them, with their content type. The headers forbid browsers "
    "to run them in this site."
)


class StepSerializer(DocumentSerializer):
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

    def to_representation(self, instance: Step) -> dict[str, Any]:
        return documents.step_document(instance, self.context["view"].now)


class HelpSerializer(rest.Serializer):
    label = schema.text("The name of the act, for people.")
    command = schema.text("A shell command that does it.")
    verb = schema.text("The name of the operation that does it; empty if none does.")
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


class ExplanationSerializer(DocumentSerializer):
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

    render = staticmethod(document)  # type: ignore[assignment]


def explanation_response(view: ViewSet, subject: Any) -> Response:
    """Return the response that explains why an Instance, a Type or a lane does not run.

    The explanation omits the errors and the daemons that the user may not see.
    """
    explanation = explain(subject, **explanation_options(view.request.user, subject))
    return Response(view.get_serializer(explanation).data)


class InstanceParts(ViewSet):
    """The views below an Instance's URL: explanation, log, steps, inputs, response and files."""

    @endpoint(
        "explain_instance",
        "Why an Instance does not run, who can change that, and when it starts",
        VIEW_INSTANCE,
        description="Errors of the handler need `atp.view_logrecord` or `atp.operate`; names of "
        "daemons need `atp.view_daemon`.",
    )
    @action(detail=True, serializer_class=ExplanationSerializer)
    def explanation(self, request: Request, uuid: str) -> Response:
        return explanation_response(self, self.get_object())

    @endpoint(
        "list_log",
        "The log of an Instance",
        VIEW_INSTANCE,
        VIEW_LOG,
        query=LogQuery,
        answer=page_of(LogRecordSerializer),
    )
    @action(detail=True, serializer_class=LogRecordSerializer)
    def log(self, request: Request, uuid: str) -> Response:
        records = LogRecord.objects.using(settings.DATABASE).filter(instance=self.get_object())
        is_reversed = self.query["order"] == NEWEST
        return self.page_response(records.order_by("-id" if is_reversed else "id"))

    @endpoint(
        "list_steps",
        "The steps of an Instance, in the order in which they were begun",
        VIEW_INSTANCE,
        VIEW_STEP,
        query=PageQuery,
        answer=page_of(StepSerializer),
    )
    @action(detail=True, serializer_class=StepSerializer)
    def steps(self, request: Request, uuid: str) -> Response:
        self.now = overview.now()
        return self.page_response(queue.steps(self.get_object()))

    @endpoint("get_inputs", "The inputs of an Instance", VIEW_INSTANCE, VIEW_INPUTS)
    @action(detail=True, serializer_class=InputsSerializer)
    def inputs(self, request: Request, uuid: str) -> Response:
        row = queue.inputs(self.get_object())
        if row is None:
            raise Http404("There are no inputs.")
        return Response(self.get_serializer(row).data)

    @endpoint(
        "get_response",
        "The response of an Instance: the output of its handler",
        VIEW_INSTANCE,
        VIEW_RESPONSE,
        description=_AS_IT_IS,
        answer=RAW,
    )
    # Not named ``response``: REST framework's views have an attribute of that name.
    @action(detail=True, url_path="response", content_negotiation_class=AnyAccept)
    def output(self, request: Request, uuid: str) -> HttpResponseBase:
        instance = self.get_object()
        return raw.response_with_body(queue.response(instance), f"response-{instance.uuid}")

    @endpoint(
        "list_files",
        "The files that the handler has published",
        VIEW_INSTANCE,
        VIEW_RESPONSE,
        answer=page_of(FileSerializer),
    )
    @action(detail=True, serializer_class=FileSerializer, pagination_class=SinglePage)
    def files(self, request: Request, uuid: str) -> Response:
        instance = self.get_object()
        response = queue.response(instance)
        files = [] if response is None else documents.files(response)
        return self.page_response(
            {"number": number, **file, "url": self.url("instances-file", instance.uuid, number)}
            for number, file in enumerate(files)
        )

    @endpoint(
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
    def file(self, request: Request, uuid: str, number: str) -> HttpResponseBase:
        instance = self.get_object()
        if not _NUMBER.fullmatch(number):
            raise Http404(f"{number!r} is not the number of a file.")
        return raw.response_with_file(queue.response(instance), int(number))


class InstancePageSerializer(page_of(InstanceSerializer)):  # type: ignore[misc]
    searched_to = schema.time(
        "The search stopped at an Instance that was created then; null if it did not stop.",
        null=True,
    )


@with_operations(
    INSTANCE, VIEW_INSTANCE, lambda each: (each.id, each.said_of("an Instance"), each.explanation)
)
class InstanceViewSet(InstanceParts):
    tag = "instances"
    lookup_field = "uuid"
    model = Instance
    serializer_class = InstanceSerializer
    pagination_class = Pages
    filter_backends = (Filters,)
    filterset_class = InstanceFilter
    path_parameters = (
        path_parameter("uuid", "The Instance's uuid.", type="string", format="uuid"),
        path_parameter(
            "number",
            "The place of the file among those published, from 0.",
            type="integer",
            minimum=0,
            maximum=2**31 - 1,
        ),
    )
    # False if requests with ``?wait=`` already take too many threads.
    is_admitted = True

    def get_queryset(self) -> QuerySet[Instance]:
        rows = self.visible_rows(Instance.objects.using(settings.DATABASE))
        return rows.select_related("type").order_by("-id")

    def find(self) -> Instance:
        """Return the Instance whose uuid is in the URL. Raises UnknownInstance."""
        uuid = self.kwargs["uuid"]
        if not is_uuid(uuid):
            raise UnknownInstance(f"{uuid!r} is not a uuid, so there is no such Instance.")
        return queue.get(uuid)

    def detail_response(self, instance: Instance, **more: Any) -> Response:
        """Return the response with an Instance's full document."""
        context = self.get_serializer_context()
        return Response(InstanceDetailSerializer(instance, context=context).data, **more)

    def answer(self, instance: Instance, outcome: Outcome) -> Response:
        return self.detail_response(instance)

    @endpoint(
        "list_instances",
        "Instances, newest first",
        VIEW_INSTANCE,
        description="`ended_after`, `ended_before`, `created_by`, `longer_than`, `tried_again` and "
        "`input` are searched for, newest Instances first. A page can then have fewer rows than "
        "`limit`, or none: `searched_to` says how far the search came, and the next page goes on "
        "from there.",
        query=query_of(InstanceFilter),
        answer=InstancePageSerializer,
    )
    def list(self, request: Request) -> Response:
        response = self.page_response(self.filter_queryset(self.get_queryset()))
        reached = self.paginator.page.reached
        response.data["searched_to"] = None if reached is None else reached.created
        return response

    @endpoint(
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
        headers=(response_header("Location", "Address of the Instance; not for an array.", 201),),
        problems=(409, 429),
    )
    def create(self, request: Request) -> Response:
        many = isinstance(request.data, list)
        calls = self.read_body("enqueued", many=many)
        calls = calls if many else [calls]
        enqueued = enqueueing.enqueue(calls, request.user, many=many)
        types = Type.objects.using(settings.DATABASE).in_bulk({each.type_id for each in enqueued})
        for instance in enqueued:
            instance.type = types[instance.type_id]
        answers = self.get_serializer(enqueued, many=True).data
        sees_inputs = request.user.has_perm(VIEW_INPUTS)
        arrivals = enqueueing.describe_arrivals(calls, enqueued, sees_inputs=sees_inputs)
        answers = [answer | arrival for answer, arrival in zip(answers, arrivals, strict=True)]
        status = 201 if any(instance.is_new for instance in enqueued) else 200
        if many:
            return Response(answers, status=status)
        headers = {"Location": answers[0]["url"]}
        return Response(answers[0], status=status, headers=headers)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        # Search the raw query string: ``initial`` parses and validates the query later.
        may_wait = "wait" in request.META.get("QUERY_STRING", "")
        if not may_wait or "retrieve" not in self.action_map.values():
            return super().dispatch(request, *args, **kwargs)
        most = math.inf if isinstance(request, ASGIRequest) else most_threads()
        with THREADS.one(most) as self.is_admitted:
            if not self.is_admitted:  # ``initial`` refuses it before it queries the database
                return super().dispatch(request, *args, **kwargs)
            with limited_reads():
                return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if not self.is_admitted:
            raise Throttled(turns.take(), "Too many requests with `wait` are open.")
        super().initial(request, *args, **kwargs)

    @endpoint(
        "get_instance",
        "One Instance; with `wait`, as soon as it has ended",
        VIEW_INSTANCE,
        query=WaitQuery,
        headers=(
            response_header("Retry-After", "Seconds; only if too many clients wait already.", 200),
        ),
    )
    def retrieve(self, request: Request, uuid: str) -> HttpResponse:
        instance = self.get_object()
        seconds = self.query["wait"]
        if not seconds or instance.is_terminal or _is_in_transaction():
            return self.detail_response(instance)
        response = waiting_response(request._request, instance, seconds, self._response_after_wait)
        if response is None:
            headers = {"Retry-After": str(turns.take(seconds))}
            return self.detail_response(instance, headers=headers)
        close_connections()
        return response

    def _response_after_wait(self) -> HttpResponse:
        """Return the rendered response after the wait: the Instance's document, or a problem."""
        with limited_reads():
            try:
                response = self.detail_response(self.get_object())
            except Exception as error:
                response = self.handle_exception(error)
            return self.finalize_response(self.request, response).render()

    @endpoint(
        "change",
        "Change a waiting Instance",
        VIEW_INSTANCE,
        *_CHANGE.needs,
        description="Change the priority, due time or collection. An Instance that a daemon holds "
        "or that has ended cannot be changed. The body may also be `application/merge-patch+json`.",
        body=body_of(_CHANGE),
        problems=(409,),
    )
    def partial_update(self, request: Request, uuid: str) -> Response:
        instance, values = self.get_object(), self.read_body("changed")
        instances.check_changes(**values, now=overview.now, due_name="due_at")
        self.perform(_CHANGE, instance, **values)
        return self.detail_response(instance)

    @endpoint(
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
    def destroy(self, request: Request, uuid: str) -> Response:
        instance = self.get_object()
        self.require(*_DELETE.permissions(instance))
        response = self.detail_response(instance)
        if self.perform(_DELETE, instance).value:
            return response
        # If the Instance has been removed meanwhile, ``get_object`` raises an error.
        return self.detail_response(self.get_object(), status=202)


def _is_in_transaction() -> bool:
    """Return True if a transaction is open in the queue's database.

    A request that waits inside a transaction might never see the Instance end.
    """
    return connections[settings.DATABASE].in_atomic_block
