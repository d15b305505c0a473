"""The base of all views of the API: permissions, validation of query and body, errors.

The project's settings of REST framework decide about authentication and throttling
only.
"""

import re

from django.core.handlers.asgi import ASGIRequest
from django.http import Http404
from django.urls import reverse
from django.utils.cache import patch_cache_control
from rest_framework.decorators import action
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, ParseError
from rest_framework.permissions import BasePermission
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from ..operations.table import INSTANCE, VERBS
from ..text import did_you_mean
from ..web import permissions
from ..web.permissions import API, actor
from .problems import (
    BODY,
    PARAMETER,
    JSONParser,
    JSONRenderer,
    MergePatchParser,
    Negotiation,
    handler,
    placed,
    without_etag,
    wrong,
)
from .schema import Schema, Strict, Value, Whole, operation

_WRITING = frozenset({"POST", "PATCH", "DELETE"})
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


def is_uuid(text):
    """Return whether text from a URL is a uuid with hyphens, the only form that the API gives."""
    return _UUID.fullmatch(text) is not None


def _has_untold_body(request):
    """Return whether a request has a body without a length: REST framework would read none."""
    if request.META.get("CONTENT_LENGTH"):
        return False
    if "HTTP_TRANSFER_ENCODING" in request.META:
        return True
    # HTTP/2 has no chunks.
    return isinstance(request, ASGIRequest) and bool(request.read(1))


class Permitted(BasePermission):
    """Require a login, and the permissions that the operation needs."""

    def has_permission(self, request, view):
        view.require(*(view.operation.needs if view.operation else ()))
        return True


class View(APIView):
    """The base of the views. ``schema.operation`` declares what a method takes and returns."""

    # The name of the called method; the tag in the schema; the parameters of the path.
    action = None
    tag = ""
    named = ()

    http_method_names = ("get", "head", "post", "patch", "delete")
    renderer_classes = (JSONRenderer,)
    parser_classes = (JSONParser, MergePatchParser)
    permission_classes = (Permitted,)
    content_negotiation_class = Negotiation
    versioning_class = None
    metadata_class = None
    schema = Schema()

    @property
    def operation(self):
        """The called method, as ``schema.operation`` has declared it; None if there is none."""
        return getattr(self, self.action, None) if self.action else None

    def initial(self, request, *args, **kwargs):
        super().initial(request, *args, **kwargs)
        if self.operation is not None:
            texts = dict(request.query_params.lists())
            self.query = valid(self.operation.query(data=texts), PARAMETER)
        if request.method in _WRITING and request.headers.get("If-Match", "*").strip() != "*":
            raise without_etag()
        if request.method in _WRITING and _has_untold_body(request._request):
            raise ParseError("The body has no Content-Length: send it whole, not in chunks.")

    def perform_authentication(self, request):
        try:
            super().perform_authentication(request)
        except ValueError:  # the database refuses some texts, such as NUL
            raise AuthenticationFailed("The login cannot be read.") from None

    def require(self, *names):
        """Raise PermissionDenied with the missing permissions, NotAuthenticated without a login."""
        if self.request.user is None or not self.request.user.is_authenticated:
            raise NotAuthenticated
        lacking = permissions.lacking(self.request.user, names)
        if lacking:
            self.permission_denied(self.request, message=permissions.refusal(lacking))

    def get_authenticate_header(self, request):
        """Return the challenge of the first authenticator that has one, None if none has."""
        challenges = (way.authenticate_header(request) for way in self.get_authenticators())
        return next(filter(None, challenges), None)

    def get_exception_handler(self):
        return handler

    def get_format_suffix(self, **kwargs):
        return None

    def finalize_response(self, request, response, *args, **kwargs):
        answer = super().finalize_response(request, response, *args, **kwargs)
        answer.headers.setdefault("X-Content-Type-Options", "nosniff")
        patch_cache_control(answer, private=True, no_store=True)
        return answer


class ViewSet(View, GenericViewSet):
    pagination_class = Whole
    filter_backends = ()
    # The model of the rows that the URLs name.
    model = None

    def find(self):
        """Return the row that the URL names, or a scope of verbs. Raises ATPError."""
        raise NotImplementedError

    def get_object(self):
        """Return what the URL names, if all permissions of the operation hold on it."""
        name = self.kwargs[self.lookup_field]
        user, needs = self.request.user, self.operation.needs
        return permissions.look_up(user, self.find, self.model, name, *needs)

    def narrowed(self, rows):
        """Return those rows of a QuerySet on which the permission to see them holds."""
        return permissions.narrowed(self.request.user, self.operation.needs[0], rows)

    def seen(self, rows):
        """Return those of a list of rows on which the permission to see them holds."""
        user, name = self.request.user, self.operation.needs[0]
        return [row for row in rows if permissions.allows(user, name, row)]

    def listed(self, rows, **more):
        """Answer with a page of rows; ``more`` are further keys of the document."""
        serializer = self.get_serializer(self.paginate_queryset(rows), many=True)
        return self.paginator.get_paginated_response(serializer.data, **more)

    def perform(self, verb, subject, **values):
        """Check the permissions of a verb, perform it, and return the Outcome."""
        self.require(*verb.permissions(subject))
        permissions.require_operation(self.request.user, verb, subject, values)
        return verb.perform(subject, actor(self.request, API), **values)

    def values(self, purpose="", **more):
        """Return the validated body. If a ``purpose`` is given, the body is required."""
        if self.operation.body is None:
            if self.request.data != {}:
                given = self.request.data
                names = ", ".join(map(repr, given)) if isinstance(given, dict) else "a body"
                raise ParseError(
                    f"This takes no body, or an empty object; {names} cannot be given."
                )
            return {}
        if purpose and self.request.stream is None:
            raise ParseError(f"The body is missing; it says what is to be {purpose}.")
        context = {**self.get_serializer_context(), "by": actor(self.request, API)}
        return valid(self.operation.body(data=self.request.data, context=context, **more), BODY)

    def url(self, name, *args):
        """Return the absolute address of a view of the API."""
        namespace = self.request.resolver_match.namespace
        return self.request.build_absolute_uri(reverse(f"{namespace}:{name}", args=args))


class UnknownView(View):
    """The view of every path that no other view has: it answers 404 and hints at an address."""

    schema = None
    known = ()

    @property
    def default_response_headers(self):
        return {}

    def http_method_not_allowed(self, request, *args, **kwargs):
        path = kwargs["path"]
        hint = did_you_mean(path.rstrip("/"), self.known)
        if not path:
            first = sorted({known.partition("/")[0] for known in self.known})
            hint = f" Its addresses begin with {', '.join(first)}."
        raise Http404(f"The API has no address {path!r}.{hint}")


def valid(serializer, problem):
    """Return the validated data of a serializer. Raise ``problem`` as a ProblemError if invalid."""
    if not serializer.is_valid():
        raise wrong(problem, list(placed(serializer.errors)))
    return serializer.validated_data


class Body(Strict):
    # The body of a verb: one field for each of its ``parameters``.

    parameters = ()
    nullable = False

    def get_fields(self):
        return super().get_fields() | {
            parameter.json_name: Value(
                parameter.kind,
                parameter.help,
                required=parameter.is_required,
                allow_null=parameter.can_be_none or self.nullable,
                source=parameter.name if parameter.field else None,
            )
            for parameter in self.parameters
        }


def body_of(verb, noun=""):
    """Return the class of serializers for the body of a verb; None if the verb takes no body.

    ``noun`` distinguishes verbs that have the same name.
    """
    name, parameters = f"{verb.name.title().replace('-', '')}{noun}", verb.parameters
    is_needed = verb.method != "POST" or any(each.is_required for each in parameters)
    own = {"parameters": parameters, "is_needed": is_needed}
    return type(f"{name}Serializer", (Body,), own) if parameters else None


def _has_address(verb):
    return verb.method == "POST"


def with_verbs(kind, view_permission, declared, *, fits=_has_address, **more):
    """Return a decorator that adds an action to a viewset for each verb with its own address.

    ``declared(verb)`` returns the operation id, the summary and the description. ``fits(verb)``
    tells whether the verb has an address. ``more`` are further arguments of :func:`operation`.
    The viewset's method ``answer(subject, outcome)`` makes the response.
    """

    def decorate(viewset):
        for verb in VERBS[kind].values():
            if fits(verb):
                id, summary, description = declared(verb)
                says = operation(
                    id,
                    summary,
                    view_permission,
                    *verb.needs,
                    description=description,
                    body=body_of(verb, "" if kind == INSTANCE else kind.title()),
                    problems=(409,),
                    **more,
                )
                extra = _extra_action(verb)
                setattr(viewset, extra.__name__, says(extra))
        return viewset

    return decorate


def _extra_action(verb):
    def perform(self, request, **kwargs):
        subject = self.get_object()
        return self.answer(subject, self.perform(verb, subject, **self.values()))

    perform.__name__ = f"perform_{verb.id}"
    return action(detail=True, methods=["post"], url_path=verb.name, url_name=verb.name)(perform)
