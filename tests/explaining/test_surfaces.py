"""Where explanations are told: the shell, the API, the pages, the lists; and how much it takes."""

import json
from datetime import timedelta
from io import StringIO
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from atp import queue
from atp.exceptions import UnknownInstance, UnknownType
from atp.models import Instance
from atp.reports import health, overview
from atp.reports.explaining import explain as room
from atp.reports.explaining.explain import SHORT, main_causes
from atp.reports.health import notes
from atp.states import Event

from ..app import tasks_downstream
from ..app.tasks import add, echo

MOST = 9
HOUR = timedelta(hours=1)


def why(*words):
    out = StringIO()
    call_command("atp", "why", *words, stdout=out)
    return out.getvalue()


@pytest.fixture
def asked(monkeypatch):
    """How many queries each explanation takes, wherever it is made."""
    # Django asks SQLite once on each connection, by a query of its own.
    assert connection.features.supports_json_field
    counts, gather = [], room._facts

    def counted(subject):
        with CaptureQueriesContext(connection) as queries:
            found = gather(subject)
        counts.append(len(queries))
        return found

    monkeypatch.setattr(room, "_facts", counted)
    return counts


@pytest.fixture
def client_of(client, django_user_model):
    """A client of somebody with these permissions of ATP."""

    def make(*names):
        user = django_user_model.objects.create_user("olga")
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
        client.force_login(user)
        return client

    return make


@pytest.fixture
def tangled(scene):
    """An Instance that waits for very much at once."""
    scene.starts(echo.using(collection="a").enqueue())
    queue.limit("tests.echo", rate="1/h", max_running_per_collection=1)
    queue.limit("tests.echo", "a", max_running=1)
    queue.hold("tests.echo", by="ann")
    echo.using(collection="a").enqueue_many([{}] * 3)
    return echo.using(collection="a", identifier="x").enqueue()


class TestShell:
    def test_an_instance_or_a_type(self, tangled):
        """By its uuid, by how that begins, or by its identifier."""
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

    def test_garbage(self, scene):
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
    def test_a_type_and_a_lane(self, scene):
        echo.using(collection="a").enqueue()
        queue.hold("tests.echo", "a")
        assert queue.explain(echo).codes == queue.explain("tests.echo").codes == ("behind",)
        lane = queue.explain((echo, "a"))
        assert (lane.subject, lane.codes, lane.ahead) == ("tests.echo/a", ("gate", "behind"), 1)
        assert queue.explain(("tests.echo", "b")).codes == ("ready",)

    def test_what_is_nothing_of_the_kind(self, scene):
        for subject in (None, 7, "\x00", "", (1, 2, 3), ("tests.echo", "\ud800")):
            with pytest.raises(UnknownInstance, match="Give the uuid"):
                queue.explain(subject)
        with pytest.raises(UnknownType):
            queue.explain(("tests.ecko", "a"))
        with pytest.raises(UnknownInstance, match=r"Did you mean 'tests.echo'"):
            queue.explain("tests.ecko")

    def test_an_identifier_may_look_like_a_uuid(self, scene):
        for key in (str(UUID(int=7)), "0" * 32):
            one = echo.using(identifier=key).enqueue()
            assert queue.explain(key).subject == queue.explain(one).subject
        assert queue.explain(str(UUID(int=8))).codes == ("no-such",)


class TestWeb:
    def test_an_instance(self, tangled, client_of):
        client = client_of("view_instance")
        told = client.get(f"/atp/api/instances/{tangled.uuid}/explanation").json()
        assert told["reasons"][0]["code"] == "gate"
        assert told["reasons"][0]["helps"]["permission"] == "atp.control"
        page = client.get(f"/atp/instances/{tangled.uuid}/").content.decode()
        assert "tests.echo is held by ann" in page
        assert "manage.py atp gate open --type tests.echo" in page
        assert SHORT["gate"] in client.get("/atp/instances/").content.decode()

    def test_a_type_and_a_lane(self, tangled, client_of):
        client = client_of("view_type")
        path = "/atp/api/types/tests.echo/explanation"
        assert client.get(path).json()["subject"] == "tests.echo"
        assert client.get(path, {"collection": "a"}).json()["subject"] == "tests.echo/a"
        page = client.get("/atp/types/tests.echo/").content.decode()
        assert "tests.echo is held by ann" in page

    @pytest.mark.parametrize("may", [True, False])
    def test_errors_and_daemons_are_for_those_who_may_see_them(self, scene, client_of, may):
        """G14: the error of a retry, and who holds it."""
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
    def test_few_on_each_surface_whatever_it_waits_for(self, tangled, scene, asked, client_of):
        client = client_of("view_instance", "view_type")
        why(str(tangled.uuid))
        why("tests.echo", "--collection", "a")
        for path in (
            f"/atp/api/instances/{tangled.uuid}/explanation",
            "/atp/api/types/tests.echo/explanation",
            f"/atp/instances/{tangled.uuid}/",
            "/atp/types/tests.echo/",
        ):
            client.get(path)
        assert len(asked) == 6
        # An identifier is looked up first, and what it names is explained then.
        why("x")
        assert asked.pop() <= MOST + 2
        for event in (None, Event.RETRY, Event.DEFER, Event.EXPIRE):
            one = add.enqueue(1)
            if event is not None:
                scene.starts(one)
                queue.explain(one)
                assert asked[-1] <= 5
                scene.move(one, event)
            queue.explain(one)
        scene.host.lose_lease()
        queue.explain(one)
        assert max(asked) <= MOST

    def test_a_list_takes_as_many_for_two_as_for_twenty(self, tangled, scene):
        add.enqueue_many([{"first": 1}] * 10)
        rows = list(Instance.objects.select_related("type").order_by("pk"))
        now = overview.now()

        def count(of):
            with CaptureQueriesContext(connection) as queries:
                assert len(main_causes(of, now)) >= len(of) - 1
            return len(queries)

        assert count(rows) == count([rows[1], rows[-1]]) <= 6


def test_a_list_says_what_an_explanation_says_first(scene, world):
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


class TestNotes:
    """What waits because of gates and limits is noted for operators."""

    def test_gates_and_what_is_due_there(self, scene, monkeypatch):
        echo.enqueue()
        echo.using(run_after=HOUR).enqueue()
        queue.hold("tests.echo", by="ann")
        queue.hold("tests.add")
        assert notes(overview.now()) == (
            "tests.add is held: nothing of that is due.",
            "tests.echo is held by ann: 1 that waits there is due.",
        )
        # No more is counted than has to be.
        monkeypatch.setattr(health, "MOST", 2)
        echo.enqueue_many([{}] * 3)
        queue.open_gate("tests.add")
        assert notes(overview.now()) == (
            "tests.echo is held by ann: more than 2 that wait there are due.",
        )

    def test_limits_that_are_full(self, scene, monkeypatch):
        queue.limit("tests.echo", max_running=2)
        echo.enqueue_many([{}] * 5)
        for claimed in scene.host.claim():
            scene.host.move(claimed, Event.START)
        assert notes(overview.now()) == (
            "tests.echo is limited to 2 at once, and 2 are claimed: 3 that wait there are due.",
        )
        queue.hold("tests.echo")
        assert len(notes(overview.now())) == 1  # the limit is not what they wait for
        # Not all of very many are shown.
        monkeypatch.setattr(health, "SHOWN", 1)
        for name in "abc":
            queue.hold("tests.echo", name)
            queue.limit("tests.add", name, max_running=1)
        assert len(notes(overview.now())) == 3
