"""Downstreams as real daemons call them: what is refused waits, and what fails stops the others."""

import pytest
from django.db import connection

from atp import queue
from atp.downstreams.protection import State
from atp.models import Downstream, Instance, Task, Type
from tests.app import tasks_downstream as types
from tests.helpers import DEADLINE, open_transaction, wait_for


@pytest.fixture
def service(tmp_path):
    """The file that says what the downstream answers."""
    path = tmp_path / "answers"
    path.write_text("ok")
    return path


@pytest.fixture
def enqueued(record, service):
    """Return a function that enqueues so many calls."""

    def enqueue(count):
        given = {"path": str(record), "answers": str(service)}
        return types.call.enqueue_many(given for _ in range(count))

    return enqueue


def relay():
    return Downstream.objects.get(name="relay")


def wait_for_state(state):
    wait_for(lambda: relay().state == state, what=f"{state}")


def wait_until_empty():
    wait_for(lambda: not Task.objects.exists(), what="an empty queue")


@pytest.mark.slow
def test_refused_calls_wait_uncharged_and_an_outage_stops_all_calls(
    atpd, service, record, enqueued
):
    """With max_retries=0. Without a downstream a refusal is a defer, and a failure an error."""
    daemons = [atpd(processes=2).ready(workers=2) for _ in range(2)]
    deferred, failed = types.none.enqueue(), types.none.enqueue(fails=True)
    assert (failed.wait(DEADLINE).reason, failed.retries) == ("ERROR", 1)
    wait_for(lambda: deferred.refresh_from_db() or deferred.attempt >= 2, what="another attempt")
    assert deferred.retries == 0
    queue.cancel(deferred)
    before = Downstream.objects.values().get(name="relay")
    enqueued(10)
    wait_until_empty()
    # One that is well is not written to.
    assert Downstream.objects.values().get(name="relay") == before
    service.write_text("refuse")
    enqueued(20)
    wait_for_state(State.THROTTLED)
    record.wait_for("refuse", 3)
    queue.downstream("relay", floor=50)
    service.write_text("ok")
    wait_until_empty()

    queue.reset_downstream("relay")
    service.write_text("fail")
    enqueued(100)
    wait_for(lambda: relay().trips >= 1, what="an open breaker")
    service.write_text("error")
    wait_for(lambda: relay().trips >= 3, what="two probes that fail")
    trips = relay().trips
    assert len(record.lines("fail")) + len(record.lines("error")) <= 4 + 10 + trips
    # An older release may have registered the Type last, without its downstream.
    Type.objects.filter(identifier="downstream.call").update(downstream="", max_restarts=7)
    service.write_text("ok")
    wait_for_state(State.THROTTLED)
    queue.reset_downstream("relay")
    wait_until_empty()
    found = Instance.objects.filter(type__identifier="downstream.call")
    assert set(found.values_list("state", "retries", "restarts")) == {("FINISHED", 0, 0)}
    row = Type.objects.get(identifier="downstream.call")
    # What else the other release says stays.
    assert (row.downstream, row.max_restarts) == ("relay", 7)
    assert [daemon.stop() for daemon in daemons] == [0, 0]


@pytest.mark.slow
def test_another_daemon_probes_if_the_one_that_probes_is_killed(atpd, service, record, enqueued):
    """G3. G9: if the row is locked, the end of the probe waits for it, and no other end does."""
    short = {"LEASE": 8, "RENEW_EVERY": 1}
    daemons = [atpd(processes=2, settings=short).ready(workers=2) for _ in range(2)]
    service.write_text("hang")
    queue.trip_downstream("relay")
    enqueued(20)
    record.wait_for("hang")
    holder = Task.objects.get(pk=relay().probe).daemon
    killed, other = sorted(daemons, key=lambda daemon: daemon.pid != holder.pid)
    killed.destroy()
    record.wait_for("hang", 2)
    if connection.vendor == "sqlite":  # it has one writer: there are no locks of rows
        service.write_text("ok")
    else:
        with open_transaction(lambda: list(Downstream.objects.select_for_update())):
            service.write_text("ok")
            types.none.enqueue(fails=True).wait(DEADLINE)
            assert relay().state == State.HALF_OPEN
    wait_for_state(State.THROTTLED)
    queue.reset_downstream("relay")
    wait_until_empty()
    assert other.stop() == 0
