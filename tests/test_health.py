"""Tests of ``health``, the report that says if the queue is being worked on."""

from datetime import timedelta

import pytest
from django.db import OperationalError, ProgrammingError, connection
from django.db.migrations.recorder import MigrationRecorder

from atp import models, queue
from atp.exceptions import InvalidOption
from atp.models import (
    Daemon,
    Downstream,
    Instance,
    Kind,
    LogRecord,
    Schedule,
    Slot,
)
from atp.reports import health, overview
from atp.schedules.models import Outcome
from atp.states import Event

from .app import tasks_downstream
from .app.tasks import add, echo
from .helpers import Thread, open_transaction, wait_for
from .store.broken import LONG, age, execute, settle
from .store.world import ONE


def test_health_is_ok_without_a_daemon_while_nothing_is_due(world):
    found = health.health()
    assert (found.status, found.problems, found.database) == ("ok", (), True)
    assert found.daemons == {"alive": 0, "late": 0, "lost": 0}
    assert health.oldest_due() is None
    echo.using(run_after=timedelta(hours=1)).enqueue()
    assert (health.health().status, health.oldest_due()) == ("ok", None)
    add.enqueue(1)
    assert health.health().problems == ("Work is due, and no daemon is alive.",)


def test_health_reports_since_when_how_much_due_work_no_daemon_serves(world):
    first = echo.using(collection="a").enqueue()
    world.host("tests.add")
    add.enqueue(1)
    found = health.health()
    assert (found.status, health.oldest_due()) == ("failing", first.task.due_at)
    assert found.problems == ("Work of Type 'tests.echo' is due, and no daemon serves it.",)
    # Work that a gate holds is not a problem.
    for place in (("tests.echo", "a"), ("tests.echo", None), (None, None)):
        queue.hold(*place)
        assert health.health().status == "ok"
        queue.open_gate(*place)
    echo.using(priority=5).enqueue()
    [problem] = health.problems_now(overview.overview(history=False), overview.daemons())
    assert (problem.severity, problem.types) == ("failing", ("tests.echo",))
    assert (problem.since, problem.due) == (first.task.due_at, 2)
    assert problem.helps.command == "manage.py atp gate hold --type tests.echo"
    Daemon.objects.update(release="2.0")
    [sentence] = health.health().problems
    assert sentence.endswith("is due, and no daemon serves it; the daemons run release 2.0.")


def overdue():
    row = queue.create_schedule("each.hour", "tests.echo", every=timedelta(hours=1))
    past = row.next_at - timedelta(hours=1) - LONG
    Schedule.objects.filter(pk=row.pk).update(next_at=past, due_at=past)


def test_health_reports_due_slots_that_no_daemon_plans(world):
    overdue()
    assert health.health().problems == ("Slots of schedules are due, and no daemon is alive.",)
    assert health.health("tests.echo").status == "failing"
    assert health.health("tests.add").status == "ok"
    settle(world.host("tests.add"))
    [words] = health.health().problems
    assert words.startswith("Schedule 'each.hour' has been due for")
    Schedule.objects.update(trouble="timezone='Mars/Base': no time zone has this name.")
    assert health.health().problems[0].endswith("no time zone has this name.")


def warnings():
    return health.warnings(overview.daemons(), overview.now())


def test_warning_about_a_late_or_lost_daemon_ends_with_a_new_daemon_on_its_host(world, host):
    other = world.host("tests.echo", name="other")
    seen = world.store.now() - timedelta(seconds=60)
    Daemon.objects.filter(uuid=host.uuid).update(seen=seen)
    [problem] = warnings()
    assert (problem.code, problem.since) == ("daemon-late", seen)
    host.lose_lease()
    [problem] = warnings()
    assert (problem.severity, problem.name) == ("warning", str(host.uuid))
    assert problem.sentence.endswith(
        "no daemon has started on its host since: 1 of 2 daemons is missing."
    )
    other.lose_lease()
    begin = overview.now().replace(microsecond=0) - timedelta(minutes=1)
    Daemon.objects.filter(uuid=other.uuid).update(seen=begin)
    world.store.daemons.sweep()
    assert begin in [each.since for each in warnings()]
    assert len(warnings()) == 2
    world.host("tests.echo", name="other")
    [problem] = warnings()
    assert problem.daemon == "host:1"
    assert problem.without_daemon().sentence.startswith("A daemon was lost ")


def test_warning_about_missed_slots_of_a_day(world):
    now = world.store.now()
    rows = [
        queue.create_schedule(name, "tests.echo", every=timedelta(hours=1)) for name in ("a", "b")
    ]
    for row, at in ((rows[0], now - 2 * LONG), (rows[0], now), (rows[1], now - timedelta(days=2))):
        Slot.objects.create(schedule=row, at=at, outcome=Outcome.MISSED, decided=now)
    [problem] = warnings()
    assert problem.sentence.startswith("Schedule 'a' has missed 2 slots within a day")
    assert (problem.since, problem.types, problem.name) == (now - 2 * LONG, ("tests.echo",), "a")


def count(minutes_ago, type="tests.echo", **counts):
    start = (overview.now() - timedelta(minutes=minutes_ago)).replace(second=0, microsecond=0)
    models.Statistic.objects.create(span=models.Span.MINUTE, start=start, type=type, **counts)


def test_warning_about_a_type_that_fails_more_often_than_on_the_rest_of_the_day(world):
    # One that only runs more often: as many of a hundred attempts fail as on the rest of the day.
    count(60, type=ONE, started=200, failed_error=2)
    count(1, type=ONE, started=1000, failed_error=10)
    for hour in range(1, 24):
        count(60 * hour, failed_error=20)
    count(1, failed_error=4)
    assert warnings() == ()
    count(2, retried=3, lost=1)
    [problem] = warnings()
    assert problem.sentence == (
        "8 attempts of tests.echo failed within 5 min; the average of the day is 1.6."
    )
    assert (problem.code, problem.kind, problem.name) == ("failures", "errors", "tests.echo")
    assert problem.helps.label == "Hold the Type"
    count(1, type=ONE, started=10, failed_error=40)
    assert {each.name for each in warnings()} == {"tests.echo", ONE}


def test_warning_about_failures_tells_since_when_and_ends_soon_after_them(world):
    for minutes in (30, 9, 8, 6, 4):
        count(minutes, failed_error=7)
    assert warnings() == ()
    count(2, failed_error=1)
    [problem] = warnings()
    assert problem.sentence.startswith("8 attempts")
    begin = overview.now() - timedelta(minutes=9)
    assert timedelta() <= begin - problem.since < timedelta(minutes=2)


def test_warning_about_lost_attempts_tells_why_and_which_and_ends_when_they_are_held(world):
    """An error of another time is not taken for the cause."""
    host = world.host(ONE)
    world.enqueue(type=ONE, collection="acme")
    [claimed] = host.claim()
    host.move(claimed, Event.START)
    host.move(claimed, Event.EXPIRE, message="its worker was killed by SIGSEGV")
    count(1, lost=6, failed_error=1, type=ONE)
    [problem] = warnings()
    assert problem.sentence == (
        f"6 attempts of {ONE} were lost within 5 min; the average of the day is 0.024. They are of "
        "1 Instance. Collection: “acme”."
    )
    assert problem.error == "its worker was killed by SIGSEGV"
    assert (problem.code, problem.name, problem.collection) == ("lost", ONE, "acme")
    assert problem.helps.label == "Hold this lane"
    queue.hold(ONE, "other")
    assert warnings() == (problem,)
    for lane in (None, "acme"):
        queue.hold(ONE, lane)
        assert warnings() == ()
        queue.open_gate(ONE, lane)
    world.store.control.cancel([claimed.instance])
    assert warnings() == (problem,)
    queue.hold(ONE)
    count(-1, lost=1, type=ONE)
    assert [each.helps for each in warnings()] == [None]


def test_warning_about_an_attempt_that_runs_beyond_twice_the_p99_of_its_type(world, host):
    long_ago = overview.now() - timedelta(seconds=60)
    uuid = str(echo.using(collection="acme").enqueue().uuid)
    worker = {"worker": 1, "pid": 2, "type": "tests.echo", "instance": uuid}
    Daemon.objects.update(workers=[worker | {"since": long_ago.isoformat()}])
    run, bucket = [0] * models.BUCKETS, models.bucket_of(15_000_000)
    run[bucket] = 29
    count(100, run=run)
    assert warnings() == ()
    run[bucket] = 1
    count(99, run=run)
    [problem] = warnings()
    assert (problem.code, problem.since, problem.name) == ("slow", long_ago, uuid)
    assert problem.collection == "acme"
    Daemon.objects.update(workers=[worker | {"since": overview.now().isoformat()}])
    assert warnings() == ()


def test_health_reports_a_failing_downstream_while_work_waits_for_it(world):
    """A warning about a throttled one tells the error of the calls."""
    host = world.host("downstream.call")
    queue.register(tasks_downstream.call, by="tests")
    downstream = Downstream.objects.filter(name="relay")
    downstream.update(state="open")
    assert health.health().problems == ()
    tasks_downstream.call.enqueue(path="", answers="")
    assert health.health().problems[0].startswith("Downstream 'relay' has failed for ")
    assert health.health("tests.echo").problems == ()
    downstream.update(state="throttled", per_second=2.5)
    assert health.health().problems == ()
    [claimed] = host.claim()
    host.move(claimed, Event.START)
    host.move(claimed, Event.DEFER, message="429 Too many requests", delay=timedelta(0))
    [problem] = warnings()
    assert problem.sentence == (
        "Downstream 'relay' refuses calls: ATP calls it 2.5 times a second at most."
    )
    assert problem.error == "429 Too many requests"
    assert problem.types == ("downstream.call", "downstream.other")


def test_problem_of_a_downstream_began_when_it_was_healthy_last(world):
    """Probes that fail do not make it younger, nor does a Reset that does not help."""
    queue.register(tasks_downstream.call, by="tests")
    Downstream.objects.filter(name="relay").update(state="half-open", since=overview.now())
    begin = overview.now() - timedelta(minutes=10)
    changes = ["open", "closed", "open", "half-open", "reset", "open", "half-open"]
    for minute, state in enumerate(changes):
        LogRecord.objects.create(
            kind=Kind.DOWNSTREAM,
            subject="downstream:relay",
            time=begin + timedelta(minutes=minute),
            detail=state,
            level=30,
        )
    [problem] = warnings()
    assert problem.since == begin + timedelta(minutes=2)
    assert problem.sentence == (
        "Downstream 'relay' has failed for 8 min. ATP tries it with one call at a time, and starts "
        "the others when one has succeeded."
    )


def test_warning_about_a_backlog_names_the_lane_with_most_of_it(world, monkeypatch):
    monkeypatch.setattr(health, "MOST", 3)
    monkeypatch.setattr(health, "BACKLOG", timedelta(seconds=1))
    world.host("tests.echo")
    echo.using(collection="acme").enqueue_many([{}] * 4)
    echo.using(collection="other").enqueue()

    def backlogs():
        found = health.problems_now(overview.overview(history=False), overview.daemons())
        return [each for each in found if each.code == "backlog"]

    assert backlogs() == []  # the rate is unknown
    count(1, finished=30)
    [problem] = backlogs()
    assert problem.sentence.startswith("5 Tasks of tests.echo are due, which take ")
    assert problem.sentence.endswith("4 of them are in collection “acme”.")
    assert (problem.collection, problem.due) == ("acme", 4)


def test_health_ignores_daemons_that_are_quiet_or_stopping(world, host):
    """A daemon is quiet or stopping after an operator's command, or after a signal."""

    def quieted():
        return health.quiet_types(overview.daemons(), overview.now())

    echo.enqueue()
    world.store.daemons.renew(host.uuid, lease=30, mode="quiet")
    assert health.health().status == "ok"  # it has been told to resume
    other = world.host("tests.echo")
    queue.command(host.uuid, "quiet")
    assert (health.health().status, quieted()) == ("ok", ["tests.add", "tests.keyword"])
    queue.command(other.uuid, "stop")
    assert quieted() == ["tests.add", "tests.echo", "tests.keyword"]
    what = "Work of Type 'tests.echo' is due, and every daemon that serves it is"
    assert health.health().problems == (f"{what} quiet or stopping.",)
    world.store.daemons.renew(host.uuid, lease=30, mode="stopping")
    assert health.health().problems == (f"{what} stopping.",)
    third = world.host("tests.echo")
    assert (health.health().status, quieted()) == ("ok", [])
    queue.command(third.uuid, "quiet")
    assert quieted() == ["tests.echo"]


def test_health_reports_a_database_that_is_not_migrated(world, monkeypatch):
    """The check for the table of migrations runs once, and again after a failure."""
    rows = MigrationRecorder(connection).migration_qs.filter(app="atp")
    rows.latest("pk").delete()
    found = health.health()
    assert (found.status, found.database) == ("failing", False)
    assert "has not been migrated: it lacks 00" in found.problems[0]
    assert found.problems[0].endswith(" Run manage.py migrate.")

    def without_table(recorder):
        raise ProgrammingError('relation "django_migrations" does not exist')

    with monkeypatch.context() as context:
        context.setattr(MigrationRecorder, "has_table", lambda self: False)
        context.setattr(MigrationRecorder, "migration_qs", property(without_table))
        assert health.health().problems == ("The database does not answer.",)
        assert "0001_tables" in health.health().problems[0]


def test_health_reports_a_database_that_does_not_answer(db, monkeypatch):
    def refused():
        raise OperationalError("could not connect to server at db.example")

    monkeypatch.setattr(overview, "now", refused)
    found = health.health()
    assert (found.status, found.database) == ("failing", False)
    assert found.problems == ("The database does not answer.",)


def test_health_reports_a_lost_daemon_whose_tasks_no_daemon_takes_over(
    world, host, django_assert_max_num_queries
):
    """Nothing is due, yet no task runs. The report takes few queries and does not count Tasks."""
    echo.enqueue()
    assert host.claim(limit=1)
    assert health.health().status == "ok"
    host.lose_lease()
    with django_assert_max_num_queries(16) as queries:
        found = health.health()
    counting = [each["sql"] for each in queries if "count(" in each["sql"].lower()]
    assert all("pg_stat_activity" in sql for sql in counting)
    assert (found.status, found.daemons) == ("failing", {"alive": 0, "late": 0, "lost": 1})
    assert found.problems == (
        "Daemon host:1 was lost while it held Tasks, and no daemon is alive to rescue them.",
    )
    world.host("tests.add", name="other")
    assert health.health().status == "ok"


def test_health_reports_findings_of_the_scan(world, host):
    """G2: stuck work is reported, not lost. The scan is tested in tests/store/test_scan.py."""
    settle(host)
    age(*(echo.enqueue().pk for _ in range(2)))
    found = health.health()
    assert found.status == "failing"
    [problem] = found.problems
    assert problem.startswith("Work of Type 'tests.echo' has been due for 1.")
    assert "(2 in all)" in problem
    host.claim()
    assert health.health().status == "ok"
    settle(world.host("tests.add", name="other"), idle=False)
    host.lose_lease()
    Daemon.objects.filter(uuid=host.uuid).update(lease_until=world.store.now() - LONG)
    [problem] = health.health().problems
    assert problem.startswith("Daemon host:1 was lost 1.")
    key = host.row.pk
    execute("DELETE FROM atp_daemon WHERE id = %s", key)
    [problem] = health.health().problems
    assert problem.startswith(f"Daemon removed-{key}:0 has no row any more, but holds Tasks.")
    queue.scan()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite does not report its locks")
@pytest.mark.django_db(transaction=True)
def test_health_reports_a_transaction_that_blocks_others(monkeypatch, transactional_db):
    """A transaction with a lock on a table is reported, too."""
    monkeypatch.setattr(health, "BLOCKING", 0.0)
    queue.register(echo, by="tests")
    queue.hold("tests.echo")
    own = Instance.objects.filter(pk=echo.enqueue().pk)
    with open_transaction(lambda: list(own.select_for_update())):
        waiting = Thread(lambda: own.update(priority=1))
        wait_for(lambda: any("wait for its locks" in each for each in health.health().problems))
    waiting.result()
    with open_transaction(lambda: execute("LOCK TABLE atp_task IN EXCLUSIVE MODE")):
        [problem] = health.health().problems
    assert " and has locked the table atp_task in the database; " in problem
    assert ", so no daemon can claim Tasks. To end it: SELECT pg_terminate_backend(" in problem
    assert health.health().problems == ()


def sessions():
    """Return the processes of the sessions of the server."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity")
        return [pid for (pid,) in cursor.fetchall()]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite does not report its locks")
@pytest.mark.django_db(transaction=True)
def test_an_operator_ends_a_session_that_locks_the_queue(transactional_db):
    """A session that keeps nobody waiting is not ended."""
    session = connection.copy()
    session.set_autocommit(False)
    with session.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
        with pytest.raises(InvalidOption, match="keeps others waiting now"):
            queue.end_session(pid)
        cursor.execute("LOCK TABLE atp_task IN EXCLUSIVE MODE")
    [sentence] = health.blocking_sessions(overview.now())
    assert f"process {pid} of the database" in sentence
    ended = queue.end_session(pid, by="ann")
    assert (ended.pid, ended.locked) == (pid, "atp_task")
    wait_for(lambda: pid not in sessions())
    [record] = LogRecord.objects.about("queue")
    assert (record.kind, record.who, record.detail) == (Kind.SESSION, "ann", str(pid))
    with pytest.raises(InvalidOption, match="keeps others waiting now"):
        queue.end_session(pid)
    session.close()
