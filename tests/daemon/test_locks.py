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
from atp.models import Downstream, Instance, LogRecord, Schedule, Slot, Task, Type
from atp.rows.log import Kind
from atp.states import Reason, State
from tests import patience
from tests.app import tasks_daemon as types
from tests.app import tasks_downstream
from tests.helpers import DEADLINE, wait_for
from tests.store.broken import age

pytestmark = pytest.mark.skipif(
    "connection.vendor == 'sqlite'", reason="SQLite has no locks of rows: see guarantees.md"
)

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
# What is locked, by name: of the victim, which runs, of one that waits, or of the daemon.
ROWS = {
    "task": f"SELECT FROM atp_task WHERE instance_id IN ({RUNNING}) FOR UPDATE",
    "instance": "SELECT FROM atp_instance WHERE id = %s FOR UPDATE",
    "response": "SELECT FROM atp_response WHERE instance_id = %s FOR UPDATE",
    "inputs": "SELECT FROM atp_inputs WHERE instance_id = %s FOR UPDATE",
    "log": "SELECT FROM atp_logrecord WHERE instance_id = %s FOR UPDATE",
    "type": (
        "SELECT FROM atp_type WHERE id = (SELECT type_id FROM atp_instance WHERE id = %s) "
        "FOR UPDATE"
    ),
    "daemon": "SELECT FROM atp_daemon WHERE %s > 0 FOR UPDATE",
    "spare lease": "SELECT FROM atp_sparelease WHERE %s > 0 FOR UPDATE",
}
# The same of one that waits: nobody holds its Task, and it has no Response.
WAITING = {name: statement for name, statement in ROWS.items() if name != "response"} | {
    "task": "SELECT FROM atp_task WHERE daemon_id IS NULL AND instance_id = %s FOR UPDATE"
}
ENDED_UNSTARTED = ("task", "instance", "log", "inputs")


def two_run():
    return Instance.objects.filter(state=State.RUNNING).count() == 2


@contextlib.contextmanager
def locked(statement, key):
    """Let another session lock rows as long as the block lasts; at least one."""
    other = connection.copy()
    other.set_autocommit(False)
    try:
        with other.cursor() as cursor:
            # Should the test itself come to wait for it, it ends.
            cursor.execute("SET idle_in_transaction_session_timeout = '300s'")
            cursor.execute(statement, [key])
            assert cursor.rowcount > 0, "nothing was locked"
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
    """A daemon with a victim, which ends when its flag is set, and a long neighbour."""
    return run_two(atpd, record, tmp_path)


def run_two(atpd, record, tmp_path, pause=0.2, **settings):
    flags = tmp_path / "victim", tmp_path / "neighbour"
    victim = types.talkative.enqueue(path=str(record), until=str(flags[0]), pause=pause)
    neighbour = types.wait.enqueue(path=str(record), until=str(flags[1]))
    daemon = atpd(processes=3, settings=SETTINGS | settings)
    record.wait_for("start", 2, timeout=DEADLINE)
    wait_for(two_run, DEADLINE)
    # It has published a file, so that there is a Response to be locked.
    wait_for(lambda: queue.response(victim) is not None, DEADLINE)
    return daemon, victim, neighbour, flags


def goes_on_beside(row, daemon, victim, neighbour, flags):
    """Lock a row of the victim for long; nothing else may be held up, and both end well."""
    with locked(row, victim.pk):
        neighbours_come_and_go(time.monotonic())
        assert troubles(daemon) == []
    for flag in flags:
        flag.touch()
    nobody_is_charged(victim, neighbour)
    assert troubles(daemon) == []


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_what_runs_or_of_the_daemon(running, record, name):
    """G5, G9, G11: claim, record, note and renewal; and the victim ends after the lock."""
    daemon, victim, neighbour, flags = running
    with locked(ROWS[name], victim.pk):
        begun = time.monotonic()
        flags[0].touch()
        record.wait_for("end", timeout=DEADLINE)
        neighbours_come_and_go(begun)
        assert troubles(daemon) == []
    flags[1].touch()
    nobody_is_charged(victim, neighbour)
    assert troubles(daemon) == []


def test_a_row_of_what_talks_without_end(atpd, record, tmp_path):
    """G9, G11: only its own worker waits when too much of it cannot be recorded."""
    daemon, victim, neighbour, flags = run_two(
        atpd, record, tmp_path, pause=0.0005, MAX_LOG_RECORDS=10**6
    )
    goes_on_beside(ROWS["task"], daemon, victim, neighbour, flags)


def test_a_log_that_is_shortened(atpd, record, tmp_path):
    """G9, G11: the worker has told more than is kept, and goes on telling."""
    daemon, victim, neighbour, flags = run_two(atpd, record, tmp_path, MAX_LOG_RECORDS=5)
    wait_for(LogRecord.objects.filter(kind=Kind.LEFT_OUT).exists, DEADLINE)
    goes_on_beside(ROWS["log"], daemon, victim, neighbour, flags)


@pytest.mark.parametrize("name", ["inputs", "log"])
def test_a_row_of_what_is_not_kept(atpd, name):
    """G9, G12: its end is recorded; the Instance is removed when the lock is gone."""
    victim = types.unkept.enqueue()
    queue.hold("daemon.unkept", by="tests")
    daemon = atpd(processes=2, settings=SETTINGS | {"PURGE_EVERY": 0.2}).ready()
    with locked(WAITING[name], victim.pk):
        begun = time.monotonic()
        queue.open_gate("daemon.unkept", by="tests")
        wait_for(Instance.objects.filter(pk=victim.pk, state=State.FINISHED).exists, DEADLINE)
        neighbours_come_and_go(begun)
        assert troubles(daemon) == []
    wait_for(lambda: not Instance.objects.filter(pk=victim.pk).exists(), DEADLINE)
    assert troubles(daemon) == []


@pytest.mark.parametrize("name", WAITING)
def test_a_row_of_what_waits(atpd, record, name):
    """G9: the first of its lane is locked; what comes behind it is claimed."""
    victim = types.note.using(priority=100).enqueue(path=str(record), number=100)
    gate = queue.hold("daemon.note", by="tests")
    assert gate is not None
    daemon = atpd(processes=2, settings=SETTINGS).ready()
    with locked(WAITING[name], victim.pk):
        begun = time.monotonic()
        queue.open_gate("daemon.note", by="tests")
        if name == "type":  # who enqueues locks its Type, too
            neighbours_come_and_go(begun)
        else:
            neighbours_come_and_go(begun, types.note, path=str(record))
        assert troubles(daemon) == []
    nobody_is_charged(victim)


@pytest.mark.parametrize("name", ["task", "instance", "response", "daemon", "spare lease"])
def test_a_row_while_the_connections_are_cut(running, record, name):
    """G11: a daemon joins again, keeps what it runs, and moves what was locked later."""
    daemon, victim, neighbour, flags = running
    with locked(ROWS[name], victim.pk):
        cut(daemon)
        begun = time.monotonic()
        flags[0].touch()
        record.wait_for("end", timeout=DEADLINE)
        neighbours_come_and_go(begun)
    flags[1].touch()
    nobody_is_charged(victim, neighbour)
    assert not daemon.facts("lease_over")
    wait_for(lambda: len(identities()) == 1, DEADLINE, what="the end of the old identity")


def identities():
    with connection.cursor() as cursor:
        cursor.execute("SELECT uuid FROM atp_daemon")
        return cursor.fetchall()


def cut(daemon):
    """Cut all connections of the daemon, and wait until it has joined again."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND state NOT LIKE 'idle in transaction%'"
        )
    daemon.wait_for_fact("rejoined", timeout=DEADLINE)


@pytest.mark.parametrize("name", ENDED_UNSTARTED)
def test_a_row_of_what_is_missed(atpd, record, name):
    """G9: what was not started in time, and is locked, keeps nothing else from being failed."""
    queue.hold("daemon.wait", by="tests")
    soon = timezone.now() + timedelta(seconds=3)
    late = types.wait.using(start_before=soon)
    victim, other = (late.enqueue(path=str(record), until="never") for _ in range(2))
    # The daemon starts later: it may need longer than it takes until they are missed.
    with locked(WAITING[name], victim.pk):
        daemon = atpd(processes=1, settings=SETTINGS).ready()
        begun = time.monotonic()
        assert other.wait(DEADLINE).reason == Reason.MISSED
        neighbours_come_and_go(begun)
        assert troubles(daemon) == []
    assert victim.wait(DEADLINE).reason == Reason.MISSED


@pytest.mark.parametrize("name", ENDED_UNSTARTED)
def test_a_row_of_what_is_dropped(atpd, record, name):
    """G9: what a gate drops, and is locked, keeps nothing else from being dropped."""
    victim, other = (types.wait.enqueue(path=str(record), until="never") for _ in range(2))
    queue.hold("daemon.wait", by="tests")
    daemon = atpd(processes=1, settings=SETTINGS).ready()
    with locked(WAITING[name], victim.pk):
        begun = time.monotonic()
        queue.drop("daemon.wait", by="tests")
        assert other.wait(DEADLINE).reason == Reason.DROPPED
        neighbours_come_and_go(begun)
        assert troubles(daemon) == []
    assert victim.wait(DEADLINE).reason == Reason.DROPPED


def test_a_schedule_that_is_due(atpd, record):
    """G9, G16: its slots wait for the lock; the other chores of a daemon are done meanwhile."""
    schedule = queue.create_schedule("locked", "daemon.noop", every=1)
    Schedule.objects.filter(pk=schedule.pk).update(due_at=schedule.next_at - timedelta(hours=1))
    victim = types.wait.enqueue(path=str(record), until="never")
    queue.hold("daemon.wait", by="tests")
    with locked("SELECT FROM atp_schedule WHERE id = %s FOR UPDATE", schedule.pk):
        daemon = atpd(processes=1, settings=SETTINGS).ready()
        begun = time.monotonic()
        queue.drop("daemon.wait", by="tests")
        assert victim.wait(DEADLINE / 2).reason == Reason.DROPPED
        neighbours_come_and_go(begun)
        assert troubles(daemon) == []
    wait_for(Slot.objects.filter(schedule=schedule).exists, DEADLINE)


@pytest.mark.parametrize("name", ["task", "instance", "daemon", "spare lease"])
def test_a_row_of_a_lost_daemon(atpd, record, tmp_path, name):
    """G2, G9: a sweep takes what is free, and the rest when the lock is gone."""
    flag = tmp_path / "flag"
    victim, other = (types.wait.enqueue(path=str(record), until=str(flag)) for _ in range(2))
    lost = atpd(processes=2, settings=SETTINGS)
    record.wait_for("start", 2, timeout=DEADLINE)
    wait_for(two_run, DEADLINE)
    with locked(ROWS[name], victim.pk):
        lost.destroy()
        flag.touch()
        daemon = atpd(processes=2, settings=SETTINGS).ready()
        begun = time.monotonic()
        neighbours_come_and_go(begun)
        if name in ("task", "instance"):
            assert other.wait(DEADLINE).attempt == 2
        assert troubles(daemon, but=["expired"]) == []
    for instance in (victim, other):
        instance.wait(DEADLINE)
        assert (instance.state, instance.attempt) == (State.FINISHED, 2)


def test_what_waits_for_a_node_of_a_lost_daemon(atpd, record, tmp_path):
    """G2, G9, G17: a sweep fails the other one; and that node when the lock is gone."""
    flag = tmp_path / "flag"
    with Graph("locked") as g:
        first = g.add(types.once, path=str(record), until=str(flag), name="first")
        g.add(types.note, path=str(record), number=7, after=first, on_failure="run", name="second")
    other = types.once.enqueue(path=str(record), until=str(flag))
    lost = atpd(processes=2, settings=SETTINGS)
    record.wait_for("start", 2, timeout=DEADLINE)
    wait_for(two_run, DEADLINE)
    with locked(OF_NODES["waiting task"], g.instance("first").pk):
        lost.destroy()
        daemon = atpd(processes=2, settings=SETTINGS).ready()
        begun = time.monotonic()
        assert other.wait(DEADLINE).reason == Reason.STALE
        neighbours_come_and_go(begun)
        assert troubles(daemon, but=["expired"]) == []
    assert g.instance("first").wait(DEADLINE).reason == Reason.STALE
    assert g.instance("second").wait(DEADLINE).state == State.FINISHED


@pytest.mark.parametrize("name", ["task", "instance"])
def test_a_row_of_what_is_mended(atpd, record, name):
    """G9: a scan steps over it, and mends the other."""
    victim, other = (types.note.enqueue(path=str(record), number=n) for n in (1, 2))
    queue.hold("daemon.note", by="tests")
    age(victim.pk, other.pk)
    if name == "task":
        # Of a higher attempt than its Instance.
        Task.objects.update(attempt=7)
    else:
        Task.objects.all().delete()
    with locked(WAITING[name], victim.pk):
        daemon = atpd(processes=2, settings=SETTINGS | {"SCAN_EVERY": 0.2}).ready()
        begun = time.monotonic()
        wait_for(other.log.filter(kind=Kind.MENDED).exists, DEADLINE)
        neighbours_come_and_go(begun)
        assert not victim.log.filter(kind=Kind.MENDED).exists()
        assert troubles(daemon) == []
    wait_for(victim.log.filter(kind=Kind.MENDED).exists, DEADLINE)


def test_a_downstream(atpd, record, tmp_path):
    """G9: Types without it are served; those with it when the lock is gone."""
    answers = tmp_path / "answers"
    answers.write_text("ok")
    victim = tasks_downstream.call.enqueue(path=str(record), answers=str(answers))
    gate = queue.hold("downstream.call", by="tests")
    assert gate is not None
    daemon = atpd(processes=2, settings=SETTINGS).ready()
    wait_for(Downstream.objects.exists, DEADLINE)
    with locked("SELECT FROM atp_downstream WHERE %s > 0 FOR UPDATE", victim.pk):
        begun = time.monotonic()
        queue.open_gate("downstream.call", by="tests")
        neighbours_come_and_go(begun)
        assert troubles(daemon) == []
    nobody_is_charged(victim)


def test_a_type_whose_registration_is_locked(atpd, record):
    """G9: a daemon starts, and serves all; it registers that Type when the lock is gone."""
    victim = types.note.enqueue(path=str(record))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE atp_type SET max_retries = 77 WHERE identifier = 'daemon.note'")
    with locked(ROWS["type"], victim.pk):
        daemon = atpd(processes=1, settings=SETTINGS)
        assert types.noop.enqueue().wait(DEADLINE).state == State.FINISHED
        assert troubles(daemon) == []
    victim.wait(DEADLINE)
    wait_for(lambda: not has_retries("daemon.note", 77), DEADLINE, what="the registration")


def has_retries(identifier, retries):
    return Type.objects.filter(identifier=identifier, max_retries=retries).exists()


@pytest.mark.parametrize("verb", ["release", "cancel", "quiet"])
def test_a_verb_in_a_transaction_that_stays_open(running, record, verb):
    """G5, G11: somebody has steered a running Task, or the daemon, and does not commit."""
    daemon, victim, neighbour, flags = running
    statements = {
        "release": "UPDATE atp_task SET request = 'release' WHERE instance_id = %s",
        "cancel": "UPDATE atp_task SET request = 'cancel' WHERE instance_id = %s",
        "quiet": "UPDATE atp_daemon SET request = 'quiet' WHERE %s > 0",
    }
    with locked(statements[verb], victim.pk):
        begun = time.monotonic()
        flags[0].touch()
        record.wait_for("end", timeout=DEADLINE)
        neighbours_come_and_go(begun)
        assert troubles(daemon) == []
    flags[1].touch()
    nobody_is_charged(victim, neighbour)


@pytest.mark.parametrize("name", ["task", "instance"])
def test_a_daemon_that_stops_delivers_after_the_lock(running, record, name):
    """G10, G11: stopped with results behind a lock, it waits for them a while."""
    daemon, victim, neighbour, flags = running
    with locked(ROWS[name], victim.pk):
        for flag in flags:
            flag.touch()
        record.wait_for("end", 2, timeout=DEADLINE)
        daemon.wait_for_fact("results_locked", timeout=DEADLINE)
        daemon.signal()
        neighbour.wait(DEADLINE)
    nobody_is_charged(victim, neighbour)
    assert daemon.wait(DEADLINE) == 0


# Of a node that runs, and of its graph, by name; an update keeps what it has changed.
OF_NODES = {
    "task": ROWS["task"],
    "instance": ROWS["instance"],
    "node": "SELECT FROM atp_node WHERE instance_id = %s FOR UPDATE",
    "waiting task": (
        "SELECT FROM atp_task WHERE waits > 0 AND instance_id IN (SELECT downstream_id FROM "
        "atp_edge WHERE upstream_id = %s) FOR UPDATE"
    ),
    "updated task": (
        "UPDATE atp_task SET request = request WHERE daemon_id IS NOT NULL AND instance_id = %s"
    ),
    "updated instance": "UPDATE atp_instance SET priority = priority WHERE id = %s",
    "graph": (
        "SELECT FROM atp_graph WHERE id = (SELECT graph_id FROM atp_node "
        "WHERE instance_id = %s) FOR UPDATE"
    ),
    "updated node": "UPDATE atp_node SET name = 'changed' WHERE instance_id = %s",
    "updated graph": (
        "UPDATE atp_graph SET name = 'changed' WHERE id = (SELECT graph_id FROM atp_node "
        "WHERE instance_id = %s)"
    ),
}


@pytest.fixture
def running_node(atpd, record, tmp_path):
    """A daemon with a node that ends when its flag is set, one behind it, and a neighbour."""
    flags = tmp_path / "victim", tmp_path / "neighbour"
    with Graph("locked") as g:
        first = g.add(types.wait, path=str(record), until=str(flags[0]), name="first")
        g.add(types.note, path=str(record), number=7, after=first, name="second")
    neighbour = types.wait.enqueue(path=str(record), until=str(flags[1]))
    daemon = atpd(processes=3, settings=SETTINGS)
    record.wait_for("start", 2, timeout=DEADLINE)
    wait_for(two_run, DEADLINE)
    return daemon, g, neighbour, flags


def starts(count):
    """Return how long each of so many neighbours took from its enqueueing to its start."""
    took = []
    for _ in range(count):
        neighbour = types.noop.enqueue()
        neighbour.wait(DEADLINE)
        took.append((neighbour.started - neighbour.created).total_seconds())
    return took


@pytest.mark.parametrize("name", OF_NODES)
def test_a_row_of_a_node(running_node, record, name):
    """G9, G11, G17: the end of the node waits for the lock, and nothing else does.

    The daemon has recorded no node before.
    """
    daemon, g, neighbour, flags = running_node
    first = g.instance("first")
    with locked(OF_NODES[name], first.pk):
        begun = time.monotonic()
        flags[0].touch()
        record.wait_for("end", timeout=DEADLINE)
        neighbours_come_and_go(begun)
        # Far from the moment, and far from the time for which the row is locked.
        assert median(starts(5)) < PROMPTLY
        assert troubles(daemon) == []
    flags[1].touch()
    g.wait(DEADLINE)
    nobody_is_charged(first, g.instance("second"), neighbour)
    assert troubles(daemon) == []
