"""Error groups in the API: a list, a single group, and the verbs on it."""

from rest_framework import serializers as rest
from rest_framework.response import Response

from ... import queue
from ...models import ErrorGroup
from ...reports.errors import groups
from ...verbs.table import ERROR
from ...web.filters import ErrorFilter
from ...web.permissions import VIEW_ERROR, may_see_errors
from .. import fields
from ..base import ViewSet, with_verbs
from ..queries import Filters, Pages, query_of
from ..schema import named, operation
from ..serializers import Document
from .outcomes import DoneSerializer, document


class ErrorsSerializer(rest.ListSerializer):
    """A list of error groups, read with a fixed number of queries."""

    def to_representation(self, data):
        return _documents(self.child.context["view"], data)


class ErrorSerializer(Document):
    name = fields.text("The first digits of the key of the group.")
    key = fields.text("The whole key of the group.")
    type = fields.text("Identifier of its Type.")
    fingerprint = fields.text("Hash of what the failures of the group have in common.")
    version = fields.count("The version of the rules that made the fingerprint.")
    exception = fields.text("The class of the exception.")
    title = fields.text(
        "The error line of the first failure, or the class of the exception for users who have "
        "neither `atp.view_logrecord` nor `atp.operate`."
    )
    line = fields.text(
        "The error line of the newest failure. Needs `atp.view_logrecord` or `atp.operate`."
    )
    count = fields.count("Failures so far.")
    left = fields.count("Dead letters of the group, counted up to 1,000.")
    is_more = fields.flag("Whether there are more dead letters than are counted.")
    collections = fields.count("Number of collections among its newest 200 dead letters.")
    first_seen = fields.time()
    last_seen = fields.time()
    first_instance = rest.UUIDField(help_text="The first Instance that failed; it may be removed.")
    last_instance = rest.UUIDField(help_text="The newest Instance that failed; it may be removed.")
    release = fields.text("The release that ran when the group was first seen; empty if unknown.")
    muted_by = fields.text("Who has muted it; empty if nobody has.")
    muted_until = fields.time("The first failure after this time unmutes the group.", null=True)
    note = fields.text("What is known of the error.")
    url = rest.URLField(help_text="Its own address.")

    class Meta:
        list_serializer_class = ErrorsSerializer

    def to_representation(self, instance):
        [found] = _documents(self.context["view"], [instance])
        return found


def _documents(view, rows):
    told = groups.groups(rows, lines=may_see_errors(view.request.user, *rows))
    found = [groups.document(group) for group in told]
    return [each | {"url": view.url("errors-detail", each["key"])} for each in found]


@with_verbs(
    ERROR,
    VIEW_ERROR,
    lambda verb: (f"{verb.id}_error", verb.said_of("an error group"), verb.explanation),
    answer=DoneSerializer,
)
class ErrorViewSet(ViewSet):
    tag = "errors"
    lookup_field = "name"
    model = ErrorGroup
    serializer_class = ErrorSerializer
    pagination_class = Pages
    filter_backends = (Filters,)
    filterset_class = ErrorFilter
    named = (named("name", "The group's name: four digits of its key or more.", type="string"),)

    def find(self):
        """Return the error group of the URL. Raises UnknownErrorGroup."""
        return queue.get_error_group(self.kwargs["name"])

    def answer(self, group, outcome):
        return Response(document(self, outcome))

    @operation(
        "list_errors",
        "Error groups, the latest failure first",
        VIEW_ERROR,
        query=query_of(ErrorFilter),
    )
    def list(self, request):
        return self.listed(self.filter_queryset(self.narrowed(queue.error_groups())))

    @operation("get_error", "One error group", VIEW_ERROR)
    def retrieve(self, request, name):
        return Response(self.get_serializer(self.get_object()).data)
