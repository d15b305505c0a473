"""A Django middleware that answers the API's probe ``health/live`` before all other middleware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.urls import Resolver404, resolve
from django.utils.decorators import sync_and_async_middleware

from ..reports.health import OK

# Only a path with this end is resolved.
_TAIL = "health/live"
_APP, _NAME = "atp_api", "liveness"
# The view in the API sends the same headers.
_HEADERS = {"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"}


@sync_and_async_middleware
def liveness_middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[..., Any]:
    """Return the middleware. List this function first in MIDDLEWARE.

    The middleware answers GET and HEAD requests for ``health/live``, which no other middleware
    sees. So a probe needs no thread under ASGI, and a load balancer may use any host name and no
    TLS.
    """
    if iscoroutinefunction(get_response):

        async def async_middleware(request: HttpRequest) -> HttpResponseBase:
            return _answer_alive() if _is_probe(request) else await get_response(request)

        return async_middleware

    def middleware(request: HttpRequest) -> HttpResponseBase:
        return _answer_alive() if _is_probe(request) else get_response(request)

    return middleware


def _is_probe(request: HttpRequest) -> bool:
    """Return True if a request is a probe for whether this process is alive."""
    if request.method not in ("GET", "HEAD") or request.META.get("QUERY_STRING"):
        return False
    if not request.path_info.endswith(_TAIL):
        return False
    try:
        match = resolve(request.path_info)
    except Resolver404:
        return False
    return match.app_names[-1:] == [_APP] and match.url_name == _NAME


def _answer_alive() -> JsonResponse:
    return JsonResponse({"status": OK}, headers=_HEADERS)
