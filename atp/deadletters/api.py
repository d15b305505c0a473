"""The API of the error groups, and of the operations on all Instances that match a filter."""

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers as rest
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from .. import queue
from ..api import schema
from ..api.base import ViewSet, body_of, with_operations
from ..api.schema import Filters, Pages, path_parameter, query_of
from ..api.serializers import DocumentSerializer
from ..models import ErrorGroup, Instance
from ..operations.matching import Plan
from ..operations.operation import Operation, Outcome
from ..operations.table import ERROR, MATCHING, OPERATIONS
from ..web.filters import ErrorFilter
from ..web.permissions import VIEW_ERROR, VIEW_INSTANCE, may_see_errors
from . import operations

# The outcome of an operation on dead letters: a plan, or the Instance that carries it out.


class PlanSerializer(DocumentSerializer):
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


class DoneSerializer(DocumentSerializer):
    told = schema.text("The outcome in words.")
    plan = PlanSerializer(allow_null=True, help_text="The plan, with `dry_run`; otherwise null.")
    instance = rest.UUIDField(
        allow_null=True, help_text="The Instance that carries the verb out; null if none does."
    )
    url = rest.URLField(allow_null=True, help_text="The address of that Instance.")


def _outcome_response(view: ViewSet, outcome: Outcome) -> Response:
    value = outcome.value
    instance = value if isinstance(value, Instance) else None
    return Response(
        {
            "told": outcome.told,
            "plan": operations.plan_document(value) if isinstance(value, Plan) else None,
            "instance": None if instance is None else instance.uuid,
            "url": None if instance is None else view.url("instances-detail", instance.uuid),
        }
    )


# Error groups: a list, a single group, and the operations on it.


class ErrorsSerializer(rest.ListSerializer):
    """A list of error groups, for which the number of queries does not grow with the list."""

    def to_representation(self, data: Sequence[ErrorGroup]) -> list[dict[str, Any]]:
        return _documents(self.child.context["view"], data)


class ErrorSerializer(DocumentSerializer):
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

    def to_representation(self, instance: ErrorGroup) -> dict[str, Any]:
        [document] = _documents(self.context["view"], [instance])
        return document


def _documents(view: ViewSet, rows: Sequence[ErrorGroup]) -> list[dict[str, Any]]:
    groups = operations.load_groups(rows, lines=may_see_errors(view.request.user, *rows))
    documents = [operations.group_document(group) for group in groups]
    return [each | {"url": view.url("errors-detail", each["key"])} for each in documents]


@with_operations(
    ERROR,
    VIEW_ERROR,
    lambda each: (f"{each.id}_error", each.said_of("an error group"), each.explanation),
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
    path_parameters = (
        path_parameter("name", "The group's name: four digits of its key or more.", type="string"),
    )

    def find(self) -> ErrorGroup:
        """Return the error group that the URL names. Raises UnknownErrorGroup."""
        return queue.get_error_group(self.kwargs["name"])

    def answer(self, group: ErrorGroup, outcome: Outcome) -> Response:
        return _outcome_response(self, outcome)

    @schema.endpoint(
        "list_errors",
        "Error groups, the latest failure first",
        VIEW_ERROR,
        query=query_of(ErrorFilter),
    )
    def list(self, request: Request) -> Response:
        return self.page_response(self.filter_queryset(self.visible_rows(queue.error_groups())))

    @schema.endpoint("get_error", "One error group", VIEW_ERROR)
    def retrieve(self, request: Request, name: str) -> Response:
        return Response(self.get_serializer(self.get_object()).data)


# Operations on all Instances that match, as ``POST matching/redrive``.


class MatchingViewSet(ViewSet):
    tag = "matching"
    serializer_class = DoneSerializer


def _matching_action(operation: Operation) -> Any:
    def perform(self: ViewSet, request: Request, **kwargs: Any) -> Response:
        return _outcome_response(self, self.perform(operation, None, **self.read_body()))

    perform.__name__ = f"perform_{operation.id}"
    declare = schema.endpoint(
        f"{operation.id}_matching",
        operation.label,
        VIEW_INSTANCE,
        *operation.needs,
        description=operation.explanation,
        body=body_of(operation, "Matching"),
        answer=DoneSerializer,
        problems=(404, 409),
    )
    name = operation.name
    return declare(action(detail=False, methods=["post"], url_path=name, url_name=name)(perform))


for _operation in OPERATIONS[MATCHING].values():
    setattr(MatchingViewSet, f"perform_{_operation.id}", _matching_action(_operation))
