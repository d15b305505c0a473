"""Downstreams as applications and operators meet them: declaring, verbs, reasons to wait."""

import io
import json
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from atp import Defer, Throttled, Unavailable, queue, task_type
from atp.daemon.shared.outcome import Kind, Outcome, move
from atp.daemon.worker import execution
from atp.exceptions import DownstreamChanged, InvalidLimit, InvalidType, UnknownDownstream
from atp.models import Downstream, LogRecord
from atp.states import Event

from .api.client import Api
from .app import tasks_downstream as types
from .samples import claimed

pytestmark = pytest.mark.django_db


@pytest.fixture
def relay():
    queue.register(types.call, by="tests")
    return queue.get_downstream("relay")


class TestDeclaring:
    @pytest.mark.parametrize("name", ["", "a b", 5, None, "x" * 201])
    def test_a_name_that_is_none_is_told(self, name):
        """G13."""
        with pytest.raises(InvalidType, match="downstream"):
            task_type("tests.bad", downstream=name)

    def test_errors_without_a_downstream_are_told(self):
        """G13."""
        with pytest.raises(InvalidType, match="says nothing without downstream"):
            task_type("tests.bad", downstream_errors=OSError)

    @pytest.mark.parametrize("named", ["not a name", 5, Defer, Unavailable, ()])
    def test_errors_that_are_none_are_told(self, named):
        """G13."""
        with pytest.raises(InvalidType, match="downstream_errors"):
            task_type("tests.bad", downstream="relay", downstream_errors=named)

    def test_what_is_fatal_is_not_the_downstreams(self):
        """G13."""
        with pytest.raises(InvalidType, match="in downstream_errors and in fatal_on"):
            task_type("tests.bad", downstream="a", downstream_errors=OSError, fatal_on=OSError)


class TestOutcome:
    @pytest.fixture
    def answers(self, tmp_path):
        return tmp_path / "answers"

    def run(self, answers, said, context):
        answers.write_text(said)
        path = str(answers.with_suffix(".jsonl"))
        data = json.dumps({"path": path, "answers": str(answers)})
        return execution.run(claimed(5, "downstream.call")._replace(data=data), context)

    @pytest.mark.parametrize(
        ("said", "kind", "after"),
        [
            ("refuse", Kind.THROTTLED, None),
            ("refuse 30", Kind.THROTTLED, 30.0),
            ("fail", Kind.UNAVAILABLE, None),
            ("error", Kind.UNAVAILABLE, None),
            ("ok", Kind.FINISHED, None),
        ],
    )
    def test_a_handler_says_how_it_is(self, answers, context, said, kind, after):
        outcome = self.run(answers, said, context)
        assert (outcome.kind, outcome.after) == (kind, after)

    @pytest.mark.parametrize("kind", [Kind.THROTTLED, Kind.UNAVAILABLE])
    def test_it_spends_no_budget(self, kind):
        found = move(Outcome(kind, "429", 3.0), claimed(5, "downstream.call"))
        assert (found.event, found.delay.total_seconds()) == (Event.DEFER, 3)
        assert found.detail == kind.value

    def test_without_a_downstream_it_is_a_defer(self, context):
        outcome = execution.run(claimed(5, "downstream.none"), context)
        assert (outcome.kind, outcome.after) == (Kind.DEFER, Throttled.LEAST)


class TestVerbs:
    @pytest.mark.parametrize("value", [0, -1, "5", True, float("nan"), 1e9])
    @pytest.mark.parametrize("name", ["ceiling", "floor"])
    def test_a_bound_that_makes_no_sense_is_told(self, relay, name, value):
        """G13."""
        before = Downstream.objects.values().get()
        with pytest.raises(InvalidLimit, match=name):
            queue.downstream("relay", **{name: value})
        assert Downstream.objects.values().get() == before

    def test_a_floor_above_the_ceiling_is_told(self, relay):
        """G13."""
        queue.downstream("relay", ceiling=5)
        with pytest.raises(InvalidLimit, match="above ceiling"):
            queue.downstream("relay", floor=6)

    def test_an_unknown_one_is_told_with_the_closest(self, relay):
        """G13."""
        with pytest.raises(UnknownDownstream, match="relay"):
            queue.downstream("relais", ceiling=5)

    @pytest.mark.parametrize("expected", ["ajar", 5, datetime(2030, 1, 1)])
    def test_an_expectation_that_is_none_is_told(self, relay, expected):
        """G13."""
        with pytest.raises(InvalidLimit, match="expected"):
            queue.trip_downstream("relay", expected=expected)

    def test_of_two_who_have_seen_the_same_one_is_told(self, relay):
        seen = relay.since
        queue.trip_downstream("relay", expected=seen, by="ann")
        with pytest.raises(DownstreamChanged) as told:
            queue.reset_downstream("relay", expected=seen, by="bob")
        assert told.value.downstream.state == "open"

    def test_without_bounds_nothing_is_written(self, relay):
        assert queue.downstream("relay") == relay
        assert not LogRecord.objects.filter(subject="downstream:relay").exists()

    def test_each_is_in_the_log_with_who_did_it(self, relay):
        queue.downstream("relay", ceiling=5, by="ann")
        queue.trip_downstream("relay", by="bob")
        queue.reset_downstream("relay", by="cid")
        records = LogRecord.objects.filter(subject="downstream:relay").order_by("pk")
        found = list(records.values_list("detail", "who"))
        assert found == [("set", "ann"), ("trip", "bob"), ("reset", "cid")]


class TestWhy:
    def why(self):
        found = queue.explain(self.instance)
        return " ".join(reason.sentence for reason in found.reasons)

    @pytest.fixture(autouse=True)
    def waits(self, relay, tmp_path):
        self.instance = types.call.enqueue(path=str(tmp_path / "x"), answers=str(tmp_path / "y"))

    def test_a_healthy_one_is_no_reason(self):
        assert "relay" not in self.why()

    def test_it_fails(self):
        queue.trip_downstream("relay")
        assert "The downstream relay fails: it is not called before" in self.why()

    def test_it_is_about_to_be_probed(self):
        queue.trip_downstream("relay")
        Downstream.objects.update(not_before=datetime(2020, 1, 1, tzinfo=UTC))
        assert "one attempt tries it next" in self.why()

    def test_it_is_probed(self):
        Downstream.objects.update(state="half-open", probe=5)
        assert "tried by one attempt" in self.why()

    def test_it_has_asked_for_time(self):
        Downstream.objects.update(state="throttled", not_before=datetime(2100, 1, 1, tzinfo=UTC))
        assert "refuses calls: it is not called before" in self.why()

    def test_it_is_throttled(self):
        queue.downstream("relay", ceiling=5)
        assert "is called 5 times a second at most" in self.why()


def test_a_drain_of_the_testing_kit_takes_it_as_a_word_of_the_handler(atp, tmp_path):
    """It is deferred by the drain as by a daemon, and is no failure of the test."""
    answers = tmp_path / "answers"
    answers.write_text("refuse")
    made = types.call.enqueue(path=str(tmp_path / "calls"), answers=str(answers))
    atp.drain()
    found = queue.get(made.uuid)
    assert (found.state, found.attempt, found.retries) == ("ACCEPTED", 1, 0)


class TestSurfaces:
    """Looking: each surface shows the same; what is done is in :mod:`tests.test_verbs`."""

    @pytest.fixture
    def root(self, relay):
        queue.downstream("relay", ceiling=5, by="ann")
        return User.objects.create_superuser("root", password="secret")

    @pytest.mark.parametrize("path", ["/atp/downstreams/", "/atp/downstreams/relay/"])
    def test_the_pages(self, client, root, path):
        client.force_login(root)
        text = client.get(path).content.decode()
        assert "relay" in text
        assert "throttled" in text
        assert "downstream.call" in text

    def test_a_page_of_one_that_there_is_not(self, client, root):
        client.force_login(root)
        assert client.get("/atp/downstreams/relais/").status_code == 404

    def test_a_page_takes_its_permission(self, client, relay):
        """G14."""
        client.force_login(User.objects.create_user("ann"))
        assert client.get("/atp/downstreams/").status_code == 403

    def test_the_shell(self, root):
        out = io.StringIO()
        call_command("atp", "downstreams", "--json", stdout=out)
        [found] = json.loads(out.getvalue())["downstreams"]
        assert (found["state"], found["per_second"], found["ceiling"]) == ("throttled", 5, 5)

    def test_the_shell_wants_a_bound(self, root):
        """G13."""
        with pytest.raises(CommandError, match="--ceiling"):
            call_command("atp", "downstream", "bound", "relay")

    def test_the_admin(self, client, root):
        client.force_login(root)
        key = Downstream.objects.get().pk
        answer = client.get(f"/admin/atp/downstream/{key}/change/")
        assert "downstream.call" in answer.content.decode()

    def test_the_api(self, root):
        answer = Api(root).get("downstreams/relay")
        assert answer.status_code == 200
        assert "downstream.call" in answer.json()["types"]
        assert set(answer.json()["actions"]) == {"bound", "reset", "trip"}
