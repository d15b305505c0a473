"""``POST daemons/{uuid}/quiet``, ``/resume`` and ``/stop``."""

import pytest

from atp import queue
from atp.models import LogRecord
from atp.words import orders
from atp.words.orders import Mode, Order

from .client import problem


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("order", Order)
def test_an_order_is_possible_where_it_makes_a_difference(full, api, mode, order):
    host = full.host
    if mode != Mode.RUNNING:
        queue.command(host.uuid, {Mode.QUIET: "quiet", Mode.STOPPING: "stop"}[mode])
    full.world.store.renew(host.uuid, lease=30, mode=mode)
    before = host.row.request
    answer = api.post(f"daemons/{host.uuid}/{order}")
    if order in orders.allowed(mode):
        found = answer.json()
        assert (found["request"], found["mode"]) == (orders.REQUESTS[order], mode)
        assert found["seen"] == api.get(f"daemons/{host.uuid}").json()["seen"]
        assert host.row.request == orders.REQUESTS[order]
        assert LogRecord.objects.about("daemon:host:1").last().who == "user operator via API"
    else:
        assert (answer.status_code, problem(answer)) == (409, "illegal-order")
        assert f"it is {mode}" in answer.json()["detail"]
        assert host.row.request == before


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("uuid", ["x", "host:1", "%00", "00000000-0000-7000-8000-000000000000"])
def test_a_daemon_that_there_is_not(full, api, order, uuid):
    """G13."""
    answer = api.post(f"daemons/{uuid}/{order}")
    assert (answer.status_code, problem(answer)) == (404, "unknown-daemon")


def test_a_lost_one(full, api):
    full.host.lose_lease()
    answer = api.post(f"daemons/{full.host.uuid}/quiet")
    assert (answer.status_code, problem(answer)) == (409, "illegal-order")
    assert "it is lost" in answer.json()["detail"]


@pytest.mark.parametrize("body", [{"force": True}, [1], "text"])
def test_a_body_is_refused(full, api, body):
    """G13: whoever gives one expects something of it."""
    answer = api.post(f"daemons/{full.host.uuid}/quiet", body)
    assert (answer.status_code, problem(answer)) == (400, "bad-request")
    assert full.host.row.request == ""
