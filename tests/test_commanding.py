"""``queue.command`` and ``queue.get_daemon``."""

from uuid import uuid4

import pytest

from atp import queue
from atp.exceptions import InvalidOption, UnknownDaemon
from atp.models import LogRecord
from atp.rows.log import Kind
from atp.words import orders
from atp.words.orders import Mode, Order


def test_a_daemon_by_uuid_or_by_name(world, host):
    for name in (host.uuid, str(host.uuid), str(host.uuid).upper(), "host:1"):
        assert queue.get_daemon(name) == host.row


def test_the_newest_of_a_name(world, host):
    again = world.host("tests.echo")
    assert queue.get_daemon("host:1") == again.row


@pytest.mark.parametrize(
    "name", ["", "x", "host", "host:", "host:2", "host:١", "host:999999999999", "\x00:1", uuid4()]
)
def test_a_daemon_that_there_is_not(world, host, name):
    """G13."""
    with pytest.raises(UnknownDaemon, match="There is no daemon"):
        queue.get_daemon(name)
    with pytest.raises(UnknownDaemon):
        queue.command(name, "quiet")


def test_an_order_that_there_is_not(world, host):
    """G13."""
    with pytest.raises(InvalidOption, match="Did you mean 'quiet'"):
        queue.command(host.uuid, "quite")
    assert host.row.request == ""


def test_who_said_what_is_logged(world, host):
    row = queue.command(host.row, Order.QUIET, by="ann via shell")
    assert (row.request, row.aim) == ("quiet", Mode.QUIET)
    last = LogRecord.objects.about("daemon:host:1").last()
    assert (last.who, last.kind, last.detail) == ("ann via shell", Kind.ORDER, Order.QUIET)


def test_the_table_of_orders():
    """What leads to where; and each order has its request and its words."""
    assert {*orders.ORDERS} == {*orders.REQUESTS} == {*orders.EXPLANATIONS} == {*Order}
    for order, (sources, aim) in orders.ORDERS.items():
        assert orders.wanted(orders.REQUESTS[order]) == aim
        assert aim not in sources
    assert orders.allowed(Mode.STOPPING) == []


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("request_", ["", "quiet", "stop", "unknown"])
def test_nothing_leads_out_of_stopping(mode, request_):
    found = orders.aim(mode, request_)
    stops = mode == Mode.STOPPING or request_ == "stop"
    assert (found == Mode.STOPPING) == stops


@pytest.mark.parametrize("by", [5, None, "\x00", "x" * 300])
def test_who_it_is_has_to_be_text_for_the_log(world, host, by):
    """G13: the same for gates and limits, and nothing is written."""
    identifier = host.types[0]
    for verb in (
        lambda: queue.command(host.uuid, "quiet", by=by),
        lambda: queue.hold(by=by),
        lambda: queue.drop(identifier, by=by),
        lambda: queue.open_gate(by=by),
        lambda: queue.limit(identifier, max_running=1, by=by),
        lambda: queue.unlimit(identifier, by=by),
    ):
        with pytest.raises(InvalidOption, match=r"^by"):
            verb()
    assert host.row.request == ""
    assert not queue.gates()
    assert not queue.limits()
