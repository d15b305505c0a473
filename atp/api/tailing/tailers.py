"""Tailers in the API: a list, a single tailer with its cursors, and the verbs on it."""

from rest_framework.response import Response

from ... import queue
from ...reports.tailing import documents
from ...verbs.table import TAILER
from ...web.permissions import VIEW_TAILER
from .. import fields
from ..base import ViewSet, with_verbs
from ..fields import TypeIdentifier
from ..schema import named, operation
from ..serializers import Document


class TailerSerializer(Document):
    identifier = fields.text("Its identifier: that of its Type, and of its schedule.")
    source = fields.text("The source that it reads, without credentials.")
    read_at = fields.time("When an attempt looked last.")
    records = fields.count("Records that were settled.")
    enqueued = fields.count("Instances that the records made.")
    rejected = fields.count("Records that were put aside.")
    behind = fields.count("Records left at the last look; null if unknown.", null=True)

    render = staticmethod(documents.document)


class CursorSerializer(Document):
    shard = fields.text("A part of the source: a partition, a file.")
    position = fields.text("How far it has been read; only the source understands it.")
    moved = fields.time()
    missing_since = fields.time("When it was found to be gone; null if it is there.", null=True)

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
    serializer_class = TailerWithCursorsSerializer
    named = (named("identifier", "The tailer's identifier.", **TypeIdentifier.schema),)

    def get_object(self):
        return queue.get_tailer(self.kwargs["identifier"])

    def answer(self, row, outcome):
        return Response(self.get_serializer(outcome.value).data)

    @operation("list_tailers", "The tailers, and what came out of their sources", VIEW_TAILER)
    def list(self, request):
        return self.listed(queue.tailers())

    @operation("get_tailer", "One tailer, with its cursors", VIEW_TAILER)
    def retrieve(self, request, identifier):
        return Response(self.get_serializer(self.get_object()).data)
