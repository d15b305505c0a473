"""How views declare their operations for the OpenAPI document.

This module has serializer fields, query parameters, pagination, and the decorator ``endpoint``.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from datetime import datetime
from functools import cache
from http import HTTPStatus
from itertools import islice
from typing import Any, TypeVar

from django.db.models import QuerySet
from django_filters.rest_framework import DjangoFilterBackend
from drf_spectacular.extensions import OpenApiSerializerExtension, OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import Direction, OpenApiParameter, extend_schema
from rest_framework import serializers as rest
from rest_framework.fields import empty
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response

from ..exceptions import ATPError
from ..operations.operation import DATE_TIME, Choice, Kind, Number, WholeNumber, time_from_json
from ..operations.registry import IDENTIFIER
from ..options import MAX_IDENTIFIER
from ..reports import paging
from ..text import did_you_mean
from ..web.filters import InstantFilter, TypeFilter, UUIDFilter, WordFilter, bind_filters
from .problems import BYTES, JSON, MOST, PROBLEM

TAGGED = (
    "A value that JSON lacks is an object with one key that starts with a dollar: "
    '`{"$date": "2030-01-31"}`, `{"$datetime": "2030-01-31T18:00:00+00:00"}`, '
    '`{"$time": "18:00:00"}`, `{"$timedelta": [days, seconds, microseconds]}`, '
    '`{"$decimal": "0.1"}`, `{"$uuid": "…"}`, `{"$bytes": "base64"}`, `{"$float": "nan"}`. '
    'An object of yours with such a key alone is `{"$object": [["$date", "not a date"]]}`.'
)
COLLECTION = "collection"
OLDEST, NEWEST = "oldest", "newest"
# Rows on a page.
DEFAULT_LIMIT, LARGEST_LIMIT = 50, 500
# In seconds.
LONGEST_WAIT = 60

# Fields of serializers. ``null`` lets the value be null, ``absent`` lets the key be missing.


def text(help_text: str = "", **kwargs: Any) -> Any:
    return _field(rest.CharField, help_text, **kwargs)


def texts(help_text: str) -> Any:
    return _field(rest.ListField, help_text, absent=True, child=text())


def time(help_text: str = "", **kwargs: Any) -> Any:
    return _field(rest.DateTimeField, help_text, **kwargs)


def count(help_text: str = "", **kwargs: Any) -> Any:
    return _field(rest.IntegerField, help_text, min_value=0, **kwargs)


def seconds(help_text: str, **kwargs: Any) -> Any:
    return _field(rest.FloatField, f"{help_text} Seconds.", min_value=0, **kwargs)


def flag(help_text: str, **kwargs: Any) -> Any:
    return _field(rest.BooleanField, help_text, **kwargs)


def schema(help_text: str) -> Any:
    more = "JSON Schema (2020-12); null if this server has none. Not given in lists."
    text = f"{help_text}, {more}"
    return _field(rest.DictField, text, null=True, absent=True, child=rest.JSONField())


def word(words: Iterable[object], help_text: str = "", **kwargs: Any) -> Any:
    return _field(rest.ChoiceField, help_text, choices=[str(word) for word in words], **kwargs)


def _field(kind: Any, help_text: str, null: bool = False, absent: bool = False, **more: Any) -> Any:
    return kind(help_text=help_text, allow_null=null, required=not absent, **more)


class TypeIdentifier(Kind):
    schema = {"type": "string", "pattern": f"^{IDENTIFIER}$"}

    def from_text(self, text: str) -> str:
        return text

    def from_json(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("The identifier of a Type must be a string.")
        return value


class KindField(rest.Field):
    """A serializer field that parses its values with a Kind from the table of operations."""

    def __init__(
        self, kind: Kind, help_text: str = "", *, required: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(required=required, help_text=help_text, **kwargs)
        self.kind = kind

    def __deepcopy__(self, memo: dict[int, Any]) -> "KindField":
        # Each serializer copies its fields. The copies share the kind, which is immutable.
        return type(self)(*self._args, **self._kwargs)

    @property
    def schema(self) -> dict[str, Any]:
        return self.kind.schema

    def validate_empty_values(self, data: Any) -> tuple[bool, Any]:
        if data is rest.empty and self.required:
            raise rest.ValidationError("It is required.")
        # The kind refuses a null that is not allowed, with a sentence of its own.
        if data is None and not self.allow_null:
            return False, None
        return super().validate_empty_values(data)

    def to_internal_value(self, data: Any) -> Any:
        return checked(self.kind.from_json, data)

    def to_representation(self, value: Any) -> Any:
        return value


# Comments instead of a docstring: the OpenAPI document shows the docstrings of serializers.


class StrictSerializer(rest.Serializer):
    # A serializer that reports unknown fields together with all other errors.

    unknown = "There is no field {!r}."
    # True if a request must have this body.
    is_needed = True
    # The most items in an array; 0 if the body is one item, not an array.
    max_items = 0

    def run_validation(self, data: Any = rest.empty) -> Any:
        if not isinstance(data, dict):
            raise rest.ValidationError({"": ["It must be a JSON object."]})
        return super().run_validation(data)

    def to_internal_value(self, data: Any) -> Any:
        unknown = islice((name for name in data if name not in self.fields), MOST)
        errors = {
            name: [self.unknown.format(name) + did_you_mean(name, self.fields)] for name in unknown
        }
        try:
            values = super().to_internal_value(data)
        except rest.ValidationError as error:
            errors |= error.detail
        if errors:
            raise rest.ValidationError(errors)
        return values


def checked(check: Callable[..., Any], *args: Any) -> Any:
    """Return ``check(*args)``. If it raises ATPError or ValueError, raise ValidationError."""
    try:
        return check(*args)
    except (ATPError, ValueError) as error:
        raise rest.ValidationError(str(error)) from None
    except RecursionError:  # ``check`` quotes the value in its error
        raise rest.ValidationError("The value is nested too deeply.") from None


# Query parameters, strictly validated; filters and pages of lists.


class Plain(Kind):
    """A Kind for text, with a JSON Schema of which ``from_text`` checks only ``maxLength``."""

    def __init__(self, **schema: Any) -> None:
        self.schema = {"type": "string", **schema}

    def from_text(self, text: str) -> str:
        limit = self.schema.get("maxLength", math.inf)
        if len(text) > limit:
            raise ValueError(f"The value has {len(text)} characters; at most {limit} are allowed.")
        return text


class Instant(Kind):
    """A Kind for a time in ISO 8601 with an offset."""

    schema = DATE_TIME

    def from_text(self, text: str) -> datetime:
        return time_from_json(text)


class Parameter(KindField):
    """A query parameter. It rejects a request that gives the parameter more than once."""

    def to_internal_value(self, data: Any) -> Any:
        if len(data) > 1:
            raise rest.ValidationError(f"{self.field_name!r} is given more than once.")
        if not data[0] and self.schema.get("minLength") != 0:
            raise rest.ValidationError(f"{self.field_name!r} has no value.")
        return checked(self.kind.from_text, data[0])


class Query(StrictSerializer):
    """The query parameters of an operation. Unknown parameters are rejected."""

    unknown = "There is no parameter {!r} here."


class PageQuery(Query):
    page = Parameter(
        Plain(minLength=1, maxLength=1000, pattern="^[A-Za-z0-9_-]+$"),
        "Key of the page: `next_page` or `previous_page` of another page.",
    )
    limit = Parameter(WholeNumber(1, LARGEST_LIMIT), "Rows on a page.", default=DEFAULT_LIMIT)


class LogQuery(PageQuery):
    order = Parameter(Choice((OLDEST, NEWEST)), "Which records come first.", default=OLDEST)


class WaitQuery(Query):
    wait = Parameter(
        Number(0, LONGEST_WAIT),
        "Answer when the Instance has ended, or after this many seconds.",
        default=0,
    )


class TypeQuery(Query):
    type = Parameter(TypeIdentifier(), "Identifier of the Type to check; without it, all Types.")


class LaneQuery(Query):
    collection = Parameter(
        Plain(minLength=0, maxLength=MAX_IDENTIFIER),
        "Only this lane of the Type; empty for Instances without a collection.",
    )


def query_of(filterset: Any) -> type[Any]:
    """Return the Query class for a list, with one parameter for each filter in ``filterset``."""
    filters = {
        name: Parameter(_kind_of(filter), _description_of(filter))
        for name, filter in filterset.base_filters.items()
    }
    return type(f"{filterset.__name__}Query", (PageQuery,), filters)


def _description_of(filter: Any) -> str:
    text = " ".join([filter.label, filter.extra.get("help_text", "")]).strip() + "."
    return f"{text} Empty for rows without one." if filter.field_name == COLLECTION else text


def _kind_of(filter: Any) -> Kind:
    if isinstance(filter, WordFilter):
        return Plain(enum=[word for word, _ in filter.extra["choices"] if word])
    if isinstance(filter, TypeFilter):
        return TypeIdentifier()
    if isinstance(filter, UUIDFilter):
        return Plain(pattern="^-*([0-9A-Fa-f]-*){8,32}$")
    if isinstance(filter, InstantFilter):
        return Instant()
    least = 0 if filter.field_name == COLLECTION else 1
    return Plain(minLength=least, maxLength=filter.extra["max_length"])


class Filters(DjangoFilterBackend):
    """The filter backend that applies the filter sets shared by the pages and the API.

    In the API, an empty ``collection`` selects the rows without a collection. On a page it selects
    all rows, because a form sends an empty text if the user chose nothing.
    """

    def filter_queryset(
        self, request: Request, queryset: QuerySet[Any], view: Any
    ) -> QuerySet[Any]:
        query = request.query_params
        filters, others = view.filterset_class, ("page", "limit")
        rows = bind_filters(filters, query, queryset, others=others, user=request.user).qs
        return rows.filter(collection="") if query.get(COLLECTION) == "" else rows


class SinglePage(BasePagination):
    """Pagination for short lists. One page, with the same keys as in Pages, has all rows."""

    page = paging.Page(rows=[])

    def paginate_queryset(
        self, queryset: Iterable[Any], request: Request, view: Any = None
    ) -> list[Any]:
        return list(queryset)

    def get_paginated_response(self, data: Any, **more: Any) -> Response:
        page = self.page
        return Response(
            {
                "next": self._url(page.next),
                "previous": self._url(page.previous),
                "next_page": page.next,
                "previous_page": page.previous,
                "results": data,
            }
            | more
        )

    def _url(self, key: str | None) -> str | None:
        if key is None:
            return None
        query = self.request.query_params.copy()
        query["page"] = key
        return self.request.build_absolute_uri(f"{self.request.path}?{query.urlencode()}")


class Pages(SinglePage):
    """Keyset pagination, in the order of the QuerySet."""

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        self.request = request
        query, order = view.query, queryset.query.order_by
        self.page = paging.page(queryset, order, size=query["limit"], key=query.get("page"))
        return self.page.rows


@cache
def page_of(serializer: type[Any]) -> type[Any]:
    """Return the serializer class for one page of a list. ``serializer`` renders its rows."""
    name = serializer.__name__.removesuffix("Serializer")
    attributes = {
        "next": rest.URLField(help_text="Address of the next page.", allow_null=True),
        "previous": rest.URLField(help_text="Address of the page before.", allow_null=True),
        "next_page": text("The next page, as a value of `page`.", null=True),
        "previous_page": text("The page before, as a value of `page`.", null=True),
        "results": serializer(many=True),
        "__doc__": None,
    }
    return type(f"{name}PageSerializer", (rest.Serializer,), attributes)


# The OpenAPI document: the operations that views declare, with the errors of each.

# The error statuses of every operation, and of operations that write, have a parameter in their
# path, or have a body.
_ALWAYS, _WRITING, _WITH_PATH, _WITH_BODY = (
    (400, 401, 403, 406, 429, 503),
    (412, 413, 415),
    (404,),
    (422,),
)


class ProblemErrorSerializer(rest.Serializer):
    field = text("Place in the body or the query, as `[3].inputs.azimuth`.")
    detail = text()


class ProblemSerializer(rest.Serializer):
    """An error, as a problem document of RFC 9457."""

    type = text("The kind of problem, as a URN: `urn:atp:problem:…`.")
    title = text("The kind in words.")
    status = rest.IntegerField(min_value=400, max_value=599)
    detail = text("What is wrong with this request.")
    instance = text("Path of the request.")
    errors = ProblemErrorSerializer(many=True, required=False)


Method = TypeVar("Method", bound=Callable[..., Any])


def endpoint(
    id: str,
    summary: str,
    *needs: str,
    answer: Any = empty,
    description: str = "",
    query: type[Any] = Query,
    body: type[Any] | None = None,
    problems: Sequence[int] = (),
    headers: Sequence[OpenApiParameter] = (),
) -> Callable[[Method], Method]:
    """Return a decorator that declares a view's method as an operation of the API.

    ``needs`` are the permissions that the operation needs. ``answer`` is the response's
    serializer, or a dict of serializers by status. By default it is the view's serializer, or a
    page of it for the method ``list``. ``problems`` are error statuses of this operation alone,
    because :class:`Schema` adds those that many operations share.
    """
    responses = answer if answer is empty or isinstance(answer, dict) else {200: answer}

    def decorate(method: Any) -> Any:
        # ``extend_schema`` makes a subclass of this class, not of the project's default.
        method.schema = Schema
        method.needs, method.query, method.body, method.problems = needs, query, body, problems
        return extend_schema(
            operation_id=id,
            summary=summary,
            description=description,
            parameters=[query, *headers],
            request=body and {JSON: body},
            responses=responses,
            filters=False,
        )(method)

    return decorate


def path_parameter(name: str, description: str, **schema: Any) -> OpenApiParameter:
    """Declare a parameter in a view's path for the OpenAPI document."""
    return OpenApiParameter(
        name, schema, OpenApiParameter.PATH, description=description, required=True
    )


def response_header(name: str, description: str, status: int) -> OpenApiParameter:
    """Declare a header of responses with this status for the OpenAPI document."""
    return OpenApiParameter(
        name, str, OpenApiParameter.HEADER, description=description, response=[status]
    )


def one_or_many(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the JSON Schema for an item or an array of items. ``more`` are limits on the array."""
    return {"oneOf": [item, {"type": "array", "items": item, **more}]}


# A raw body of any type. A generated client takes the first of these types that it knows, and so
# reads bytes.
RAW: dict[Any, Any] = {
    (200, BYTES): OpenApiTypes.BINARY,
    (200, JSON): {"description": "Any JSON."},
    (200, "*/*"): OpenApiTypes.BINARY,
}


class ValueExtension(OpenApiSerializerFieldExtension):
    target_class = KindField
    match_subclasses = True

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, Any]:
        return deepcopy(self.target.schema)


class StrictExtension(OpenApiSerializerExtension):
    target_class = StrictSerializer
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, Any]:
        schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        return {"properties": {}, **schema, "additionalProperties": False}


class Schema(AutoSchema):
    """The OpenAPI description of a view's operations, with their permissions and errors."""

    def get_operation(self, *args: Any, **kwargs: Any) -> Any:
        document: Any = super().get_operation(*args, **kwargs)
        method = self.view.endpoint
        needs = " and ".join(f"`{name}`" for name in method.needs)
        texts = [document.get("description"), f"Permission: {needs}." if needs else ""]
        if any(texts):
            document["description"] = "\n\n".join(filter(None, texts))
        possible = {
            *_ALWAYS,
            *(() if self.method == "GET" else _WRITING),
            *(_WITH_PATH if "{" in self.path else ()),
            *(_WITH_BODY if method.body else ()),
            *method.problems,
        }
        schema = self.resolve_serializer(ProblemSerializer, "response").ref
        content = {PROBLEM: {"schema": schema}}
        problems = {str(status): {"content": content} for status in sorted(possible)}
        # The operations of health declare a 503 themselves.
        for status in problems.keys() & document["responses"].keys():
            document["responses"][status]["content"] |= content
        document["responses"] = problems | document["responses"]
        for status, response in document["responses"].items():
            response["description"] = response.get("description") or HTTPStatus(int(status)).phrase
        return document

    def get_description(self) -> str:
        return ""

    def get_response_serializers(self) -> Any:
        serializer = self.view.get_serializer_class()
        return {200: page_of(serializer) if self.view.action == "list" else serializer}

    def get_tags(self) -> list[str]:
        return [self.view.tag]

    def get_override_parameters(self) -> list[Any]:
        return [each for each in self.view.path_parameters if f"{{{each.name}}}" in self.path]

    def _get_request_for_media_type(
        self, serializer: Any, direction: Direction = "request"
    ) -> tuple[Any, bool]:
        if serializer is None:
            return None, False
        item = self.resolve_serializer(serializer, direction).ref
        if serializer.max_items:
            item = one_or_many(item, minItems=1, maxItems=serializer.max_items)
        return item, serializer.is_needed

    def _is_list_view(self, serializer: Any = None) -> bool:
        return False
