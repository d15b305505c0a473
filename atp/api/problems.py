"""Whatever goes wrong, as RFC 9457 has it: ``application/problem+json``.

What an exception of ATP or Django means is said in :mod:`atp.web.problems`;
here stands what those of REST framework mean, and how a problem is answered.
"""

import logging

from django.core.signals import got_request_exception
from django.http import UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from django.utils.encoding import escape_uri_path
from rest_framework import exceptions as rest
from rest_framework.response import Response
from rest_framework.views import set_rollback

from ..web.problems import Problem, problem_of
from .media import PROBLEM

URN = "urn:atp:problem:"
# Errors of one body that are told at most.
MOST = 20

# The first class that fits decides. Who they are of a login without a
# challenge, REST framework changes from 401 to 403.
MEANINGS = (
    (rest.NotAuthenticated, 401, "not-authenticated", "A login is needed"),
    (rest.AuthenticationFailed, 401, "authentication-failed", "The login is not valid"),
    (rest.PermissionDenied, 403, "permission-denied", "You may not do this"),
    (rest.NotFound, 404, "not-found", "There is nothing here"),
    (rest.MethodNotAllowed, 405, "method-not-allowed", "This cannot be done here"),
    (rest.NotAcceptable, 406, "not-acceptable", "Only JSON can be had"),
    (rest.UnsupportedMediaType, 415, "unsupported-media-type", "Only JSON can be read"),
    (rest.Throttled, 429, "throttled", "There were too many requests"),
    (
        (rest.ParseError, UnreadablePostError, MultiPartParserError),
        400,
        "bad-request",
        "The request cannot be understood",
    ),
)
# What the API raises itself, with the fields that are wrong.
PARAMETER = (400, "invalid-parameter", "A parameter is not possible")
BODY = (422, "invalid-body", "The body does not fit")
FAULT = (500, "fault", "This is a fault of the server")

_log = logging.getLogger("django.request")


class ProblemError(Exception):
    """A problem that is known as such where it is raised."""

    def __init__(self, problem):
        super().__init__(problem.detail)
        self.problem = problem


def wrong(kind, errors):
    """Return the ProblemError about ``errors``, pairs of a field and what is wrong with it."""
    status, name, title = kind
    errors = errors[:MOST]
    detail = " ".join(dict.fromkeys(text for _, text in errors))
    errors = tuple((field, text) for field, text in errors if field)
    return ProblemError(
        Problem(status=status, name=name, title=title, detail=detail, errors=errors)
    )


def handler(error, context):
    """Return the response to an exception: REST framework's EXCEPTION_HANDLER."""
    set_rollback()
    problem = _problem(error, context)
    headers = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header
    if getattr(error, "wait", None):
        headers["Retry-After"] = f"{error.wait:.0f}"
    path = escape_uri_path(context["request"].path)
    return Response(
        document(problem, path), status=problem.status, headers=headers, content_type=PROBLEM
    )


def document(problem, path):
    """Return what is told of a problem that occurred at ``path``."""
    told = {
        "type": f"{URN}{problem.name}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": path,
    }
    if problem.errors:
        told["errors"] = [{"field": field, "detail": text} for field, text in problem.errors]
    return told


def _problem(error, context):
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


def _detail(error, context):
    view, request = context["view"], context["request"]
    if isinstance(error, rest.NotAuthenticated):
        return "Nothing is shown or done here without a login."
    if isinstance(error, rest.MethodNotAllowed):
        return f"{request.method} is not possible here, but {' and '.join(view.allowed_methods)}."
    if isinstance(error, rest.NotAcceptable):
        return f"What is accepted, {request.headers.get('Accept')!r}, leaves out application/json."
    if isinstance(error, rest.UnsupportedMediaType):
        return f"The body is {request.content_type!r}, not application/json in UTF-8."
    return str(getattr(error, "detail", error))


def _fault(error, context):
    """Tell those who run the site all, and the client nothing."""
    request = context["request"]._request
    _log.error("Fault of the API at %s", request.path, exc_info=error, extra={"request": request})
    got_request_exception.send(sender=type(context["view"]), request=request)
    status, name, title = FAULT
    return Problem(status=status, name=name, title=title, detail="It has been logged.")
