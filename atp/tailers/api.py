"""The API of the tailers: the list, one tailer with its cursors, and the operations on it."""

from collections.abc import Iterable
from typing import Any

from rest_framework import serializers as rest
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from .. import queue
from ..api import schema
from ..api.base import ViewSet, with_operations
from ..api.schema import TypeIdentifier, endpoint, page_of, path_parameter
from ..api.serializers import DocumentSerializer, LogRecordSerializer
from ..models import Tailer
from ..operations.operation import Outcome
from ..operations.table import TAILER
from ..web.permissions import VIEW_LOG, VIEW_TAILER
from . import operations


class TailersSerializer(rest.ListSerializer):
    """A list of tailers, for which the number of queries does not grow with the list."""

    def to_representation(self, data: Iterable[Tailer]) -> list[dict[str, Any]]:
        return operations.documents(data)


class TailerSerializer(DocumentSerializer):
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

    class Meta:
        list_serializer_class = TailersSerializer

    @staticmethod
    def render(row: Tailer) -> dict[str, Any]:
        return operations.document(row)


class CursorSerializer(DocumentSerializer):
    shard = schema.text("A part of the source: a partition, a file.")
    position = schema.text("How far it has been read; only the source understands it.")
    moved = schema.time()
    missing_since = schema.time("When it was found to be gone; null if it is there.", null=True)

    render = staticmethod(operations.cursor)


class TailerWithCursorsSerializer(TailerSerializer):
    cursors = CursorSerializer(many=True, help_text="Those that moved last first, 100 at most.")

    @staticmethod
    def render(row: Tailer) -> dict[str, Any]:
        cursors = queue.cursors(row.identifier, limit=operations.MOST_CURSORS)
        return operations.document(row) | {"cursors": [operations.cursor(each) for each in cursors]}


@with_operations(
    TAILER,
    VIEW_TAILER,
    lambda each: (f"{each.id}_tailer", each.said_of("a tailer"), each.explanation),
)
class TailerViewSet(ViewSet):
    """The tailers, by identifier, with their log and their operations."""

    tag = "tailers"
    lookup_field = "identifier"
    model = Tailer
    serializer_class = TailerWithCursorsSerializer
    path_parameters = (
        path_parameter("identifier", "The tailer's identifier.", **TypeIdentifier.schema),
    )

    def find(self) -> Tailer:
        return queue.get_tailer(self.kwargs["identifier"])

    def answer(self, row: Tailer, outcome: Outcome) -> Response:
        return Response(self.get_serializer(outcome.value).data)

    @endpoint(
        "list_tailers",
        "The tailers, and what came out of their sources",
        VIEW_TAILER,
        answer=page_of(TailerSerializer),
    )
    def list(self, request: Request) -> Response:
        return self.page_response(self.visible(queue.tailers()))

    @endpoint(
        "list_tailer_log",
        "What a tailer lost and cannot read, and who set its cursors",
        VIEW_TAILER,
        VIEW_LOG,
        description=f"The newest first, {operations.MOST_LOG_RECORDS} at most.",
        answer=page_of(LogRecordSerializer),
    )
    @action(detail=True, serializer_class=LogRecordSerializer)
    def log(self, request: Request, identifier: str) -> Response:
        return self.page_response(operations.log(self.get_object()))

    @endpoint("get_tailer", "One tailer, with its cursors", VIEW_TAILER)
    def retrieve(self, request: Request, identifier: str) -> Response:
        return Response(self.get_serializer(self.get_object()).data)
