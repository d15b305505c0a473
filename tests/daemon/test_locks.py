"""A lock that another session holds stops nothing but what is behind it (G5, G9, G11).

Another session locks a row by hand and keeps it for longer than KILL_AFTER. The daemon
keeps its lease, what else runs goes on, what else waits is started and recorded, nobody is
charged, and what is behind the lock ends when the lock is gone.
"""

import contextlib
import time
from datetime import timedelta
from statistics import median

import pytest
from django.db import connection
from django.utils import timezone

from atp import Graph, queue
from atp.models import Daemon, Downstream, Instance, Kind, Schedule, Slot, Task, Type
from atp.states import Reason, State
from tests import patience
from tests.app import tasks_daemon as types
from tests.app import tasks_downstream
from tests.helpers import DEADLINE, wait_for
from tests.store.broken import age

from .scenario import cut_connections, on_postgresql

pytestmark = on_postgresql

# A loaded machine may stop for a second or two: that is not to look like a slow database.
SETTINGS = {
    "LEASE": 9.0,
    "KILL_AFTER": 5.0,
    "RENEW_EVERY": 0.5,
    "STATEMENT_TIMEOUT": 4.0,
    "POLL_EVERY": 0.2,
}
LONGER_THAN_KILL_AFTER = patience.scaled(SETTINGS)["KILL_AFTER"] + 1.0
# After the first neighbours the next come so far apart: each costs a processor some work.
NEXT_NEIGHBOUR = 0.2
PROMPTLY = 2.0 * patience.factor()
# What a daemon tells when it takes a lock for a database that is away.
TROUBLE = (
    *("database_slow", "database_failed", "rejoined", "lease_lost", "lease_over"),
    *("worker_killed", "dispatcher_died", "dispatcher_hung", "expired", "refused"),
)

RUNNING = "SELECT instance_id FROM atp_task WHERE daemon_id IS NOT NULL AND instance_id = %s"
TYPE = "SELECT FROM atp_type WHERE id = (SELECT type_id FROM atp_instance WHERE id = %s) FOR UPDATE"
INPUTS = [
    "SELECT FROM atp_inputs WHERE instance_id = %s FOR UPDATE",
    "SELECT FROM atp_logrecord WHERE instance_id = %s FOR UPDATE",
]
# What is locked, by name: rows of the victim, which runs, or of the daemon. What is in one entry
# is locked at once, where a lock of the one does not keep the daemon from meeting the other.
ROWS = {
    "task": [f"SELECT FROM atp_task WHERE instance_id IN ({RUNNING}) FOR UPDATE"],
    "instance": ["SELECT FROM atp_instance WHERE id = %s FOR UPDATE"],
    "contents": ["SELECT FROM atp_response WHERE instance_id = %s FOR UPDATE", *INPUTS],
    "type": [TYPE, "SELECT FROM atp_sparelease WHERE %s > 0 FOR UPDATE"],
    "daemon": ["SELECT FROM atp_daemon WHERE %s > 0 FOR UPDATE"],
}
# The same of a node, before which the daemon has recorded none; for others see
# store/test_locks.py.
OF_NODES = {
    "waiting task": [
        "SELECT FROM atp_task WHERE waits > 0 AND instance_id IN (SELECT downstream_id FROM "
        "atp_edge WHERE upstream_id = %s) FOR UPDATE"
    ],
    "graph": [
        "SELECT FROM atp_graph WHERE id = (SELECT graph_id FROM atp_node "
        "WHERE instance_id = %s) FOR UPDATE"
    ],
}
# The same of one that waits: nobody holds its Task.
WAITING = {
    "task": ["SELECT FROM atp_task WHERE daemon_id IS NULL AND instance_id = %s FOR UPDATE"],
    "instance": ROWS["instance"],
    "type": [TYPE],
    "downstream": ["SELECT FROM atp_downstream WHERE %s > 0 FOR UPDATE"],
}


def are_running(count):
    return Instance.objects.filter(state=State.RUNNING).count() == count


@contextlib.contextmanager
def locked(statements, key):
    """Let another session lock rows as long as the block lasts; at least one by each statement."""
    other = connection.copy()
    other.set_autocommit(False)
    try:
        with other.cursor() as cursor:
            # Should the test itself come to wait for it, it ends.
            cursor.execute("SET idle_in_transaction_session_timeout = '300s'")
            for statement in statements:
                cursor.execute(statement, [key])
                assert cursor.rowcount > 0, f"nothing was locked: {statement}"
        yield
    finally:
        other.rollback()
        other.close()


def neighbours_come_and_go(begun, type=types.noop, count=5, **inputs):
    """One neighbour after another is enqueued and ends, until the lock is old enough.

    They are started far sooner than the lock lasts.
    """
    took = []
    while len(took) < count or time.monotonic() - begun < LONGER_THAN_KILL_AFTER:
        neighbour = type.enqueue(**inputs)
        neighbour.wait(DEADLINE)
        took.append((neighbour.started - neighbour.created).total_seconds())
        if len(took) > count:
            time.sleep(NEXT_NEIGHBOUR)
    assert median(took) < PROMPTLY


def nobody_is_charged(*instances):
    for instance in instances:
        instance.wait(DEADLINE)
        found = instance.state, instance.attempt, instance.restarts, instance.lost
        assert found == (State.FINISHED, 1, 0, 0), list(instance.log)


def troubles(daemon, but=()):
    """Return what it has told that it would not have told without the lock."""
    return [fact for fact in daemon.facts() if fact["fact"] in TROUBLE and fact["fact"] not in but]


@pytest.fixture
def running(atpd, record, tmp_path):
    """Return a function that starts a daemon with what it runs, a victim and a long neighbour.

    Each of them ends when its flag is set. The victim may be a node; ``behind`` comes after it.
    """

    def run(is_node=False):
        flags = tmp_path / "victim", tmp_path / "neighbour"
        inputs = {"path": str(record), "until": str(flags[0])}
        behind = []
        if is_node:
            with Graph("locked") as g:
                first = g.add(types.talkative, **inputs, name="first")
                g.add(types.note, path=str(record), number=7, after=first, name="second")
            victim, behind = g.instance("first"), [g.instance("second")]
        else:
            victim = types.talkative.enqueue(**inputs)
        neighbour = types.wait.enqueue(path=str(record), until=str(flags[1]))
        daemon = atpd(processes=3, settings=SETTINGS)
        record.wait_for("start", 2)
        wait_for(lambda: are_running(2))
        # It has published a file, so that there is a Response to be locked.
        wait_for(lambda: queue.response(victim) is not None)
        return daemon, victim, [neighbour, *behind], flags

    return run


@pytest.mark.parametrize("name", [*ROWS, *OF_NODES])
def test_locked_row_of_a_task_or_its_daemon_delays_nothing_else(running, record, name):
    """G5, G9, G11, G17: the victim ends after the lock. The daemon can join again meanwhile."""
    daemon, victim, others, flags = running(is_node=name in OF_NODES)
    with locked((ROWS | OF_NODES)[name], victim.pk):
        begun = time.monotonic()
        flags[0].touch()
        record.wait_for("end")
        neighbours_come_and_go(begun)
        assert troubles(daemon) == []
        if joins_again := name in ("task", "daemon"):
            cut_connections()
            daemon.wait_for_fact("rejoined")
            neighbours_come_and_go(begun)
    flags[1].touch()
    nobody_is_charged(victim, *others)
    if joins_again:
        assert not daemon.facts("lease_over")
        wait_for(lambda: Daemon.objects.count() == 1, what="the end of the old identity")
    else:
        assert troubles(daemon) == []


def test_instance_without_retention_is_removed_after_the_lock(atpd):
    """G9, G12: its end is recorded at once."""
    victim = types.unkept.enqueue()
    queue.hold("daemon.unkept", by="tests")
    daemon = atpd(processes=2, settings=SETTINGS | {"PURGE_EVERY": 0.2}).ready()
    with locked(INPUTS, victim.pk):
        begun = time.monotonic()
        queue.open_gate("daemon.unkept", by="tests")
        wait_for(Instance.objects.filter(pk=victim.pk, state=State.FINISHED).exists)
        neighbours_come_and_go(begun)
        assert troubles(daemon) == []
    wait_for(lambda: not Instance.objects.filter(pk=victim.pk).exists())
    assert troubles(daemon) == []
    assert not daemon.facts("purge_failed")


@pytest.mark.parametrize("name", WAITING)
def test_locked_waiting_task_does_not_delay_the_tasks_behind_it(atpd, record, tmp_path, name):
    """G9: while a downstream or Type is locked, other Types are served."""
    if name == "downstream":
        answers = tmp_path / "answers"
        answers.write_text("ok")
        type, inputs = tasks_downstream.call, {"answers": str(answers)}
    else:
        type, inputs = types.note, {"number": 100}
    victim = type.using(priority=100).enqueue(path=str(record), **inputs)
    assert queue.hold(type.identifier, by="tests") is not None
    daemon = atpd(processes=2, settings=SETTINGS).ready()
    wait_for(Downstream.objects.exists)
    with locked(WAITING[name], victim.pk):
        begun = time.monotonic()
        queue.open_gate(type.identifier, by="tests")
        if name in ("task", "instance"):
            neighbours_come_and_go(begun, types.note, path=str(record))
        else:
            neighbours_come_and_go(begun)
        assert troubles(daemon) == []
    nobody_is_charged(victim)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("task", marks=pytest.mark.long), "instance"])
def test_maintenance_does_not_wait_for_a_locked_row(atpd, record, name):
    """G9, G11, G16: the others are missed, dropped, planned and repaired meanwhile."""
    unstarted = {"path": str(record), "until": "never"}
    missed = types.wait.using(start_before=timezone.now() + timedelta(seconds=3))
    missed = [missed.enqueue(**unstarted) for _ in range(2)]
    dropped = [types.stubborn.enqueue(**unstarted) for _ in range(2)]
    mended = [types.note.enqueue(path=str(record), number=n) for n in (1, 2)]
    victims = [each[0].pk for each in (missed, dropped, mended)]
    schedule = queue.create_schedule("locked", "daemon.noop", every=1)
    Schedule.objects.filter(pk=schedule.pk).update(due_at=schedule.next_at - timedelta(hours=1))
    for held in ("daemon.wait", "daemon.stubborn", "daemon.note"):
        queue.hold(held, by="tests")
    damaged = [each.pk for each in mended]
    age(*damaged)
    # Of a higher attempt than its Instance, or gone.
    tasks = Task.objects.filter(pk__in=damaged)
    tasks.update(attempt=7) if name == "task" else tasks.delete()
    rows = [statement.replace("= %s", "= ANY(%s)") for statement in WAITING[name]]
    with (
        locked(rows, victims),
        locked(["SELECT FROM atp_schedule WHERE id = %s FOR UPDATE"], schedule.pk),
    ):
        daemon = atpd(processes=2, settings=SETTINGS | {"SCAN_EVERY": 0.2}).ready()
        begun = time.monotonic()
        queue.drop("daemon.stubborn", by="tests")
        assert missed[1].wait(DEADLINE).reason == Reason.MISSED
        assert dropped[1].wait(DEADLINE).reason == Reason.DROPPED
        wait_for(mended[1].log.filter(kind=Kind.MENDED).exists)
        neighbours_come_and_go(begun)
        assert not mended[0].log.filter(kind=Kind.MENDED).exists()
        assert not Slot.objects.filter(schedule=schedule).exists()
        assert troubles(daemon) == []
    assert missed[0].wait(DEADLINE).reason == Reason.MISSED
    assert dropped[0].wait(DEADLINE).reason == Reason.DROPPED
    wait_for(mended[0].log.filter(kind=Kind.MENDED).exists)
    wait_for(Slot.objects.filter(schedule=schedule).exists)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["task", "instance", pytest.param("daemon", marks=pytest.mark.long)]
)
def test_rescue_of_lost_tasks_does_not_wait_for_a_locked_row(atpd, record, tmp_path, name):
    """G2, G9, G17: the rest is rescued after the lock."""
    flag = tmp_path / "flag"
    inputs = {"path": str(record), "until": str(flag)}
    victim, other = (types.wait.enqueue(**inputs) for _ in range(2))
    with Graph("locked") as g:
        first = g.add(types.once, **inputs, name="first")
        g.add(types.note, path=str(record), number=7, after=first, on_failure="run", name="second")
    given_up = types.once.enqueue(**inputs)
    lost = atpd(processes=4, settings=SETTINGS)
    record.wait_for("start", 4)
    wait_for(lambda: are_running(4))
    with locked(ROWS[name], victim.pk), locked(OF_NODES["waiting task"], g.instance("first").pk):
        lost.destroy()
        flag.touch()
        daemon = atpd(processes=2, settings=SETTINGS).ready()
        begun = time.monotonic()
        neighbours_come_and_go(begun)
        if name != "daemon":
            assert other.wait(DEADLINE).attempt == 2
            assert given_up.wait(DEADLINE).reason == Reason.STALE
        assert troubles(daemon, but=["expired"]) == []
    for instance in (victim, other):
        instance.wait(DEADLINE)
        assert (instance.state, instance.attempt) == (State.FINISHED, 2)
    for instance in (given_up, g.instance("first")):
        assert instance.wait(DEADLINE).reason == Reason.STALE
    assert g.instance("second").wait(DEADLINE).state == State.FINISHED


def test_daemon_starts_while_a_type_is_locked_and_registers_it_later(atpd, record):
    """G9."""
    victim = types.note.enqueue(path=str(record))
    changed = Type.objects.filter(identifier="daemon.note", max_retries=77)
    Type.objects.filter(identifier="daemon.note").update(max_retries=77)
    with locked(WAITING["type"], victim.pk):
        daemon = atpd(processes=1, settings=SETTINGS)
        assert types.noop.enqueue().wait(DEADLINE).state == State.FINISHED
        assert troubles(daemon) == []
    victim.wait(DEADLINE)
    wait_for(lambda: not changed.exists(), what="the registration")


def test_stopping_daemon_waits_a_while_for_a_lock_to_deliver_results(running, record):
    """G10, G11."""
    daemon, victim, [neighbour], flags = running()
    with locked(ROWS["instance"], victim.pk):
        for flag in flags:
            flag.touch()
        record.wait_for("end", 2)
        daemon.wait_for_fact("results_locked")
        daemon.signal()
        neighbour.wait(DEADLINE)
    nobody_is_charged(victim, neighbour)
    assert daemon.wait() == 0
