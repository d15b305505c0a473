"""A full queue on the surfaces: each refuses alike, and writes nothing (G13)."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.urls import path
from rest_framework.decorators import api_view, permission_classes
from rest_framework.exceptions import NotFound

from atp import queue
from atp.models import Instance, Schedule, Slot
from atp.rows.schedule import Outcome
from atp.store import get_store
from atp.verbs.overload import known
from atp.verbs.registry import registry

from .api.client import Api

NAME = "tests.echo"
FULL = "tests.echo is full: 1 wait, and at most 1 may wait there. Try again in"


@pytest.fixture
def full(monkeypatch, db):
    """The Type tests.echo, of which one may wait, and does."""
    made = replace(registry.get(NAME), max_waiting=1)
    monkeypatch.setitem(registry._types, NAME, made)
    queue.register_all()
    made.enqueue()
    known.forget()
    yield made
    assert Instance.objects.count() == 1


@pytest.fixture
def root(db):
    return User.objects.create_superuser("root", password="secret")


def test_the_api_answers_429_and_when_to_try_again(full, root):
    answer = Api(root).post("instances", {"type": NAME, "inputs": {}})
    assert answer.status_code == 429
    assert answer.json()["type"] == "urn:atp:problem:queue-full"
    assert answer.json()["detail"].startswith(FULL)
    assert 24 <= int(answer["Retry-After"]) <= 36


def test_the_api_lets_an_array_in_all_or_none(full, root):
    body = [{"type": "tests.add", "inputs": {"first": 1}}, {"type": NAME}]
    assert Api(root).post("instances", body).status_code == 429


def test_the_page_says_it_in_the_form(full, root, client):
    client.force_login(root)
    answer = client.post(f"/atp/types/{NAME}/enqueue/", {"inputs": "{}", "existing": "raise"})
    assert answer.status_code == 429
    assert FULL in answer.content.decode()


def test_the_shell_says_it_and_fails(full):
    with pytest.raises(CommandError, match=FULL):
        call_command("atp", "enqueue", NAME)


def test_the_api_sets_and_tells_the_limits(db, root):
    queue.register_all()
    api = Api(root)
    body = {"type": NAME, "max_waiting": 5, "max_wait": 600}
    assert api.post("limits", body).status_code == 200
    [found] = [row for row in api.get("limits").json()["results"] if row["type"] == NAME]
    assert (found["max_waiting"], found["max_wait"]) == (5, 600)


def test_the_shell_sets_the_limits(db):
    queue.register_all()
    call_command("atp", "limit", "--type", NAME, "--max-waiting", "5", "--max-wait", "10m")
    [found] = queue.limits(NAME)
    assert (found.max_waiting, found.max_wait) == (5, timedelta(minutes=10))


def test_the_page_says_how_full_it_is(full, root, client):
    client.force_login(root)
    assert "1 of 1" in client.get(f"/atp/types/{NAME}/").content.decode()


def test_a_slot_that_finds_it_full_is_skipped(full):
    queue.create_schedule("often", type=NAME, every=1)
    row = Schedule.objects.get(identifier="often")
    get_store().schedules.plan(now=row.due_at, only="often")
    slot = Slot.objects.get(schedule=row)
    assert (slot.outcome, slot.message) == (Outcome.SKIPPED, "tests.echo was full: 1 waited")


def _plain(request):
    registry.get(NAME).enqueue()


async def _asynchronous(request):
    await registry.get(NAME).aenqueue()


@api_view(["POST"])
@permission_classes([])
def _of_rest_framework(request):
    registry.get(NAME).enqueue()


@api_view(["POST"])
@permission_classes([])
def _not_found(request):
    raise NotFound


@api_view(["POST"])
@permission_classes([])
def _faulty(request):
    raise LookupError


urlpatterns = [
    path("missing", _not_found),
    path("faulty", _faulty),
    path("plain", _plain),
    path("asynchronous", _asynchronous),
    path("rest", _of_rest_framework),
]


@pytest.mark.parametrize("view", ["plain", "asynchronous", "rest"])
def test_a_view_of_a_project_answers_429_and_when_to_try_again(full, settings, client, view):
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = ["atp.web.overload.OverloadMiddleware"]
    answer = client.post(f"/{view}")
    assert answer.status_code == 429
    assert 1 <= int(answer["Retry-After"]) <= 600
    assert NAME not in answer.content.decode()


@pytest.fixture
def handled(settings):
    """A project that lists the exception handler, and not the middleware."""
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = []
    name = "atp.web.overload.exception_handler"
    settings.REST_FRAMEWORK = {"EXCEPTION_HANDLER": name}


def test_the_exception_handler_answers_429_as_rest_framework_does(handled, full, client):
    answer = client.post("/rest")
    assert answer.status_code == 429
    after = answer["Retry-After"]
    assert 1 <= int(after) <= 600
    detail = f"Too many requests wait already. Expected available in {after} seconds."
    assert answer.json() == {"detail": detail}


def test_the_exception_handler_leaves_other_exceptions_to_rest_framework(handled, client):
    assert client.post("/missing").status_code == 404
    with pytest.raises(LookupError):
        client.post("/faulty")
