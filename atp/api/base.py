"""Base classes for the API's views: permissions, validation of query and body, and errors.

Of the project's settings for REST framework, only those for authentication and throttling apply
to these views.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from django.core.handlers.asgi import ASGIRequest
from django.db.models import Model, QuerySet
from django.http import Http404
from django.urls import reverse
from django.utils.cache import patch_cache_control
from drf_spectacular.utils import OpenApiParameter
from rest_framework.decorators import action
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, ParseError
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from ..operations.operation import Operation, Outcome, Parameter
from ..operations.table import INSTANCE, OPERATIONS
from ..text import did_you_mean
from ..web import permissions
from ..web.permissions import API, actor
from ..web.problems import Problem
from . import schema
from .problems import (
    BODY,
    PARAMETER,
    JSONParser,
    JSONRenderer,
    MergePatchParser,
    Negotiation,
    if_match_problem,
    placed_errors,
    problem_response,
    problem_with_errors,
)
from .schema import KindField, Schema, SinglePage, StrictSerializer

_WRITING = frozenset({"POST", "PATCH", "DELETE"})
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


def is_uuid(text: str) -> bool:
    """Return True if text from a URL is a uuid with hyphens. The API accepts no other form."""
    return _UUID.fullmatch(text) is not None


def _has_body_of_unknown_length(request: Any) -> bool:
    """Return True if Django's request has a body but no Content-Length header.

    REST framework ignores such a body, so the API rejects the request.
    """
    if request.META.get("CONTENT_LENGTH"):
        return False
    if "HTTP_TRANSFER_ENCODING" in request.META:
        return True
    # HTTP/2 has no header for chunks, so only reading shows whether there is a body.
    return isinstance(request, ASGIRequest) and bool(request.read(1))


class Permitted(BasePermission):
    """Allow only users who are logged in and have the permissions that the view's method needs."""

    def has_permission(self, request: Request, view: "View") -> bool:
        view.require(*(view.endpoint.needs if view.endpoint else ()))
        return True


class View(APIView):
    """The base class of all views of the API.

    The decorator ``schema.endpoint`` declares what each method of a view takes and returns.
    """

    # The name of the called method.
    action: str | None = None
    # The tag in the OpenAPI document, and the parameters of the path.
    tag = ""
    path_parameters: tuple[OpenApiParameter, ...] = ()

    http_method_names = ("get", "head", "post", "patch", "delete")
    renderer_classes = (JSONRenderer,)
    parser_classes = (JSONParser, MergePatchParser)
    permission_classes: tuple[Any, ...] = (Permitted,)
    content_negotiation_class = Negotiation
    versioning_class = None
    metadata_class = None
    schema: Schema | None = Schema()

    @property
    def endpoint(self) -> Any:
        """The view's method that serves the request, or None if the view has no such method."""
        return getattr(self, self.action, None) if self.action else None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if self.endpoint is not None:
            texts = dict(request.query_params.lists())
            self.query = validated_data(self.endpoint.query(data=texts), PARAMETER)
        if request.method in _WRITING and request.headers.get("If-Match", "*").strip() != "*":
            raise if_match_problem()
        if request.method in _WRITING and _has_body_of_unknown_length(request._request):
            raise ParseError(
                "The request has a body but no Content-Length. Send the body whole, not in chunks."
            )

    def perform_authentication(self, request: Request) -> None:
        try:
            super().perform_authentication(request)
        except ValueError:  # the database refuses some texts, such as NUL
            raise AuthenticationFailed("The credentials cannot be read.") from None

    def require(self, *names: str) -> None:
        """Raise NotAuthenticated without a login, PermissionDenied if a permission is missing."""
        if self.request.user is None or not self.request.user.is_authenticated:
            raise NotAuthenticated
        lacking = permissions.missing_permissions(self.request.user, names)
        if lacking:
            self.permission_denied(self.request, message=permissions.describe_missing(lacking))

    def get_authenticate_header(self, request: Request) -> str | None:
        """Return the WWW-Authenticate challenge of the first authenticator with one, or None."""
        challenges = (each.authenticate_header(request) for each in self.get_authenticators())
        return next(filter(None, challenges), None)

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response]:
        return problem_response

    def get_format_suffix(self, **kwargs: Any) -> None:
        return None

    def url(self, name: str, *args: Any) -> str:
        """Return the absolute URL of the view with this name in the same ``urls``."""
        namespace = self.request.resolver_match.namespace
        return self.request.build_absolute_uri(reverse(f"{namespace}:{name}", args=args))

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        final = super().finalize_response(request, response, *args, **kwargs)
        final.headers.setdefault("X-Content-Type-Options", "nosniff")
        patch_cache_control(final, private=True, no_store=True)
        return final


class ViewSet(View, GenericViewSet):
    pagination_class = SinglePage
    filter_backends: tuple[Any, ...] = ()
    # The model of the rows that the URLs name. A viewset whose URLs name no row does not set it.
    model: type[Model]

    def find(self) -> Any:
        """Return the object that the URL names, such as a row. Raises ATPError if it is unknown."""
        raise NotImplementedError

    def answer(self, subject: Any, outcome: Outcome) -> Response:
        """Return the response after an operation on ``subject``, the object that the URL names."""
        raise NotImplementedError

    def get_object(self) -> Any:
        """Return the object that the URL names.

        Raises an error if the user lacks one of the method's permissions for the object.
        """
        name = self.kwargs[self.lookup_field]
        user, needs = self.request.user, self.endpoint.needs
        return permissions.look_up(user, self.find, self.model, name, *needs)

    def visible_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows in a QuerySet that the user may see."""
        return permissions.narrow_rows(self.request.user, self.endpoint.needs[0], rows)

    def visible(self, rows: Iterable[Any]) -> list[Any]:
        """Return the items that the user may see: rows, or pairs of Type and collection."""
        user, name = self.request.user, self.endpoint.needs[0]
        return [row for row in rows if permissions.allows(user, name, row)]

    def page_response(self, rows: Iterable[Any], **more: Any) -> Response:
        """Return the response with one page of rows. ``more`` adds keys to the JSON document."""
        serializer = self.get_serializer(self.paginate_queryset(rows), many=True)
        return self.paginator.get_paginated_response(serializer.data, **more)

    def perform(self, operation: Operation, subject: Any, **values: Any) -> Outcome:
        """Check that the user may perform an operation, perform it, and return its Outcome."""
        self.require(*operation.permissions(subject))
        permissions.require_operation(self.request.user, operation, subject, values)
        return operation.perform(subject, actor(self.request, API), **values)

    def read_body(self, purpose: str = "", **more: Any) -> Any:
        """Return the validated body of the request.

        With a ``purpose``, such as "changed", the body is required, and the error about a missing
        body mentions the purpose. ``more`` are further arguments for the serializer.
        """
        if self.endpoint.body is None:
            if self.request.data != {}:
                data = self.request.data
                names = ", ".join(map(repr, data)) if isinstance(data, dict) else "other JSON"
                raise ParseError(
                    f"This request takes no body or an empty object. It does not take {names}."
                )
            return {}
        if purpose and self.request.stream is None:
            raise ParseError(f"The request has no body. The body must say what is to be {purpose}.")
        context = {**self.get_serializer_context(), "by": actor(self.request, API)}
        return validated_data(
            self.endpoint.body(data=self.request.data, context=context, **more), BODY
        )


class UnknownView(View):
    """The view for all paths that no other view serves. It answers 404 and suggests a path."""

    schema = None
    # The paths that other views serve.
    known: tuple[str, ...] = ()

    @property
    def default_response_headers(self) -> dict[str, str]:
        return {}

    def http_method_not_allowed(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        path = kwargs["path"]
        hint = did_you_mean(path.rstrip("/"), self.known)
        if not path:
            first = sorted({known.partition("/")[0] for known in self.known})
            hint = f" Its addresses begin with {', '.join(first)}."
        raise Http404(f"The API has no address {path!r}.{hint}")


def validated_data(serializer: Any, problem: Problem) -> Any:
    """Return the validated data of a serializer.

    If the data is invalid, raise a ProblemError made from ``problem`` and the serializer's errors.
    """
    if not serializer.is_valid():
        raise problem_with_errors(problem, list(placed_errors(serializer.errors)))
    return serializer.validated_data


# Operations of the table as actions of viewsets.


class OperationBody(StrictSerializer):
    # The body of an operation: one field for each of its ``parameters``.

    parameters: tuple[Parameter, ...] = ()
    # True if every field may be null.
    nullable = False

    def get_fields(self) -> dict[str, Any]:
        return super().get_fields() | {
            parameter.json_name: KindField(
                parameter.kind,
                parameter.help,
                required=parameter.is_required,
                allow_null=parameter.can_be_none or self.nullable,
                source=parameter.name if parameter.field else None,
            )
            for parameter in self.parameters
        }


def body_of(operation: Operation, noun: str = "") -> type[Any] | None:
    """Return the serializer class for an operation's request body, or None if it takes no body.

    ``noun`` becomes part of the class's name, because several operations may have one name.
    """
    name, parameters = f"{operation.name.title().replace('-', '')}{noun}", operation.parameters
    is_needed = operation.method != "POST" or any(each.is_required for each in parameters)
    attributes = {"parameters": parameters, "is_needed": is_needed}
    return type(f"{name}Serializer", (OperationBody,), attributes) if parameters else None


def _has_address(operation: Operation) -> bool:
    return operation.method == "POST"


SomeViewSet = TypeVar("SomeViewSet", bound=type[ViewSet])


def with_operations(
    kind: str,
    view_permission: str,
    declared: Callable[[Any], tuple[str, str, str]],
    *,
    fits: Callable[[Any], bool] = _has_address,
    **more: Any,
) -> Callable[[SomeViewSet], SomeViewSet]:
    """Return a class decorator that adds an action to a viewset for each operation with a URL.

    ``kind`` selects the operations from the table. ``declared(operation)`` returns an operation's
    id, summary and description for the OpenAPI document. ``fits(operation)`` returns True if the
    operation has its own URL below the viewset's. ``more`` are further arguments for
    :func:`atp.api.schema.endpoint`. The viewset's method ``answer`` makes the responses.
    """

    def decorate(viewset: SomeViewSet) -> SomeViewSet:
        for operation in OPERATIONS[kind].values():
            if fits(operation):
                id, summary, description = declared(operation)
                declare = schema.endpoint(
                    id,
                    summary,
                    view_permission,
                    *operation.needs,
                    description=description,
                    body=body_of(operation, "" if kind == INSTANCE else kind.title()),
                    problems=(409,),
                    **more,
                )
                extra = _extra_action(operation)
                setattr(viewset, extra.__name__, declare(extra))
        return viewset

    return decorate


def _extra_action(operation: Operation) -> Any:
    def perform(self: ViewSet, request: Request, **kwargs: Any) -> Response:
        subject = self.get_object()
        return self.answer(subject, self.perform(operation, subject, **self.read_body()))

    perform.__name__ = f"perform_{operation.id}"
    name = operation.name
    return action(detail=True, methods=["post"], url_path=name, url_name=name)(perform)
