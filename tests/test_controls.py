"""The verbs of gates and limits, and the words they take and give."""

from datetime import timedelta

import pytest

from atp import queue
from atp.exceptions import GateChanged, InvalidGate, InvalidLimit
from atp.models import Limit
from atp.verbs.control import limits
from atp.verbs.registry import registry
from atp.words import rates, wording

pytestmark = pytest.mark.usefixtures("world")


@pytest.fixture(autouse=True)
def registered(world):
    queue.register_all()


def test_a_burst_alone_leaves_the_rate_that_somebody_sets_meanwhile(monkeypatch):
    queue.limit("tests.echo", rate="100/s")

    def check(**given):
        Limit.objects.update(rate="5/s", per_second=5.0)
        rates.check_limits(**given)

    monkeypatch.setattr(limits, "check_limits", check)
    queue.limit("tests.echo", burst=3)
    [limit] = queue.limits("tests.echo")
    assert (limit.rate, limit.per_second, limit.burst) == ("5/s", 5.0, 3)


class TestUnlimit:
    def test_the_code_is_in_force_at_once(self, limited):
        queue.limit("tests.echo", max_running=9, by="ann")
        left = queue.unlimit("tests.echo", by="bob")
        assert (left.was_set, left.is_declared) == (True, True)
        [limit] = queue.limits("tests.echo")
        assert limit == left.limit
        assert (limit.max_running, limit.rate, limit.is_set) == (3, "100/m", False)
        assert not queue.unlimit("tests.echo").was_set

    def test_what_the_code_does_not_limit(self):
        queue.limit("tests.echo", max_running=9)
        left = queue.unlimit("tests.echo")
        assert (left.is_declared, left.limit) == (True, None)
        assert queue.limits() == []

    def test_a_lane(self, limited):
        queue.register(limited)
        queue.limit("tests.echo", "a", max_running=9)
        assert queue.unlimit("tests.echo", "a").limit is None
        assert [limit.collection for limit in queue.limits()] == [None]

    def test_a_code_that_is_not_here(self, monkeypatch, limited):
        """It is never suddenly without any."""
        queue.limit("tests.echo", max_running=9)
        monkeypatch.delitem(registry._types, "tests.echo")
        left = queue.unlimit("tests.echo")
        assert (left.was_set, left.is_declared, left.limit.max_running) == (True, False, 9)
        queue.register(limited)
        assert queue.limits()[0].max_running == 3


class TestGates:
    def test_expected(self):
        gate = queue.drop("tests.echo", by="ann")
        with pytest.raises(GateChanged):
            queue.hold("tests.echo", expected="open")
        assert queue.hold("tests.echo", expected=gate.since).was == gate
        assert queue.open_gate("tests.echo", expected="hold").mode == "hold"
        assert queue.open_gate("tests.echo") is None

    @pytest.mark.parametrize("expected", ["shut", 3, b"open", timedelta(0)])
    def test_what_makes_no_sense(self, expected):
        """G13."""
        with pytest.raises(InvalidGate, match="expected="):
            queue.hold("tests.echo", expected=expected)
        assert queue.gates() == []


class TestLog:
    def test_of_a_type_and_its_lanes(self):
        queue.hold("tests.echo", by="ann")
        queue.hold("tests.echo", "a", by="bob")
        queue.hold("tests.add", "a", by="dan")
        queue.hold(by="eve")
        found = queue.scope_log("tests.echo", kind="gate")
        assert [record.who for record in found] == ["bob", "ann"]
        assert [record.scope for record in found] == [("tests.echo", "a"), ("tests.echo", None)]
        assert [record.who for record in queue.scope_log("tests.echo", "a")] == ["bob"]
        assert [record.who for record in queue.scope_log()] == ["eve"]
        assert [record.who for record in queue.scope_log(kind="gate", limit=2)] == ["eve", "dan"]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [("5/s", 5), ("6/m", 0.1), ("6/min", 0.1), ("36/h", 0.01), ("5/10s", 0.5), ("6048/w", 0.01)],
)
def test_rates(rate, expected):
    assert rates.per_second(rate) == pytest.approx(expected)


@pytest.mark.parametrize("rate", ["0/s", "0", "0/min", "0.0/s", "00/s"])
def test_a_rate_of_nothing_names_the_gate(rate):
    with pytest.raises(InvalidLimit, match="use a gate: hold"):
        queue.limit("tests.echo", rate=rate)


@pytest.mark.parametrize("rate", ["5", "5/", "5/mi", "5/minutes", "5/ms", "05/s", "/s", "5/0s"])
def test_what_is_no_rate(rate):
    with pytest.raises(InvalidLimit, match="must be a number") as raised:
        rates.per_second(rate)
    assert "gate" not in str(raised.value)


def test_none_at_a_time_names_the_gate():
    with pytest.raises(InvalidLimit, match="use a gate: hold"):
        queue.limit("tests.echo", max_running=0)


def test_delays_know_minutes_by_both_names():
    assert wording.read_moment("1h5min") == wording.read_moment("1h5m") == timedelta(minutes=65)
