"""A middleware of Django's kind that answers ``health/live`` of the API before all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.urls import Resolver404, resolve
from django.utils.decorators import sync_and_async_middleware

from ..reports.health import OK

# A path that ends otherwise is not resolved.
_TAIL = "health/live"
_APP, _NAME = "atp_api", "liveness"
# The view answers with the same headers.
_HEADERS = {"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"}


@sync_and_async_middleware
def liveness_middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[..., Any]:
    """Return the middleware, which belongs at the top of MIDDLEWARE.

    It answers GET and HEAD of ``health/live``, and no other middleware sees them. So a probe needs
    no thread under ASGI, and a load balancer may ask under any host name and without TLS.
    """
    if iscoroutinefunction(get_response):

        async def async_middleware(request: HttpRequest) -> HttpResponseBase:
            return _alive() if _asks(request) else await get_response(request)

        return async_middleware

    def middleware(request: HttpRequest) -> HttpResponseBase:
        return _alive() if _asks(request) else get_response(request)

    return middleware


def _asks(request: HttpRequest) -> bool:
    """Return whether a request asks for nothing but the liveness of this process."""
    if request.method not in ("GET", "HEAD") or request.META.get("QUERY_STRING"):
        return False
    if not request.path_info.endswith(_TAIL):
        return False
    try:
        match = resolve(request.path_info)
    except Resolver404:
        return False
    return match.app_names[-1:] == [_APP] and match.url_name == _NAME


def _alive() -> JsonResponse:
    return JsonResponse({"status": OK}, headers=_HEADERS)
