"""The parts of an Instance in the API: explanation, log, steps, inputs, response and files."""

import re

from django.http import Http404
from rest_framework import serializers as rest
from rest_framework.decorators import action
from rest_framework.response import Response

from .. import queue
from ..conf import settings
from ..models import LogRecord
from ..reports import documents, overview, steps
from ..reports.explaining.document import document
from ..reports.explaining.explain import explain
from ..web import raw
from ..web.permissions import (
    VIEW_INPUTS,
    VIEW_INSTANCE,
    VIEW_LOG,
    VIEW_RESPONSE,
    VIEW_STEP,
    told_to,
)
from . import fields
from .media import AnyAccept
from .queries import NEWEST, LogQuery, PageQuery, Whole, page_of
from .schema import RAW, operation
from .serializers import Document, FileSerializer, InputsSerializer, LogRecordSerializer

_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_AS_IT_IS = (
    "The bytes as the handler has made them, with their content type. The headers forbid browsers "
    "to run them in this site."
)


class StepSerializer(Document):
    name = fields.text("The name, with the key of its round in brackets if it has one.")
    attempt = fields.count("The last attempt that began it.")
    started = fields.time("When that attempt began it.")
    finished = fields.time("When its result was stored; null if it was not.", null=True)
    until = fields.time("When a sleep is over; null for other steps.", null=True)
    is_done = fields.flag("Whether its result is stored for later attempts, or the sleep is over.")
    format = fields.text("How its result is stored, `json` or `pickle`.")
    value = rest.JSONField(
        help_text="Its result; null if there is none, and for a pickle, which is never opened. "
        f"{fields.TAGGED}"
    )

    def to_representation(self, instance):
        return steps.document(instance, self.context["view"].now)


class HelpSerializer(rest.Serializer):
    label = fields.text("The name of the act, for people.")
    command = fields.text("A shell command that does it.")
    verb = fields.text("The name of the verb that does it; empty if no verb does.")
    permission = fields.text("The permission that it needs over HTTP; empty if done on a host.")


class ReasonSerializer(rest.Serializer):
    code = fields.text("The cause, as a word for programs.")
    sentence = fields.text("The cause, in words.")
    facts = rest.DictField(child=rest.JSONField(), help_text="Its numbers and names.")
    since = fields.time("When the cause began; null if unknown.", null=True)
    until = fields.time("When the cause ends by itself; null if unknown.", null=True)
    helps = HelpSerializer(
        help_text="The act that would resolve the cause; null if there is none.", allow_null=True
    )


class StartSerializer(rest.Serializer):
    low = fields.seconds("The shortest time until the start; null if unknown.", null=True)
    likely = fields.seconds("The likely time until the start; null if unknown.", null=True)
    high = fields.seconds("The longest likely time until the start; null if unknown.", null=True)
    why = fields.text("The code of the cause that makes the start unknown; otherwise empty.")
    told = fields.text("The estimate in words.")


class ExplanationSerializer(Document):
    subject = fields.text("The Instance's uuid, or the Type's identifier.")
    state = fields.text("The Instance's state; empty for a Type.")
    reasons = ReasonSerializer(
        many=True, help_text="All causes; the first has to be resolved first."
    )
    ahead = fields.count(
        "Instances of its lane that start before it, up to 50,000; null if it does not wait.",
        null=True,
    )
    starts = StartSerializer(
        help_text="The time until the start; null if it will not start any more.",
        allow_null=True,
    )
    looked_at = fields.time("By the database's clock.")

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
