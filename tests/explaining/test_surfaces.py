"""Explanations in the shell, the API, the pages and lists, and how many queries they take."""

import json
from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from atp import queue
from atp.exceptions import UnknownInstance, UnknownType
from atp.models import Instance
from atp.reports import health, overview
from atp.reports.explaining.explain import SHORT, main_causes
from atp.reports.health import notes
from atp.states import Event

from ..app import tasks_downstream
from ..app.tasks import add, echo
from ..helpers import shell

MOST = 9
why = partial(shell, "why")
HOUR = timedelta(hours=1)


@pytest.fixture
def client_of(client, django_user_model):
    """A function that returns a client of a user with these permissions of ATP."""

    def make(*names):
        user = django_user_model.objects.create_user("olga")
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
        client.force_login(user)
        return client

    return make


@pytest.fixture
def tangled(scene):
    """An Instance that waits for several causes at once."""
    scene.starts(echo.using(collection="a").enqueue())
    queue.limit("tests.echo", rate="1/h", max_running_per_collection=1)
    queue.limit("tests.echo", "a", max_running=1)
    queue.hold("tests.echo", by="ann")
    echo.using(collection="a").enqueue_many([{}] * 3)
    return echo.using(collection="a", identifier="x").enqueue()


class TestShell:
    @pytest.mark.slow
    def test_shell_explains_an_instance_or_a_type(self, tangled):
        """The argument is a uuid, the start of a uuid, or an identifier."""
        told = why(str(tangled.uuid))
        assert told.startswith(f"{tangled.uuid}, ACCEPTED, 3 ahead of it\n")
        assert "→ manage.py atp gate open --type tests.echo" in told
        told = json.loads(why(str(tangled.uuid), "--json"))
        assert told["reasons"][0]["helps"]["verb"] == "open"
        assert told["starts"]["why"] == "gate"
        assert UUID(told["subject"]) == tangled.uuid
        for name in (str(tangled.uuid)[:23], "x"):
            assert str(tangled.uuid) in why(name)
        assert why("tests.echo").startswith("tests.echo")
        assert why("tests.echo", "--collection", "a").startswith("tests.echo/a")

    def test_shell_rejects_an_ambiguous_or_unknown_subject(self, scene):
        both = [echo.using(identifier="x").enqueue(), add.using(identifier="x").enqueue(1)]
        for words, told in (
            (["nothing of the kind"], "Give the uuid of an Instance, its identifier"),
            ([""], None),
            (["y", "--collection", "a"], None),
            (["x"], "several Types"),
        ):
            with pytest.raises(CommandError, match=told) as error:
                why(*words)
            assert error.value.returncode == 2
        assert all(str(each.uuid) in str(error.value) for each in both)


class TestSubjects:
    @pytest.mark.slow
    def test_explain_accepts_a_type_a_lane_or_an_identifier_like_a_uuid(self, scene):
        echo.using(collection="a").enqueue()
        queue.hold("tests.echo", "a")
        assert queue.explain(echo).codes == queue.explain("tests.echo").codes == ("behind",)
        lane = queue.explain((echo, "a"))
        assert (lane.subject, lane.codes, lane.ahead) == ("tests.echo/a", ("gate", "behind"), 1)
        assert queue.explain(("tests.echo", "b")).codes == ("ready",)
        for key in (str(UUID(int=7)), "0" * 32):
            one = echo.using(identifier=key).enqueue()
            assert queue.explain(key).subject == queue.explain(one).subject
        assert queue.explain(str(UUID(int=8))).codes == ("no-such",)

    def test_explain_rejects_an_unknown_subject(self, scene):
        for subject in (None, 7, "\x00", "", (1, 2, 3), ("tests.echo", "\ud800")):
            with pytest.raises(UnknownInstance, match="Give the uuid"):
                queue.explain(subject)
        with pytest.raises(UnknownType):
            queue.explain(("tests.ecko", "a"))
        with pytest.raises(UnknownInstance, match=r"Did you mean 'tests.echo'"):
            queue.explain("tests.ecko")


class TestWeb:
    @pytest.mark.slow
    def test_api_and_pages_explain_an_instance_a_type_and_a_lane(self, tangled, client_of):
        client = client_of("view_instance", "view_type")
        told = client.get(f"/atp/api/instances/{tangled.uuid}/explanation").json()
        assert told["reasons"][0]["code"] == "gate"
        assert told["reasons"][0]["helps"]["permission"] == "atp.control"
        page = client.get(f"/atp/instances/{tangled.uuid}/").content.decode()
        assert "tests.echo is held by ann" in page
        assert "manage.py atp gate open --type tests.echo" in page
        assert SHORT["gate"] in client.get("/atp/instances/").content.decode()
        path = "/atp/api/types/tests.echo/explanation"
        assert client.get(path).json()["subject"] == "tests.echo"
        assert client.get(path, {"collection": "a"}).json()["subject"] == "tests.echo/a"
        page = client.get("/atp/types/tests.echo/").content.decode()
        assert "tests.echo is held by ann" in page

    @pytest.mark.parametrize("may", [True, False])
    def test_errors_and_daemons_are_shown_only_with_permission(self, scene, client_of, may):
        """The explanation contains the error of a retry and the daemon that holds a Task (G14)."""
        retried, held = add.enqueue(1), add.enqueue(2)
        scene.starts(retried)
        scene.move(retried, Event.RETRY, delay=HOUR, message="OSError: 503")
        more = ["view_logrecord", "view_daemon"] if may else []
        client = client_of("view_instance", *more)
        scene.move(held, Event.RELEASE)
        scene.host.claim()
        for instance, word in ((retried, "OSError"), (held, "host:1")):
            answer = client.get(f"/atp/api/instances/{instance.uuid}/explanation")
            assert (word in answer.content.decode()) is may
            page = client.get(f"/atp/instances/{instance.uuid}/").content.decode()
            assert (word in page) is may


class TestQueries:
    @pytest.mark.slow
    def test_each_explanation_takes_few_queries(self, tangled, scene):
        # Django asks SQLite once on each connection, by a query of its own.
        assert connection.features.supports_json_field

        def asked(subject):
            with CaptureQueriesContext(connection) as queries:
                queue.explain(subject)
            return len(queries)

        counts = [asked(tangled), asked(echo), asked(("tests.echo", "a"))]
        # An identifier is looked up first, and what it names is explained then.
        assert asked("x") <= MOST + 2
        for event in (None, Event.RETRY, Event.DEFER, Event.EXPIRE):
            one = add.enqueue(1)
            if event is not None:
                scene.starts(one)
                assert asked(one) <= 5
                scene.move(one, event)
            counts.append(asked(one))
        scene.host.lose_lease()
        assert max(*counts, asked(one)) <= MOST

    def test_explaining_a_list_takes_a_constant_number_of_queries(self, tangled, scene):
        add.enqueue_many([{"first": 1}] * 10)
        rows = list(Instance.objects.select_related("type").order_by("pk"))
        now = overview.now()

        def count(of):
            with CaptureQueriesContext(connection) as queries:
                assert len(main_causes(of, now)) >= len(of) - 1
            return len(queries)

        assert count(rows) == count([rows[1], rows[-1]]) <= 6


def told():
    return [note.sentence for note in notes(overview.now())]


def test_health_reports_how_many_due_tasks_wait_at_a_gate(scene, monkeypatch):
    echo.enqueue()
    echo.using(run_after=HOUR).enqueue()
    queue.hold("tests.echo", by="ann")
    queue.hold("tests.add")
    assert told() == [
        "tests.add is held: no waiting Task is due.",
        "tests.echo is held by ann: 1 waiting Task is due.",
    ]
    # No more is counted than has to be.
    monkeypatch.setattr(health, "MOST", 2)
    echo.enqueue_many([{}] * 3)
    queue.open_gate("tests.add")
    [words] = told()
    assert words == "tests.echo is held by ann: more than 2 waiting Tasks are due."


def test_health_reports_how_many_due_tasks_wait_for_a_full_limit(scene, monkeypatch):
    queue.limit("tests.echo", max_running=2)
    echo.enqueue_many([{}] * 5)
    for claimed in scene.host.claim():
        scene.host.move(claimed, Event.START)
    [words] = told()
    assert (
        words == "tests.echo is limited to 2 at once, and 2 are claimed: 3 waiting Tasks are due."
    )
    queue.hold("tests.echo")
    assert len(told()) == 1  # the limit is not what they wait for
    # Not all of very many are shown.
    monkeypatch.setattr(health, "SHOWN", 1)
    for name in "abc":
        queue.hold("tests.echo", name)
        queue.limit("tests.add", name, max_running=1)
    assert len(told()) == 3


def test_lists_show_the_first_cause_of_the_explanation(scene, world):
    queue.register(tasks_downstream.other)
    host = world.host("downstream.other")
    waiting, deferred = tasks_downstream.other.enqueue(), add.enqueue(1)
    queue.trip_downstream("relay", by="ann")
    assert not scene.starts(waiting, host)
    for event, delay in ((Event.RETRY, timedelta(0)), (Event.DEFER, timedelta(days=1))):
        scene.starts(deferred)
        scene.move(deferred, event, delay=delay)
    found = main_causes(Instance.objects.select_related("type"), overview.now())
    for one, words in ((waiting, "its downstream is not healthy"), (deferred, "deferred")):
        assert found[one.pk].code == queue.explain(one).codes[0]
        assert found[one.pk].words == words
    scene.apply(scene.finds(waiting, "downstream", downstream="relay"))
    assert scene.starts(waiting, host)
