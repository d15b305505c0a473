"""Errors as problem documents (RFC 9457), and the parsers and the renderer for JSON."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from django.conf import settings as project
from django.core.exceptions import RequestDataTooBig
from django.core.signals import got_request_exception
from django.http import UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.utils.encoding import escape_uri_path
from django.utils.http import parse_header_parameters
from rest_framework import exceptions as rest
from rest_framework.exceptions import NotAcceptable, ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import set_rollback

from ..exceptions import NotSerializable
from ..payload import json as tagged_json
from ..reports import documents
from ..web.overload import retry_after
from ..web.problems import Problem, problem_of

JSON = "application/json"
PROBLEM = "application/problem+json"
MERGE_PATCH = "application/merge-patch+json"
BYTES = "application/octet-stream"
# In characters.
_LONGEST_CONTENT_TYPE = 256

# Parsers and the renderer. They accept only JSON, whatever the project's settings say.


class JSONRenderer(BaseRenderer):
    media_type = JSON
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        """Return a document as one line of JSON, encoded in UTF-8."""
        text = (
            json.dumps(data, default=documents.plain_value, ensure_ascii=False, allow_nan=False)
            + "\n"
        )
        # UTF-8 cannot encode half of a surrogate pair, so write its JSON escape instead.
        return text.encode(errors="backslashreplace")


class JSONParser(BaseParser):
    """A parser for strict JSON in UTF-8 of at most DATA_UPLOAD_MAX_MEMORY_SIZE bytes."""

    media_type = JSON

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the value in a JSON body. Raises ParseError or RequestDataTooBig."""
        try:
            return tagged_json.parse_json(_read(stream, parser_context["request"]).decode())
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise ParseError(
                f"The body is not UTF-8: byte {error.start} is 0x{byte:02x}."
            ) from None
        except NotSerializable as error:
            raise ParseError(f"The body is {error}.") from None


class MergePatchParser(JSONParser):
    """A parser for JSON Merge Patch (RFC 7396), used for ``PATCH`` requests only."""

    media_type = MERGE_PATCH


def _read(stream: Any, request: Request) -> bytes:
    limit = project.DATA_UPLOAD_MAX_MEMORY_SIZE
    if limit is None:
        return stream.read()
    length = request.META.get("CONTENT_LENGTH", "")
    is_too_large = length.isdecimal() and int(length) > limit
    # Content-Length may be wrong or missing, so read at most one byte above the limit.
    data = b"" if is_too_large else stream.read(limit + 1)
    if is_too_large or len(data) > limit:
        raise RequestDataTooBig(f"The body is larger than {limit} bytes, the limit of this server.")
    return data


class Negotiation(DefaultContentNegotiation):
    """Content negotiation by request headers. No query parameter selects a format."""

    settings = SimpleNamespace(URL_FORMAT_OVERRIDE=None)

    def select_renderer(
        self, request: Request, renderers: Sequence[Any], format_suffix: str | None = None
    ) -> tuple[Any, str]:
        """Return the only renderer, even if the client accepts nothing but problem documents."""
        try:
            return super().select_renderer(request, renderers, format_suffix)
        except NotAcceptable:
            if not any(_is_problem(accepted) for accepted in self.get_accept_list(request)):
                raise
            return renderers[0], renderers[0].media_type

    def select_parser(self, request: Request, parsers: Sequence[Any]) -> Any:
        """Return the parser for the request's content type in UTF-8, or None if no parser fits."""
        if len(request.content_type) > _LONGEST_CONTENT_TYPE:
            return None
        try:
            name, parameters = parse_header_parameters(request.content_type)
        except ValueError:
            return None
        if parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
            return None
        if name == MERGE_PATCH and request.method != "PATCH":
            return None
        return next((parser for parser in parsers if parser.media_type == name), None)


def _is_problem(accepted: str) -> bool:
    try:
        return parse_header_parameters(accepted)[0] == PROBLEM
    except ValueError:  # a parameter in an encoding that does not exist
        return False


class AnyAccept(Negotiation):
    """Content negotiation for raw bodies, which accepts every Accept header.

    The view learns the content type of a stored body only after the negotiation.
    """

    def select_renderer(
        self, request: Request, renderers: Sequence[Any], format_suffix: str | None = None
    ) -> tuple[Any, str]:
        return renderers[0], renderers[0].media_type


# Errors as problem documents of RFC 9457. :mod:`atp.web.problems` maps the exceptions of ATP and
# Django to problems; this module maps those of REST framework, and makes the responses.

URN = "urn:atp:problem:"
# The most errors that one answer reports.
MOST = 20

# The first class that fits decides. REST framework changes 401 to 403 if no authenticator has a
# challenge.
MEANINGS: tuple[tuple[Any, int, str, str], ...] = (
    (rest.NotAuthenticated, 401, "not-authenticated", "A login is needed"),
    (rest.AuthenticationFailed, 401, "authentication-failed", "The login is not valid"),
    (rest.PermissionDenied, 403, "permission-denied", "You may not do this"),
    (rest.NotFound, 404, "not-found", "There is nothing here"),
    (rest.MethodNotAllowed, 405, "method-not-allowed", "This cannot be done here"),
    (rest.NotAcceptable, 406, "not-acceptable", "The API answers in JSON only"),
    (rest.UnsupportedMediaType, 415, "unsupported-media-type", "The API reads JSON only"),
    (rest.Throttled, 429, "throttled", "There were too many requests"),
    (
        (rest.ParseError, UnreadablePostError, MultiPartParserError),
        400,
        "bad-request",
        "The request cannot be understood",
    ),
)
# Problems that the API raises. PARAMETER and BODY name the wrong fields.
PARAMETER = Problem(status=400, name="invalid-parameter", title="A parameter is not possible")
BODY = Problem(status=422, name="invalid-body", title="The body does not fit")
PRECONDITION = Problem(
    status=412, name="precondition-failed", title="The precondition does not hold"
)
FAULT = Problem(status=500, name="fault", title="This is a fault of the server")

_log = logging.getLogger("django.request")


class ProblemError(Exception):
    """An exception that carries the :class:`Problem` with which the API answers."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def placed_errors(detail: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield a serializer's errors as pairs: a place, such as ``[3].inputs``, and a sentence."""
    if isinstance(detail, dict):
        for name, inner in detail.items():
            yield from placed_errors(
                inner, join_place(place, f"[{name}]" if isinstance(name, int) else name)
            )
    else:
        yield from ((place, str(text)) for text in detail)


def join_place(place: str, field: str) -> str:
    return f"{place}.{field}" if place and field else place or field


def problem_with_errors(problem: Problem, errors: Sequence[tuple[str, str]]) -> ProblemError:
    """Return a ProblemError that adds ``errors`` to ``problem``.

    Each error is a pair of a field and a sentence.
    """
    errors = errors[:MOST]
    with_field = tuple((field, text) for field, text in errors if field)
    return ProblemError(replace(problem, detail=detail_of(errors), errors=with_field))


def detail_of(errors: Sequence[tuple[str, str]]) -> str:
    """Join the sentences of errors into one text. A sentence about an array item names the item."""
    places: dict[str, list[str]] = {}
    for field, text in errors:
        places.setdefault(text, []).append(field)
    return " ".join(
        f"{', '.join(fields)}: {text}" if fields[0].startswith("[") else text
        for text, fields in places.items()
    )


def if_match_problem() -> ProblemError:
    """Return the ProblemError for a request with an If-Match header.

    The API sends no ETags, so only the header ``If-Match: *`` can match.
    """
    detail = (
        "The API gives no ETags, so If-Match can only be '*'. A change that the state does not "
        "allow is refused anyway; for a gate, give `expected`."
    )
    return ProblemError(replace(PRECONDITION, detail=detail))


def problem_response(error: Exception, context: dict[str, Any]) -> Response:
    """Return the response to an exception. REST framework calls this in all views of the API."""
    set_rollback()
    problem = _problem(error, context)
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if seconds := getattr(error, "wait", None):
        headers["Retry-After"] = retry_after(seconds)
    if problem.retry_after is not None:
        headers["Retry-After"] = retry_after(problem.retry_after)
    document: dict[str, Any] = {
        "type": f"{URN}{problem.name}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": escape_uri_path(context["request"].path),
    }
    if problem.errors:
        document["errors"] = [{"field": field, "detail": text} for field, text in problem.errors]
    return Response(document, status=problem.status, headers=headers, content_type=PROBLEM)


def _problem(error: Exception, context: dict[str, Any]) -> Problem:
    if isinstance(error, ProblemError):
        return error.problem
    problem = problem_of(error)
    if problem is not None:
        return problem
    for kind, status, name, title in MEANINGS:
        if isinstance(error, kind):
            return Problem(
                status=getattr(error, "status_code", status),
                name=name,
                title=title,
                detail=_detail(error, context),
            )
    if isinstance(error, rest.APIException):
        name = str(error.default_code).replace("_", "-")
        return Problem(status=error.status_code, name=name, title=name, detail=str(error.detail))
    return _fault(error, context)


def _detail(error: Exception, context: dict[str, Any]) -> str:
    view, request = context["view"], context["request"]
    if isinstance(error, rest.NotAuthenticated):
        return "A login is needed to see or do anything here."
    if isinstance(error, rest.MethodNotAllowed):
        return f"{request.method} is not possible here, only {' and '.join(view.allowed_methods)}."
    if isinstance(error, rest.NotAcceptable):
        return f"The Accept header {request.headers.get('Accept')!r} excludes application/json."
    if isinstance(error, rest.UnsupportedMediaType):
        return f"The body is {request.content_type!r}, not application/json in UTF-8."
    return str(getattr(error, "detail", error))


def _fault(error: Exception, context: dict[str, Any]) -> Problem:
    """Log an unexpected exception, and return a problem that does not describe the exception."""
    request = context["request"]._request
    _log.error("Fault of the API at %s", request.path, exc_info=error, extra={"request": request})
    got_request_exception.send(sender=type(context["view"]), request=request)
    return replace(FAULT, detail="The server's log says more, if the project logs django.request.")
