"""The answer of a project's own views when the queue is full: 429, with Retry-After."""

from __future__ import annotations

import math
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from ..exceptions import QueueFull


class OverloadMiddleware(MiddlewareMixin):
    """Middleware of Django: a view that lets QueueFull pass answers 429 and not 500.

    List ``"atp.web.overload.OverloadMiddleware"`` in the setting MIDDLEWARE. The answer tells the
    client when to try again, and nothing of the queue. Views of REST framework let QueueFull pass,
    too.
    """

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, QueueFull):
            return None
        after = retry_after(exception.retry_after)
        return HttpResponse(
            f"Too many requests wait already. Try again in {after} s.\n",
            status=429,
            content_type="text/plain; charset=utf-8",
            headers={"Retry-After": after},
        )


def retry_after(seconds: Any) -> str:
    """Return a delay as a value of the header Retry-After, which takes whole seconds."""
    return f"{math.ceil(seconds)}"
