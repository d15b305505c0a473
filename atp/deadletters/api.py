"""Error groups, and operations on all that matches, in the API."""

from rest_framework import serializers as rest
from rest_framework.decorators import action
from rest_framework.response import Response

from .. import queue
from ..api import schema
from ..api.base import ViewSet, body_of, with_verbs
from ..api.schema import Filters, Pages, named, operation, query_of
from ..api.serializers import Document
from ..models import ErrorGroup, Instance
from ..operations.matching import Plan
from ..operations.table import ERROR, MATCHING, VERBS
from ..web.filters import ErrorFilter
from ..web.permissions import VIEW_ERROR, VIEW_INSTANCE, may_see_errors
from . import operations as groups

# The outcomes of verbs on dead letters: a plan, or the Instance that carries it out.


class PlanSerializer(Document):
    count = schema.count("Instances that the verb would be applied to.")
    by_error = rest.DictField(child=schema.count(), help_text="Their number by error group.")
    by_type = rest.DictField(child=schema.count(), help_text="Their number by Type.")
    by_collection = rest.DictField(child=schema.count(), help_text="Their number by collection.")
    cannot = rest.DictField(
        child=schema.count(), help_text="Number of Instances that are left out, by reason."
    )
    judged = rest.IntegerField(
        allow_null=True,
        min_value=0,
        help_text="The number of Instances that were judged, if there are very many; `count` then "
        "includes all others. Null if all were judged.",
    )
    takes = rest.FloatField(
        allow_null=True, help_text="The duration in seconds at the given rate; null without a rate."
    )
    told = schema.text("The plan in words.")


class DoneSerializer(Document):
    told = schema.text("The outcome in words.")
    plan = PlanSerializer(allow_null=True, help_text="The plan, with `dry_run`; otherwise null.")
    instance = rest.UUIDField(
        allow_null=True, help_text="The Instance that carries the verb out; null if none does."
    )
    url = rest.URLField(allow_null=True, help_text="The address of that Instance.")


def document(view, outcome):
    """Return the document of a verb's outcome."""
    value = outcome.value
    made = value if isinstance(value, Instance) else None
    return {
        "told": outcome.told,
        "plan": groups.plan_document(value) if isinstance(value, Plan) else None,
        "instance": None if made is None else made.uuid,
        "url": None if made is None else view.url("instances-detail", made.uuid),
    }


# Error groups in the API: a list, a single group, and the verbs on it.


class ErrorsSerializer(rest.ListSerializer):
    """A list of error groups, read with a fixed number of queries."""

    def to_representation(self, data):
        return _documents(self.child.context["view"], data)


class ErrorSerializer(Document):
    name = schema.text("The first digits of the key of the group.")
    key = schema.text("The whole key of the group.")
    type = schema.text("Identifier of its Type.")
    fingerprint = schema.text("Hash of what the failures of the group have in common.")
    version = schema.count("The version of the rules that made the fingerprint.")
    exception = schema.text("The class of the exception.")
    title = schema.text(
        "The error line of the first failure, or the class of the exception for users who have "
        "neither `atp.view_logrecord` nor `atp.operate`."
    )
    line = schema.text(
        "The error line of the newest failure. Needs `atp.view_logrecord` or `atp.operate`."
    )
    count = schema.count("Failures so far.")
    left = schema.count("Dead letters of the group, counted up to 1,000.")
    is_more = schema.flag("Whether there are more dead letters than are counted.")
    collections = schema.count("Number of collections among its newest 200 dead letters.")
    first_seen = schema.time()
    last_seen = schema.time()
    first_instance = rest.UUIDField(help_text="The first Instance that failed; it may be removed.")
    last_instance = rest.UUIDField(help_text="The newest Instance that failed; it may be removed.")
    release = schema.text("The release that ran when the group was first seen; empty if unknown.")
    muted_by = schema.text("Who has muted it; empty if nobody has.")
    muted_until = schema.time("The first failure after this time unmutes the group.", null=True)
    note = schema.text("What is known of the error.")
    url = rest.URLField(help_text="Its own address.")

    class Meta:
        list_serializer_class = ErrorsSerializer

    def to_representation(self, instance):
        [found] = _documents(self.context["view"], [instance])
        return found


def _documents(view, rows):
    told = groups.groups(rows, lines=may_see_errors(view.request.user, *rows))
    found = [groups.group_document(group) for group in told]
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


# Verbs on all Instances that match, as ``POST matching/redrive``.


class MatchingViewSet(ViewSet):
    tag = "matching"
    serializer_class = DoneSerializer


def _action(verb):
    def perform(self, request, **kwargs):
        return Response(document(self, self.perform(verb, None, **self.values())))

    perform.__name__ = f"perform_{verb.id}"
    says = operation(
        f"{verb.id}_matching",
        verb.label,
        VIEW_INSTANCE,
        *verb.needs,
        description=verb.explanation,
        body=body_of(verb, "Matching"),
        answer=DoneSerializer,
        problems=(404, 409),
    )
    extra = action(detail=False, methods=["post"], url_path=verb.name, url_name=verb.name)(perform)
    return says(extra)


for _verb in VERBS[MATCHING].values():
    setattr(MatchingViewSet, f"perform_{_verb.id}", _action(_verb))
