"""Downstreams as applications and operators meet them: declaring, verbs, reasons to wait."""

import io
import json
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from atp import Defer, Unavailable, queue, task_type
from atp.exceptions import DownstreamChanged, InvalidLimit, InvalidType, UnknownDownstream
from atp.models import Downstream, LogRecord

from .api.client import Api
from .app import tasks_downstream as types

pytestmark = pytest.mark.django_db


@pytest.fixture
def relay():
    queue.register(types.call, by="tests")
    return queue.get_downstream("relay")


def test_what_code_declares_wrongly_is_told():
    """G13."""
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
    def test_what_makes_no_sense_is_told(self, relay):
        """G13."""
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

    def test_each_is_in_the_log_and_of_two_who_have_seen_the_same_one_is_told(self, relay):
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


def test_why_it_waits(relay, tmp_path):
    instance = types.call.enqueue(path=str(tmp_path / "x"), answers=str(tmp_path / "y"))

    def why(**columns):
        Downstream.objects.update(**columns)
        return " ".join(reason.sentence for reason in queue.explain(instance).reasons)

    past, later = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2100))
    assert "relay" not in why(probe=None)
    queue.downstream("relay", ceiling=5)
    assert "is called 5 times a second at most" in why(probe=None)
    assert "refuses calls: it is not called before" in why(state="throttled", not_before=later)
    queue.trip_downstream("relay")
    assert "The downstream relay fails: it is not called before" in why(probe=None)
    assert "one attempt tries it next" in why(not_before=past)
    assert "tried by one attempt" in why(state="half-open", probe=5)


def test_a_handler_says_how_its_downstream_is(relay, atp, tmp_path):
    """It is deferred by a drain as by a daemon: that spends no budget, and fails no test."""
    answers = tmp_path / "answers"
    for said in ("refuse", "refuse 30", "fail", "error"):
        answers.write_text(said)
        made = types.call.enqueue(path=str(tmp_path / "calls"), answers=str(answers))
        queue.reset_downstream("relay")
        assert [run.state for run in atp.drain()] == ["ACCEPTED"], said
        found = queue.get(made.uuid)
        assert (found.attempt, found.retries, found.restarts) == (1, 0, 0)
        queue.cancel(found)


def test_each_surface_shows_it(client, relay):
    """What is done, and with which permission, is in tests of the tables of verbs and of pages."""
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
    out = io.StringIO()
    call_command("atp", "downstreams", "--json", stdout=out)
    [found] = json.loads(out.getvalue())["downstreams"]
    assert (found["state"], found["per_second"], found["ceiling"]) == ("throttled", 5, 5)
    with pytest.raises(CommandError, match="--ceiling"):
        call_command("atp", "downstream", "bound", "relay")
    answer = Api(root).get("downstreams/relay")
    assert "downstream.call" in answer.json()["types"]
    assert set(answer.json()["actions"]) == {"bound", "reset", "trip"}
