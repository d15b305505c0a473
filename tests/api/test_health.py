"""``health``: for probes, and for who may look at daemons."""

import pytest
from django.db import OperationalError

from atp import queue
from atp.models import Gate
from atp.reports import health

from ..app.tasks import add, echo
from ..store.broken import age, settle
from .client import Api, problem

DOWN = OperationalError("could not connect to server at db.example")


@pytest.fixture
def gone(monkeypatch):
    """A database that does not answer."""

    def refused(*args, **kwargs):
        raise DOWN

    for name in ("atp.reports.health.overview.now", "django.contrib.auth.get_user"):
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


def test_very_many_lanes_that_are_held(full, user_with):
    """SQLite takes no more than a thousand conditions."""
    queue.hold("tests.echo", "lane 0")
    row = Gate.objects.get(collection="lane 0")
    for number in range(1, 1200):
        row.pk, row.collection, row.subject = None, f"lane {number}", f"lane:tests.echo/{number}"
        row.save(force_insert=True)
    answer = Api(user_with("view_daemon", "view_type")).get("health")
    assert answer.json()["database"] is True


def test_what_is_held_is_no_problem_but_is_told(full, user_with):
    queue.hold(reason="maintenance", by="ann")
    found = Api(user_with("view_daemon")).get("health").json()
    assert (found["status"], found["problems"]) == ("ok", [])
    [note] = found["notes"]
    assert note.startswith("Everything is held by ann (maintenance): ")


class TestLiveness:
    def test_it_knows_of_this_process_alone(self, world, django_assert_num_queries):
        echo.enqueue()
        assert Api().get("health").status_code == 503
        with django_assert_num_queries(0):
            answer = Api().get("health/live")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})

    def test_nobody_has_to_be_known(self, world, gone):
        """G14: a login that is not valid is none."""
        assert Api().get("health/live", authorization="Basic eDp5").status_code == 200


class TestOfOneType:
    def test_the_work_of_others_is_no_matter(self, world, user_with):
        world.host("tests.echo")
        add.enqueue(1)
        echo.enqueue()
        api = Api(user_with("view_type"))
        answers = [
            api.get(f"health{query}") for query in ("", "?type=tests.add", "?type=tests.echo")
        ]
        assert [answer.status_code for answer in answers] == [503, 503, 200]

    def test_it_is_told_with_its_details(self, world, user_with):
        later = echo.enqueue()
        add.enqueue(1)
        found = Api(user_with("view_type", "view_daemon")).get("health?type=tests.echo").json()
        assert found["problems"] == ["Work is due, and no daemon is alive."]
        assert found["oldest_due"] == later.task.due_at.isoformat()

    def test_what_a_lost_daemon_holds_of_another_type(self, world, host):
        echo.enqueue()
        host.claim()
        host.lose_lease()
        assert health.health("tests.echo").problems
        assert not health.health("tests.add").problems

    def test_work_that_an_idle_daemon_does_not_claim(self, world, host):
        settle(host)
        age(echo.enqueue().pk)
        assert health.health("tests.echo").problems
        assert not health.health("tests.add").problems

    @pytest.mark.parametrize(("user", "status"), [(None, 401), ([], 403), (["view_type"], 200)])
    def test_types_are_not_for_everybody(self, full, user_with, user, status):
        """G14."""
        api = Api() if user is None else Api(user_with(*user))
        assert api.get("health?type=tests.echo").status_code == status

    def test_an_unknown_one(self, world, user_with):
        """G13: a probe that was misspelt does not say ok for ever."""
        echo.enqueue()
        answer = Api(user_with("view_type")).get("health?type=tests.ecko")
        assert (answer.status_code, problem(answer)) == (404, "unknown-type")

    def test_a_database_that_is_gone(self, world, user_with, monkeypatch):
        api = Api(user_with("view_type"))

        def refused(request):
            raise DOWN

        monkeypatch.setattr("django.contrib.auth.middleware.get_user", refused)
        assert api.get("health?type=tests.echo").status_code == 503
