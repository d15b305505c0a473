"""Tailers in the API: a list, a single tailer with its cursors, and the verbs on it."""

from rest_framework import serializers as rest
from rest_framework.decorators import action
from rest_framework.response import Response

from .. import queue
from ..api import schema
from ..api.base import ViewSet, with_verbs
from ..api.schema import TypeIdentifier, named, operation, page_of
from ..api.serializers import Document, LogRecordSerializer
from ..models import Tailer
from ..operations.table import TAILER
from ..web.permissions import VIEW_LOG, VIEW_TAILER
from . import operations as documents


class TailersSerializer(rest.ListSerializer):
    """A list of tailers, read with a fixed number of queries."""

    def to_representation(self, data):
        return documents.documents(data)


class TailerSerializer(Document):
    identifier = schema.text("Its identifier: that of its Type, and of its schedule.")
    source = schema.text("The source that it reads, without credentials.")
    read_at = schema.time("When an attempt looked last.")
    records = schema.count("Records that were settled.")
    enqueued = schema.count("Instances that the records made.")
    rejected = schema.count("Records that were put aside.")
    behind = schema.count("Records left at the last look; null if unknown.", null=True)
    gaps = schema.count("Times that records were lost, also where their number is unknown.")
    lost = schema.count("Records that the source removed before they were read.")
    lost_at = schema.time("When records were found to be lost last.", null=True)
    passed_over = schema.count("Records that cannot be read, behind the cursor.")
    skipped = schema.count("What is in the source now and cannot be read.")
    error = schema.text("Why the tailer stopped itself; empty after a good look.")
    notes = schema.texts("What the last look has left in the source, as sentences.")
    state = schema.text("Reading, paused, or failing.")
    why = schema.text("Why it is paused, or has stopped itself; otherwise empty.")

    render = staticmethod(documents.document)

    class Meta:
        list_serializer_class = TailersSerializer


class CursorSerializer(Document):
    shard = schema.text("A part of the source: a partition, a file.")
    position = schema.text("How far it has been read; only the source understands it.")
    moved = schema.time()
    missing_since = schema.time("When it was found to be gone; null if it is there.", null=True)

    render = staticmethod(documents.cursor)


class TailerWithCursorsSerializer(TailerSerializer):
    cursors = CursorSerializer(many=True, help_text="Those that moved last first, 100 at most.")

    @staticmethod
    def render(row):
        found = queue.cursors(row.identifier, limit=documents.SHOWN)
        return documents.document(row) | {"cursors": [documents.cursor(each) for each in found]}


@with_verbs(
    TAILER,
    VIEW_TAILER,
    lambda verb: (f"{verb.id}_tailer", verb.said_of("a tailer"), verb.explanation),
)
class TailerViewSet(ViewSet):
    """The tailers, by identifier."""

    tag = "tailers"
    lookup_field = "identifier"
    model = Tailer
    serializer_class = TailerWithCursorsSerializer
    named = (named("identifier", "The tailer's identifier.", **TypeIdentifier.schema),)

    def find(self):
        return queue.get_tailer(self.kwargs["identifier"])

    def answer(self, row, outcome):
        return Response(self.get_serializer(outcome.value).data)

    @operation(
        "list_tailers",
        "The tailers, and what came out of their sources",
        VIEW_TAILER,
        answer=page_of(TailerSerializer),
    )
    def list(self, request):
        return self.listed(self.seen(queue.tailers()))

    @operation(
        "list_tailer_log",
        "What a tailer lost and cannot read, and who set its cursors",
        VIEW_TAILER,
        VIEW_LOG,
        description=f"The newest first, {documents.LOG} at most.",
        answer=page_of(LogRecordSerializer),
    )
    @action(detail=True, serializer_class=LogRecordSerializer)
    def log(self, request, identifier):
        return self.listed(documents.log(self.get_object()))

    @operation("get_tailer", "One tailer, with its cursors", VIEW_TAILER)
    def retrieve(self, request, identifier):
        return Response(self.get_serializer(self.get_object()).data)
