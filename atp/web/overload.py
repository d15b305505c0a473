"""Let a project's own views answer 429 with Retry-After when the queue is full.

This module has a middleware for Django, and an exception handler for REST framework.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from ..exceptions import QueueFull

if TYPE_CHECKING:
    from rest_framework.response import Response


_FULL = "Too many requests wait already."


class OverloadMiddleware(MiddlewareMixin):
    """Django middleware that answers 429 instead of 500 if a view does not catch QueueFull.

    List ``"atp.web.overload.OverloadMiddleware"`` in the setting MIDDLEWARE. The response tells the
    client when to try again, and reveals nothing about the queue. It is plain text, even for views
    of REST framework. Use :func:`exception_handler` for responses in REST framework's format.
    """

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, QueueFull):
            return None
        after = retry_after(exception.retry_after)
        return HttpResponse(
            f"{_FULL} Try again in {after} s.\n",
            status=429,
            content_type="text/plain; charset=utf-8",
            headers={"Retry-After": after},
        )


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the response to an exception in a view of REST framework, or None.

    Set ``"EXCEPTION_HANDLER": "atp.web.overload.exception_handler"`` in the setting REST_FRAMEWORK,
    or call this function at the end of the project's own handler. For QueueFull, the response has
    the status 429, the header Retry-After, and the same body as for Throttled, which reveals
    nothing about the queue. REST framework's own handler answers all other exceptions. If it
    returns None, REST framework raises the exception.
    """
    from rest_framework.exceptions import Throttled
    from rest_framework.views import exception_handler as default

    if isinstance(error, QueueFull):
        error = Throttled(error.retry_after, _FULL)
    return default(error, context)


def retry_after(seconds: Any) -> str:
    """Return a delay for the header Retry-After, rounded up to whole seconds."""
    return f"{math.ceil(seconds)}"
