"""The middleware that answers ``health/live`` before all other middleware."""

import asyncio
import threading

import pytest
from django.core.exceptions import DisallowedHost
from django.http import HttpResponse
from django.test import AsyncRequestFactory, Client, RequestFactory

from atp.web.liveness import liveness_middleware

PATH = "/atp/api/health/live"
FIRST = "atp.web.liveness.liveness_middleware"


def passed_on(request):
    return HttpResponse("passed on")


def test_the_middleware_answers_a_probe_before_any_other_middleware(settings):
    """A load balancer sends its probe to an IP address over plain HTTP."""
    view = Client().get(PATH)
    settings.MIDDLEWARE = [FIRST, *settings.MIDDLEWARE]
    answer = Client().get(PATH)
    assert (answer.status_code, answer.json()) == (view.status_code, view.json())
    for name in ("Content-Type", "Cache-Control", "X-Content-Type-Options"):
        assert answer[name] == view[name]
    settings.MIDDLEWARE += ["django.middleware.security.SecurityMiddleware"]
    settings.SECURE_SSL_REDIRECT = True
    settings.ALLOWED_HOSTS = ["www.example.com"]
    assert Client().get(PATH, headers={"host": "10.0.0.7"}).status_code == 200
    assert Client().head(PATH, headers={"host": "10.0.0.7"}).status_code == 200
    other = RequestFactory().get("/", headers={"host": "10.0.0.7"})
    with pytest.raises(DisallowedHost):
        other.get_host()


def test_the_middleware_passes_on_all_requests_but_liveness_probes(settings):
    for method, path in (
        ("get", "/"),
        ("get", "/atp/api/health"),
        ("get", "/elsewhere/health/live"),
        ("get", f"{PATH}?format=xml"),
        ("post", PATH),
        ("options", PATH),
    ):
        request = getattr(RequestFactory(), method)(path)
        assert liveness_middleware(passed_on)(request).content == b"passed on", (method, path)
    # Nor is anything answered without the API.
    settings.ROOT_URLCONF = "django.contrib.auth.urls"
    request = RequestFactory().get(PATH)
    assert liveness_middleware(passed_on)(request).content == b"passed on"


def test_the_middleware_needs_no_thread_under_asgi():
    async def later(request):
        return passed_on(request)

    async def both():
        middleware = liveness_middleware(later)
        factory = AsyncRequestFactory()
        threads = threading.active_count()
        answers = [await middleware(factory.get(path)) for path in (PATH, "/")]
        return answers, threading.active_count() - threads

    answers, more = asyncio.run(both())
    assert [answer.content for answer in answers] == [b'{"status": "ok"}', b"passed on"]
    assert more == 0
