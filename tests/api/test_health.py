"""The endpoint ``health``. tests/test_health.py tests which problems it finds."""

from unittest.mock import Mock

import pytest
from django.db import OperationalError

from atp import queue
from atp.api.health import HealthView
from atp.models import Gate

from ..app.tasks import add, echo
from ..store.broken import age, settle
from .client import Api, refusal


def test_probes_without_permission_see_only_the_status(world, user_with):
    """The endpoint needs no login (G14) and is never throttled."""
    apis = [Api(), Api(user_with()), Api(user_with("view_instance", name="reader"))]
    for status, told in ((200, "ok"), (503, "failing")):
        for api in apis:
            answer = api.get("health")
            assert (answer.status_code, answer.json()) == (status, {"status": told})
        echo.enqueue()
    assert Api().get("health", authorization="Basic eDp5").status_code == 401
    assert HealthView.throttle_classes == ()


def test_health_details_are_shown_with_the_permission_view_daemon(full, user_with):
    waiting = echo.enqueue()
    api = Api(user_with("view_daemon"))
    found = api.get("health").json()
    assert (found["status"], found["database"], bool(found["time"])) == ("ok", True, True)
    assert found["daemons"] == {"alive": 1, "late": 0, "lost": 0}
    assert found["oldest_due"] == waiting.task.due_at.isoformat()
    assert found["problems"] == found["warnings"] == found["notes"] == []
    full.host.lose_lease()
    answer = api.get("health")
    assert (answer.status_code, answer.json()["status"]) == (503, "failing")
    assert answer.json()["problems"] == [
        "Work is due, and no daemon is alive.",
        "Daemon host:1 was lost while it held Tasks, and no daemon is alive to rescue them.",
    ]


def test_health_answers_while_the_database_fails(world, user_with, monkeypatch):
    """If the login cannot be looked up, the request counts as one without a login."""
    refused = Mock(side_effect=OperationalError("could not connect to server at db.example"))
    api = Api(user_with("view_daemon", "view_type"))
    with monkeypatch.context() as patch:
        patch.setattr("django.contrib.auth.models.User.has_perm", refused)
        assert api.get("health").json() == {"status": "ok"}
    monkeypatch.setattr("django.contrib.auth.middleware.get_user", refused)
    assert api.get("health").json() == {"status": "ok"}
    assert api.get("health?type=tests.echo").status_code == 503
    answer = api.get("types")
    assert answer.status_code == 503
    assert "example" not in answer.json()["detail"]
    for name in ("atp.reports.health.overview.now", "django.contrib.auth.get_user"):
        monkeypatch.setattr(name, refused)
    answer = Api().get("health")
    assert (answer.status_code, answer.json()) == (503, {"status": "failing"})


@pytest.mark.slow
def test_health_copes_with_over_a_thousand_held_lanes(full, user_with):
    """SQLite accepts at most a thousand conditions in a statement."""
    queue.hold("tests.echo", "lane 0")
    facts = Gate.objects.values().get()
    lanes = (
        {"id": None, "collection": f"{n}", "subject": f"lane:tests.echo/{n}"} for n in range(1200)
    )
    Gate.objects.bulk_create(Gate(**facts | lane) for lane in lanes)
    answer = Api(user_with("view_daemon", "view_type")).get("health")
    assert answer.json()["database"] is True


def test_liveness_is_answered_without_the_database(world, django_assert_num_queries):
    """Credentials are ignored, so invalid ones do not fail the probe (G14)."""
    echo.enqueue()
    assert Api().get("health").status_code == 503
    with django_assert_num_queries(0):
        answer = Api().get("health/live", authorization="Basic eDp5")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_health_of_one_type_ignores_problems_of_others(world, user_with):
    host = world.host("tests.echo")
    settle(host)
    add.enqueue(1)
    age(echo.enqueue().pk)
    api = Api(user_with("view_type", "view_daemon"))

    def problems():
        answers = [api.get(f"health?type={name}") for name in ("tests.add", "tests.echo")]
        return [(answer.status_code, "".join(answer.json()["problems"])) for answer in answers]

    unserved, unclaimed = problems()
    assert unserved == (503, "Work of Type 'tests.add' is due, and no daemon serves it.")
    assert unclaimed[0] == 503
    assert "'tests.echo' has been due" in unclaimed[1]
    host.claim()
    assert problems() == [unserved, (200, "")]
    host.lose_lease()
    (_, told), (_, lost) = problems()
    assert "was lost while it held Tasks" in lost
    assert "lost" not in told


def test_health_of_a_type_is_shown_only_with_the_permission_view_type(full, user_with):
    """A misspelt Type returns 404, so that a probe does not report ok for ever (G13, G14)."""
    api = Api(user_with("view_type", name="reader"))
    for each, status in ((Api(), 401), (Api(user_with()), 403), (api, 200)):
        assert each.get("health?type=tests.echo").status_code == status
    assert refusal(api.get("health?type=tests.ecko")) == (404, "unknown-type")
