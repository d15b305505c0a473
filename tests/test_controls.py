"""Tests of the operations on gates and limits."""

from datetime import timedelta

import pytest

from atp import queue, text
from atp.exceptions import InvalidGate, InvalidLimit
from atp.models import Limit
from atp.operations import gates
from atp.operations.registry import registry

pytestmark = pytest.mark.usefixtures("world")


@pytest.fixture(autouse=True)
def registered(world):
    queue.register_all()


def test_change_of_a_burst_keeps_the_rate_that_another_operator_has_just_set(monkeypatch):
    queue.limit("tests.echo", rate="100/s")

    checked = gates.check_limits

    def check(**given):
        Limit.objects.update(rate="5/s", per_second=5.0)
        checked(**given)

    monkeypatch.setattr(gates, "check_limits", check)
    queue.limit("tests.echo", burst=3)
    [limit] = queue.limits("tests.echo")
    assert (limit.rate, limit.per_second, limit.burst) == ("5/s", 5.0, 3)


def test_unlimit_restores_the_declared_limits_at_once(limited, monkeypatch):
    """The limits of a Type that this process does not declare stay until they are registered."""
    queue.limit("tests.echo", max_running=9, by="ann")
    left = queue.unlimit("tests.echo", by="bob")
    assert (left.was_set, left.is_declared) == (True, True)
    [limit] = queue.limits("tests.echo")
    assert limit == left.limit
    assert (limit.max_running, limit.rate, limit.is_set) == (3, "100/m", False)
    assert not queue.unlimit("tests.echo").was_set
    queue.limit("tests.echo", "a", max_running=9)
    left = queue.unlimit("tests.echo", "a")
    assert (left.is_declared, left.limit) == (True, None)
    assert [limit.collection for limit in queue.limits()] == [None]
    queue.limit("tests.echo", max_running=9)
    monkeypatch.delitem(registry._types, "tests.echo")
    left = queue.unlimit("tests.echo")
    assert (left.was_set, left.is_declared, left.limit.max_running) == (True, False, 9)
    queue.register(limited)
    assert queue.limits()[0].max_running == 3


def test_gate_is_set_only_if_its_state_is_as_expected():
    """G13: an invalid value of ``expected`` is refused."""
    for expected in ("shut", 3, b"open", timedelta(0)):
        with pytest.raises(InvalidGate, match="expected="):
            queue.hold("tests.echo", expected=expected)
    assert queue.gates() == []
    gate = queue.drop("tests.echo", by="ann")
    assert queue.hold("tests.echo", expected=gate.since).was == gate
    assert queue.open_gate("tests.echo", expected="hold").mode == "hold"
    assert queue.open_gate("tests.echo") is None


def test_scope_log_returns_the_records_of_a_type_and_its_lanes():
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


def test_rates_and_delays_are_parsed_or_rejected():
    """Rates and delays accept both ``m`` and ``min`` for minutes."""
    assert text.read_moment("1h5min") == text.read_moment("1h5m") == timedelta(minutes=65)
    for rate, expected in (
        *(("5/s", 5), ("6/m", 0.1), ("6/min", 0.1), ("36/h", 0.01), ("5/10s", 0.5)),
        ("6048/w", 0.01),
    ):
        assert gates.per_second(rate) == pytest.approx(expected)
    for rate in ("5", "5/", "5/mi", "5/minutes", "5/ms", "05/s", "/s", "5/0s"):
        with pytest.raises(InvalidLimit, match="must be a number") as raised:
            gates.per_second(rate)
        assert "gate" not in str(raised.value)
    for given in ({"rate": "0/s"}, {"rate": "0"}, {"rate": "0.0/min"}, {"max_running": 0}):
        with pytest.raises(InvalidLimit, match="use a gate: hold"):
            queue.limit("tests.echo", **given)
