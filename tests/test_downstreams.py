"""Tests of downstreams: their declaration, operations on them, and reasons to wait for them."""

import json
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError

from atp import Defer, Unavailable, queue, task_type
from atp.exceptions import DownstreamChanged, InvalidLimit, InvalidType, UnknownDownstream
from atp.models import Downstream, LogRecord

from .api.client import Api
from .app import tasks_downstream as types
from .helpers import shell

pytestmark = pytest.mark.django_db


@pytest.fixture
def relay():
    queue.register(types.call, by="tests")
    return queue.get_downstream("relay")


def test_invalid_declaration_of_a_downstream_is_rejected():
    """G13: each error names the parameter."""
    for name in ("", "a b", 5, None, "x" * 201):
        with pytest.raises(InvalidType, match="downstream"):
            task_type("tests.bad", downstream=name)
    with pytest.raises(InvalidType, match="has no effect without downstream"):
        task_type("tests.bad", downstream_errors=OSError)
    for named in ("not a name", 5, Defer, Unavailable, ()):
        with pytest.raises(InvalidType, match="downstream_errors"):
            task_type("tests.bad", downstream="relay", downstream_errors=named)
    with pytest.raises(InvalidType, match="in downstream_errors and in fatal_on"):
        task_type("tests.bad", downstream="a", downstream_errors=OSError, fatal_on=OSError)


class TestVerbs:
    def test_operations_on_a_downstream_reject_invalid_values(self, relay):
        """G13: each error says what is wrong, and nothing is written."""
        queue.downstream("relay", ceiling=5)
        before = Downstream.objects.values().get()
        for name in ("ceiling", "floor"):
            for value in (0, -1, "5", True, float("nan"), 1e9):
                with pytest.raises(InvalidLimit, match=name):
                    queue.downstream("relay", **{name: value})
        with pytest.raises(InvalidLimit, match="above ceiling"):
            queue.downstream("relay", floor=6)
        with pytest.raises(UnknownDownstream, match="relay"):
            queue.downstream("relais", ceiling=5)
        for expected in ("ajar", 5, datetime(2030, 1, 1)):
            with pytest.raises(InvalidLimit, match="expected"):
                queue.trip_downstream("relay", expected=expected)
        assert Downstream.objects.values().get() == before

    def test_operations_on_a_downstream_are_logged_and_detect_a_concurrent_change(self, relay):
        assert queue.downstream("relay") == relay  # nothing is written
        queue.downstream("relay", ceiling=5, by="ann")
        queue.trip_downstream("relay", by="bob")
        with pytest.raises(DownstreamChanged) as told:
            queue.reset_downstream("relay", expected=relay.since, by="eve")
        assert told.value.downstream.state == "open"
        queue.reset_downstream("relay", by="cid")
        records = LogRecord.objects.filter(subject="downstream:relay").order_by("pk")
        found = list(records.values_list("detail", "who"))
        assert found == [("set", "ann"), ("trip", "bob"), ("reset", "cid")]


def test_explanation_names_the_downstream_that_an_instance_waits_for(relay, tmp_path):
    instance = types.call.enqueue(path=str(tmp_path / "x"), answers=str(tmp_path / "y"))

    def why(**columns):
        Downstream.objects.update(**columns)
        return " ".join(reason.sentence for reason in queue.explain(instance).reasons)

    past, later = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2100))
    assert "relay" not in why(probe=None)
    queue.downstream("relay", ceiling=5)
    assert "is called at most 5 times a second" in why(probe=None)
    assert "refuses calls. It is not called before" in why(state="throttled", not_before=later)
    queue.trip_downstream("relay")
    assert "The downstream relay fails. It is not called before" in why(probe=None)
    assert "Next, a single attempt tries it" in why(not_before=past)
    assert "tried by one attempt" in why(state="half-open", probe=5)


def test_handler_that_reports_a_failing_downstream_is_deferred(relay, atp, tmp_path):
    """``atp.drain`` defers the Instance as a daemon does, without charging a budget or raising."""
    answers = tmp_path / "answers"
    for said in ("refuse", "refuse 30", "fail", "error"):
        answers.write_text(said)
        made = types.call.enqueue(path=str(tmp_path / "calls"), answers=str(answers))
        queue.reset_downstream("relay")
        assert [run.state for run in atp.drain()] == ["ACCEPTED"], said
        found = queue.get(made.uuid)
        assert (found.attempt, found.retries, found.restarts) == (1, 0, 0)
        queue.cancel(found)


def test_each_user_interface_shows_a_downstream(client, relay):
    """Operations on downstreams and their permissions are tested in test_verbs and test_roles."""
    queue.downstream("relay", ceiling=5, by="ann")
    root = User.objects.create_superuser("root", password="secret")
    client.force_login(root)
    key = Downstream.objects.get().pk
    for path in ("/atp/downstreams/", "/atp/downstreams/relay/"):
        text = client.get(path).content.decode()
        assert all(word in text for word in ("relay", "throttled", "downstream.call"))
    shown = client.get(f"/admin/atp/downstream/{key}/change/").content.decode()
    assert "downstream.call" in shown
    assert client.get("/atp/downstreams/relais/").status_code == 404
    [found] = json.loads(shell("downstreams", "--json"))["downstreams"]
    assert (found["state"], found["per_second"], found["ceiling"]) == ("throttled", 5, 5)
    with pytest.raises(CommandError, match="--ceiling"):
        shell("downstream", "bound", "relay")
    answer = Api(root).get("downstreams/relay")
    assert "downstream.call" in answer.json()["types"]
    assert set(answer.json()["actions"]) == {"bound", "reset", "trip"}
