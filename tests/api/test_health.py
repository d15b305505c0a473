"""``health``: for probes, and for who may look at daemons."""

import pytest
from django.db import OperationalError

from atp import queue

from ..app.tasks import echo
from .client import Api

DOWN = OperationalError("could not connect to server at db.example")


@pytest.fixture
def gone(monkeypatch):
    """A database that does not answer."""

    def refused(*args, **kwargs):
        raise DOWN

    for name in ("atp.health.overview.now", "django.contrib.auth.get_user"):
        monkeypatch.setattr(name, refused)
    return refused


@pytest.mark.parametrize("codenames", [None, [], ["view_instance"]])
def test_a_probe_learns_ok_or_not_and_nothing_more(world, user_with, codenames):
    """G14."""
    api = Api() if codenames is None else Api(user_with(*codenames))
    answer = api.get("health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    echo.enqueue()
    answer = api.get("health")
    assert (answer.status_code, answer.json()) == (503, {"status": "failing"})


def test_details_are_for_who_may_look_at_daemons(full, user_with):
    waiting = echo.enqueue()
    api = Api(user_with("view_daemon"))
    found = api.get("health").json()
    assert found == {
        "status": "ok",
        "time": found["time"],
        "database": True,
        "daemons": {"alive": 1, "late": 0, "lost": 0},
        "oldest_due": waiting.task.due_at.isoformat(),
        "problems": [],
        "notes": [],
    }
    full.host.lose_lease()
    answer = api.get("health")
    assert (answer.status_code, answer.json()["status"]) == (503, "failing")
    assert answer.json()["problems"] == [
        "Work is due, and no daemon is alive.",
        "Daemon host:1 was lost with work in hand, and none is alive to go on.",
    ]


def test_a_database_that_is_gone(world, gone):
    answer = Api().get("health")
    assert (answer.status_code, answer.json()) == (503, {"status": "failing"})


def test_nobody_can_log_in_where_the_database_is_gone(world, user_with, monkeypatch):
    """A login that cannot be looked up is none, here."""
    api = Api(user_with("view_daemon"))

    def refused(request):
        raise DOWN

    monkeypatch.setattr("django.contrib.auth.middleware.get_user", refused)
    assert api.get("health").json() == {"status": "ok"}
    answer = api.get("types")
    assert answer.status_code == 503
    assert "example" not in answer.json()["detail"]


def test_permissions_that_cannot_be_looked_up(world, user_with, monkeypatch):
    api = Api(user_with("view_daemon"))

    def refused(*args, **kwargs):
        raise DOWN

    monkeypatch.setattr("django.contrib.auth.models.User.has_perm", refused)
    assert api.get("health").json() == {"status": "ok"}


def test_it_is_never_throttled(world, monkeypatch):
    from atp.api.health import HealthView

    assert HealthView.throttle_classes == ()


def test_a_wrong_login_is_refused(world):
    answer = Api().get("health", authorization="Basic eDp5")
    assert answer.status_code == 401


def test_what_is_held_is_no_problem_but_is_told(full, user_with):
    queue.hold(reason="maintenance", by="ann")
    found = Api(user_with("view_daemon")).get("health").json()
    assert (found["status"], found["problems"]) == ("ok", [])
    [note] = found["notes"]
    assert note.startswith("Everything is held by ann (maintenance): ")
