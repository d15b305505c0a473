"""Downstreams as real daemons call them: what is refused waits, and what fails stops the others."""

import pytest
from django.db import connections

from atp import queue
from atp.conf import settings
from atp.daemon.pool.downstreams import SOONEST, Downstreams
from atp.daemon.shared.outcome import Kind, Outcome
from atp.models import Downstream, Instance, Task, Type
from atp.protection.values import State
from tests.app import tasks_downstream as types
from tests.app.tasks import echo
from tests.daemon.harness import Record
from tests.helpers import open_transaction, wait_for
from tests.samples import claimed

pytestmark = pytest.mark.each_database

PATIENCE = 120


@pytest.fixture
def service(tmp_path):
    """The file that says what the downstream answers."""
    path = tmp_path / "answers"
    path.write_text("ok")
    return path


@pytest.fixture
def record(tmp_path):
    return Record(tmp_path / "calls.jsonl")


@pytest.fixture
def enqueued(record, service):
    """Return a function that enqueues so many calls."""

    def enqueue(count):
        given = {"path": str(record.path), "answers": str(service)}
        return types.call.enqueue_many(given for _ in range(count))

    return enqueue


def test_an_overdue_report_keeps_no_processor_busy():
    """It waits for the thread that records, or for the database to be back."""
    known = Downstreams()
    known.ended(claimed(1, "downstream.call"), Outcome(Kind.UNAVAILABLE, "503"))
    assert known.due() == ["relay"]
    assert known.pause(5.0) == 5.0
    known.take("relay")
    known.told("relay", None)
    assert known.pause(5.0) <= SOONEST


def test_a_locked_row_stops_no_other_type(atpd, enqueued, record, service):
    """G9: what is claimed ahead goes back, so that the workers get other Tasks."""
    if connections[settings.DATABASE].vendor == "sqlite":
        pytest.skip("SQLite has one writer: there are no locks of rows")
    enqueued(6000)
    atpd(processes=2).ready(workers=2)
    record.wait_for("ok", 300, timeout=PATIENCE)
    with open_transaction(lambda: list(Downstream.objects.select_for_update())):
        service.write_text("refuse")
        record.wait_for("refuse", 1, timeout=PATIENCE)
        others = [echo.enqueue() for _ in range(3)]
        wait_for(
            lambda: all(queue.get(each.uuid).state == "FINISHED" for each in others),
            PATIENCE,
            "the end of what calls no downstream",
        )
    queue.hold()


def test_a_row_that_does_not_name_the_downstream_is_written_again(atpd, enqueued, service):
    """As when an older release has registered the Type last: else nothing would be a probe."""
    service.write_text("fail")
    enqueued(40)
    atpd(processes=2).ready(workers=2)
    # By then the daemon has registered the Type itself.
    wait_for(lambda: Downstream.objects.get().trips, PATIENCE, "an open breaker")
    Type.objects.filter(identifier="downstream.call").update(downstream="", max_restarts=7)
    service.write_text("ok")
    wait_for(is_empty, PATIENCE, "the end of all calls")
    row = Type.objects.get(identifier="downstream.call")
    # What else the other release says stays.
    assert (row.downstream, row.max_restarts) == ("relay", 7)


def is_empty():
    return not Task.objects.exists()


def relay():
    return Downstream.objects.get(name="relay")


def wait_for_state(*states):
    return wait_for(lambda: relay().state in states, PATIENCE, what=f"{states}")


def test_a_healthy_one_is_not_written_to(atpd, enqueued):
    daemon = atpd(processes=2).ready(workers=2)
    before = Downstream.objects.values().get(name="relay")
    enqueued(50)
    wait_for(is_empty, PATIENCE, what="an empty queue")
    assert Downstream.objects.values().get(name="relay") == before
    assert daemon.stop() == 0


def test_what_is_refused_waits_and_spends_nothing(atpd, service, record, enqueued):
    """With max_retries=0: neither a retry nor a restart is charged."""
    service.write_text("refuse")
    daemons = [atpd(processes=2).ready(workers=2) for _ in range(2)]
    enqueued(20)
    wait_for_state(State.THROTTLED)
    record.wait_for("refuse", 3, timeout=PATIENCE)
    queue.downstream("relay", floor=50)
    service.write_text("ok")
    wait_for(is_empty, PATIENCE, what="an empty queue")
    found = Instance.objects.filter(type__identifier="downstream.call")
    assert set(found.values_list("state", "retries", "restarts")) == {("FINISHED", 0, 0)}
    assert [daemon.stop() for daemon in daemons] == [0, 0]


def test_a_retry_after_holds_for_all_daemons(atpd, service, record, enqueued):
    service.write_text("refuse 3000")
    daemons = [atpd(processes=1).ready(workers=1) for _ in range(2)]
    enqueued(20)
    wait_for_state(State.THROTTLED)
    wait_for(lambda: relay().not_before, PATIENCE, what="a time")
    wait_for(lambda: not Task.objects.claimed().exists(), PATIENCE, what="nothing claimed")
    assert len(record.lines("refuse")) <= 2
    assert [daemon.stop() for daemon in daemons] == [0, 0]


@pytest.mark.parametrize("answer", ["fail", "error"])
def test_an_outage_stops_the_calls(atpd, service, record, enqueued, answer):
    """No more calls fail than there are workers, ten that open the breaker, and probes."""
    service.write_text(answer)
    daemons = [atpd(processes=2).ready(workers=2) for _ in range(2)]
    made = enqueued(200)
    wait_for(lambda: relay().trips >= 3, PATIENCE, what="two probes that fail")
    trips = relay().trips
    assert len(record.lines(answer)) <= 4 + 10 + trips
    service.write_text("ok")
    wait_for(lambda: record.lines("ok"), PATIENCE, what="a probe that goes well")
    queue.reset_downstream("relay")
    wait_for(is_empty, PATIENCE, what="an empty queue")
    rows = Instance.objects.filter(pk__in=[each.pk for each in made])
    assert set(rows.values_list("state", "retries")) == {("FINISHED", 0)}
    assert [daemon.stop() for daemon in daemons] == [0, 0]


def test_when_the_daemon_that_probes_is_killed_another_probes(atpd, service, record, enqueued):
    """G3."""
    short = {"LEASE": 8, "RENEW_EVERY": 1}
    daemons = [atpd(processes=2, settings=short).ready(workers=2) for _ in range(2)]
    service.write_text("hang")
    queue.trip_downstream("relay")
    enqueued(20)
    record.wait_for("hang", 1, timeout=PATIENCE)
    holder = Task.objects.get(pk=relay().probe).daemon
    killed, other = sorted(daemons, key=lambda daemon: daemon.pid != holder.pid)
    killed.destroy()
    record.wait_for("hang", 2, timeout=PATIENCE)
    service.write_text("ok")
    wait_for_state(State.THROTTLED)
    queue.reset_downstream("relay")
    wait_for(is_empty, PATIENCE, what="an empty queue")
    assert other.stop() == 0


@pytest.fixture
def rows_that_lock():
    if connections[settings.DATABASE].vendor == "sqlite":
        pytest.skip("SQLite has one writer: there are no locks of rows")


@pytest.mark.usefixtures("rows_that_lock")
def test_somebody_who_keeps_the_row_stops_no_daemon(atpd, service, enqueued):
    """G9: Types without the downstream run on; the others go on when the lock is gone."""
    daemon = atpd(processes=2).ready(workers=2)
    service.write_text("refuse")
    enqueued(5)
    wait_for_state(State.THROTTLED)
    with open_transaction(lambda: list(Downstream.objects.select_for_update())):
        done = types.none.enqueue(fails=True)
        wait_for(lambda: queue.get(done.uuid).is_terminal, PATIENCE, what="its end")
    service.write_text("ok")
    queue.reset_downstream("relay")
    wait_for(is_empty, PATIENCE, what="an empty queue")
    assert daemon.stop() == 0


@pytest.mark.usefixtures("rows_that_lock")
def test_somebody_who_keeps_the_row_while_a_probe_ends_stops_no_daemon(
    atpd, service, record, enqueued
):
    """G9: the end of the probe waits for the row, and no other end does."""
    daemon = atpd(processes=2).ready(workers=2)
    service.write_text("hang")
    queue.trip_downstream("relay")
    enqueued(3)
    record.wait_for("hang", 1, timeout=PATIENCE)
    with open_transaction(lambda: list(Downstream.objects.select_for_update())):
        service.write_text("ok")
        done = types.none.enqueue(fails=True)
        wait_for(lambda: queue.get(done.uuid).is_terminal, PATIENCE, what="its end")
        assert relay().state == State.HALF_OPEN
    wait_for_state(State.THROTTLED)
    queue.reset_downstream("relay")
    wait_for(is_empty, PATIENCE, what="an empty queue")
    assert daemon.stop() == 0


def test_without_a_downstream_one_is_a_plain_defer_and_the_other_an_error(atpd):
    deferred, failed = types.none.enqueue(), types.none.enqueue(fails=True)
    daemon = atpd(processes=1).ready(workers=1)
    wait_for(lambda: queue.get(failed.uuid).is_terminal, PATIENCE, what="its end")
    found = queue.get(failed.uuid)
    assert (found.reason, found.retries) == ("ERROR", 1)
    wait_for(lambda: queue.get(deferred.uuid).attempt >= 2, PATIENCE, what="another attempt")
    assert queue.get(deferred.uuid).retries == 0
    queue.cancel(deferred)
    assert daemon.stop() == 0
