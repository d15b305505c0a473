"""The view that Prometheus scrapes."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from ...conf import settings
from ...web import permissions
from .exposition import CONTENT_TYPE, exposition


@never_cache
@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with all metrics of the queue.

    For who gives the token of the setting METRICS_TOKEN (``Authorization: Bearer …``), and for
    users who may view Types. Others get 401.
    """
    if _has_token(request) or _may_view(request):
        return HttpResponse(exposition(), content_type=CONTENT_TYPE)
    refused = HttpResponse("Metrics need a token, or a user.\n", "text/plain", 401)
    refused["WWW-Authenticate"] = "Bearer"
    return refused


# It judges by itself who may ask: a scraper cannot log in.
metrics.login_required = False  # type: ignore[attr-defined]


def _has_token(request: HttpRequest) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    token = settings.METRICS_TOKEN
    is_bearer = scheme.lower() == "bearer"
    return bool(token) and is_bearer and constant_time_compare(given.strip(), token)


def _may_view(request: HttpRequest) -> bool:
    user = getattr(request, "user", AnonymousUser())
    return permissions.holds(user, permissions.VIEW_TYPE)
