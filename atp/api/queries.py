"""Query parameters of the API, strictly validated; filters and pages of lists."""

import math
from functools import cache

from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import serializers as rest
from rest_framework.pagination import BasePagination
from rest_framework.response import Response

from ..reports import paging
from ..web.filters import TypeFilter, UUIDFilter, WordFilter, selected
from ..words.kinds import Choice, Kind, Number, WholeNumber
from ..words.options import MAX_IDENTIFIER
from .fields import Strict, TypeIdentifier, Value, checked, text

COLLECTION = "collection"
OLDEST, NEWEST = "oldest", "newest"
DEFAULT_LIMIT, LARGEST_LIMIT = 50, 500
LONGEST_WAIT = 60


class Plain(Kind):
    """A text with a schema of its own. ``from_text`` checks its ``maxLength`` only."""

    def __init__(self, **schema):
        self.schema = {"type": "string", **schema}

    def from_text(self, text):
        limit = self.schema.get("maxLength", math.inf)
        if len(text) > limit:
            raise ValueError(f"It has {len(text)} characters; at most {limit} are possible.")
        return text


class Parameter(Value):
    """A query parameter. It reads the list of given texts, and refuses all but a single one."""

    def to_internal_value(self, data):
        if len(data) > 1:
            raise rest.ValidationError(f"{self.field_name!r} is given more than once.")
        if not data[0] and self.schema.get("minLength") != 0:
            raise rest.ValidationError(f"{self.field_name!r} has no value.")
        return checked(self.kind.from_text, data[0])


class Query(Strict):
    """The query parameters of an operation. Unknown ones are refused."""

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


def query_of(filterset):
    """Return the class of Query for a list with a filter set: a parameter for each filter."""
    filters = {
        name: Parameter(_kind(filter), _description(filter))
        for name, filter in filterset.base_filters.items()
    }
    return type(f"{filterset.__name__}Query", (PageQuery,), filters)


def _description(filter):
    text = " ".join([filter.label, filter.extra.get("help_text", "")]).strip() + "."
    return f"{text} Empty for rows without one." if filter.field_name == COLLECTION else text


def _kind(filter):
    if isinstance(filter, WordFilter):
        return Plain(enum=[word for word, _ in filter.extra["choices"] if word])
    if isinstance(filter, TypeFilter):
        return TypeIdentifier()
    if isinstance(filter, UUIDFilter):
        return Plain(pattern="^-*([0-9A-Fa-f]-*){8,32}$")
    least = 0 if filter.field_name == COLLECTION else 1
    return Plain(minLength=least, maxLength=filter.extra["max_length"])


class Filters(DjangoFilterBackend):
    """The filter backend: it applies the filter sets that pages and API share.

    In the API an empty collection selects the rows without a collection. On a page it
    selects all rows, because a form sends it where nothing was chosen.
    """

    def filter_queryset(self, request, queryset, view):
        query = request.query_params
        filters, others = view.filterset_class, ("page", "limit")
        rows = selected(filters, query, queryset, others=others, user=request.user).qs
        return rows.filter(collection="") if query.get(COLLECTION) == "" else rows


class Whole(BasePagination):
    """A pagination of short lists: all rows on one page, in the same form as :class:`Pages`."""

    found = paging.Page(rows=[])

    def paginate_queryset(self, queryset, request, view=None):
        return list(queryset)

    def get_paginated_response(self, data, **more):
        page = self.found
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

    def _url(self, key):
        if key is None:
            return None
        query = self.request.query_params.copy()
        query["page"] = key
        return self.request.build_absolute_uri(f"{self.request.path}?{query.urlencode()}")


class Pages(Whole):
    """A pagination by key, in the order of the QuerySet."""

    def paginate_queryset(self, queryset, request, view=None):
        self.request = request
        query, order = view.query, queryset.query.order_by
        self.found = paging.page(queryset, order, size=query["limit"], key=query.get("page"))
        return self.found.rows


@cache
def page_of(serializer):
    """Return the class of serializers for a page, whose rows ``serializer`` renders."""
    name = serializer.__name__.removesuffix("Serializer")
    named = {
        "next": rest.URLField(help_text="Address of the next page.", allow_null=True),
        "previous": rest.URLField(help_text="Address of the page before.", allow_null=True),
        "next_page": text("The next page, as a value of `page`.", null=True),
        "previous_page": text("The page before, as a value of `page`.", null=True),
        "results": serializer(many=True),
        "__doc__": None,
    }
    return type(f"{name}PageSerializer", (rest.Serializer,), named)
