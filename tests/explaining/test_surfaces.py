"""Where explanations are told: the shell, the API, the pages, the lists; and how much it takes."""

import json
from datetime import timedelta
from io import StringIO
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from atp import queue
from atp.exceptions import UnknownInstance, UnknownType
from atp.models import Instance
from atp.reports import overview
from atp.reports.explaining import explain as room
from atp.reports.explaining.brief import SHORT, briefs
from atp.reports.explaining.causes.table import CAUSES
from atp.states import Event

from ..app import tasks_downstream
from ..app.tasks import add, echo

MOST = 9
pytestmark = pytest.mark.each_database


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
    from django.contrib.auth.models import Permission

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
    def test_an_instance(self, tangled):
        told = why(str(tangled.uuid))
        assert told.startswith(f"{tangled.uuid}, ACCEPTED, 3 ahead of it\n")
        assert "→ manage.py atp gate open --type tests.echo" in told

    def test_by_how_it_begins_by_identifier_and_a_type(self, tangled):
        assert str(tangled.uuid) in why(str(tangled.uuid)[:23])
        assert str(tangled.uuid) in why("x")
        assert why("tests.echo").startswith("tests.echo")
        assert why("tests.echo", "--collection", "a").startswith("tests.echo/a")

    def test_json(self, tangled):
        told = json.loads(why(str(tangled.uuid), "--json"))
        assert told["reasons"][0]["helps"]["verb"] == "open"
        assert told["starts"]["why"] == "gate"
        assert UUID(told["subject"]) == tangled.uuid

    @pytest.mark.parametrize("words", [["nothing of the kind"], [""], ["x", "--collection", "a"]])
    def test_garbage(self, scene, words):
        with pytest.raises(CommandError) as error:
            why(*words)
        assert error.value.returncode == 2

    def test_what_is_accepted_is_told(self, scene):
        with pytest.raises(CommandError, match="Give the uuid of an Instance, its identifier"):
            why("nothing of the kind")

    def test_an_identifier_in_several_types(self, scene):
        both = [echo.using(identifier="x").enqueue(), add.using(identifier="x").enqueue(1)]
        with pytest.raises(CommandError, match="several Types") as error:
            why("x")
        assert all(str(each.uuid) in str(error.value) for each in both)
        assert error.value.returncode == 2


class TestSubjects:
    def test_a_type_and_a_lane(self, scene):
        echo.using(collection="a").enqueue()
        queue.hold("tests.echo", "a")
        assert queue.explain(echo).codes == queue.explain("tests.echo").codes == ("behind",)
        lane = queue.explain((echo, "a"))
        assert (lane.subject, lane.codes, lane.ahead) == ("tests.echo/a", ("gate", "behind"), 1)
        assert queue.explain(("tests.echo", "b")).codes == ("ready",)

    @pytest.mark.parametrize("subject", [None, 7, "\x00", "", (1, 2, 3), ("tests.echo", "\ud800")])
    def test_what_is_nothing_of_the_kind(self, scene, subject):
        with pytest.raises(UnknownInstance, match="Give the uuid"):
            queue.explain(subject)

    def test_a_lane_of_no_type(self, scene):
        with pytest.raises(UnknownType):
            queue.explain(("tests.ecko", "a"))


class TestApi:
    def test_an_instance(self, tangled, client_of):
        client = client_of("view_instance")
        told = client.get(f"/atp/api/instances/{tangled.uuid}/explanation").json()
        assert told["reasons"][0]["code"] == "gate"
        assert told["reasons"][0]["helps"]["permission"] == "atp.control"

    def test_a_type_and_a_lane(self, tangled, client_of):
        client = client_of("view_type")
        path = "/atp/api/types/tests.echo/explanation"
        assert client.get(path).json()["subject"] == "tests.echo"
        assert client.get(path, {"collection": "a"}).json()["subject"] == "tests.echo/a"

    def test_without_permission(self, tangled, client_of):
        path = f"/atp/api/instances/{tangled.uuid}/explanation"
        assert client_of().get(path).status_code == 403

    @pytest.mark.parametrize("may", [True, False])
    def test_errors_and_daemons_are_for_those_who_may_see_them(self, scene, client_of, may):
        """G14: the error of a retry, and who holds it."""
        retried, held = add.enqueue(1), add.enqueue(2)
        scene.starts(retried)
        scene.move(retried, Event.RETRY, delay=add_delay(), message="OSError: 503")
        more = ["view_logrecord", "view_daemon"] if may else []
        client = client_of("view_instance", *more)
        scene.move(held, Event.RELEASE)
        scene.host.claim()
        for instance, word in ((retried, "OSError"), (held, "host:1")):
            answer = client.get(f"/atp/api/instances/{instance.uuid}/explanation")
            assert (word in answer.content.decode()) is may
            page = client.get(f"/atp/instances/{instance.uuid}/").content.decode()
            assert (word in page) is may


def add_delay():
    from datetime import timedelta

    return timedelta(hours=1)


class TestPages:
    def test_an_instance(self, tangled, client_of):
        page = client_of("view_instance").get(f"/atp/instances/{tangled.uuid}/").content.decode()
        assert "tests.echo is held by ann" in page
        assert "manage.py atp gate open --type tests.echo" in page

    def test_a_type(self, tangled, client_of):
        page = client_of("view_type").get("/atp/types/tests.echo/").content.decode()
        assert "tests.echo is held by ann" in page

    def test_a_list(self, tangled, client_of):
        page = client_of("view_instance").get("/atp/instances/").content.decode()
        assert SHORT["gate"] in page


class TestQueries:
    def test_of_each_surface(self, tangled, asked, client_of):
        client = client_of("view_instance", "view_type")
        why(str(tangled.uuid))
        why("x")
        why("tests.echo", "--collection", "a")
        client.get(f"/atp/api/instances/{tangled.uuid}/explanation")
        client.get("/atp/api/types/tests.echo/explanation")
        client.get(f"/atp/instances/{tangled.uuid}/")
        client.get("/atp/types/tests.echo/")
        assert len(asked) == 7
        # An identifier is looked up first, and what it names is explained then.
        assert max(asked[0], *asked[2:]) <= MOST
        assert asked[1] <= MOST + 2

    @pytest.mark.parametrize("event", [None, Event.RETRY, Event.DEFER, Event.EXPIRE])
    def test_whatever_it_waits_for(self, scene, asked, event):
        one = add.enqueue(1)
        if event is not None:
            scene.starts(one)
            scene.move(one, event)
        queue.explain(one)
        scene.host.lose_lease()
        queue.explain(one)
        assert max(asked) <= MOST

    def test_while_it_runs(self, scene, asked):
        one = echo.enqueue()
        scene.starts(one)
        queue.explain(one)
        assert max(asked) <= 5

    def test_a_list_takes_as_many_for_two_as_for_twenty(self, tangled, scene):
        add.enqueue_many([{"first": 1}] * 10)
        rows = list(Instance.objects.select_related("type").order_by("pk"))
        now = overview.now()

        def count(of):
            with CaptureQueriesContext(connection) as queries:
                assert len(briefs(of, now)) >= len(of) - 1
            return len(queries)

        assert count(rows) == count([rows[1], rows[-1]]) <= 6


class TestLists:
    """A list says what an explanation says first."""

    def words(self, one):
        [row] = Instance.objects.select_related("type").filter(pk=one.pk)
        brief = briefs([row], overview.now())[row.pk]
        assert brief.code == queue.explain(one).codes[0]
        return brief.words

    def test_a_downstream_that_is_not_healthy(self, scene, world):
        queue.register(tasks_downstream.other)
        host = world.host("downstream.other")
        one = tasks_downstream.other.enqueue()
        queue.trip_downstream("relay", by="ann")
        assert not scene.starts(one, host)
        assert self.words(one) == "its downstream is not healthy"

    def test_what_was_tried_again_and_then_deferred(self, scene):
        one = add.enqueue(1)
        for event, delay in ((Event.RETRY, timedelta(0)), (Event.DEFER, timedelta(days=1))):
            scene.starts(one)
            scene.move(one, event, delay=delay)
        assert self.words(one) == "deferred"


@pytest.mark.parametrize("key", [str(UUID(int=7)), "0" * 32])
def test_an_identifier_may_look_like_a_uuid(scene, key):
    one = echo.using(identifier=key).enqueue()
    assert queue.explain(key).subject == queue.explain(one).subject
    assert queue.explain(str(UUID(int=8))).codes == ("no-such",)


def test_each_cause_says_what_it_is():
    assert all(cause.__doc__ for cause in CAUSES)
