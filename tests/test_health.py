"""Tests of ``health``, the report that says if the queue is being worked on."""

from datetime import timedelta

import pytest
from django.db import OperationalError, ProgrammingError, connection
from django.db.migrations.recorder import MigrationRecorder

from atp import queue
from atp.models import Daemon, Downstream, Instance, Schedule
from atp.reports import health, overview

from .app import tasks_downstream
from .app.tasks import add, echo
from .helpers import Thread, open_transaction, wait_for
from .store.broken import LONG, age, execute, settle


def test_health_is_ok_without_a_daemon_while_nothing_is_due(world):
    found = health.health()
    assert (found.status, found.problems, found.database) == ("ok", (), True)
    assert found.daemons == {"alive": 0, "late": 0, "lost": 0}
    assert health.oldest_due() is None
    echo.using(run_after=timedelta(hours=1)).enqueue()
    assert (health.health().status, health.oldest_due()) == ("ok", None)
    add.enqueue(1)
    assert health.health().problems == ("Work is due, and no daemon is alive.",)


def test_health_reports_due_work_that_no_daemon_serves(world):
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
    assert health.health().status == "failing"


def test_health_reports_a_failing_downstream_while_work_waits_for_it(world):
    world.host("downstream.call")
    queue.register(tasks_downstream.call, by="tests")
    downstream = Downstream.objects.filter(name="relay")
    downstream.update(state="open")
    assert health.health().problems == ()
    tasks_downstream.call.enqueue(path="", answers="")
    assert health.health().problems[0].startswith("Downstream 'relay' has failed for ")
    assert health.health("tests.echo").problems == ()
    downstream.update(state="throttled")
    assert health.health().problems == ()


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


def test_health_ignores_daemons_that_are_quiet_or_stopping(world, host):
    """A daemon is quiet or stopping after an operator's command, or after a signal."""

    def quieted():
        return health.quiet_types(overview.daemons(), overview.now())

    echo.enqueue()
    world.store.renew(host.uuid, lease=30, mode="quiet")
    assert health.health().status == "ok"  # it has been told to resume
    other = world.host("tests.echo")
    queue.command(host.uuid, "quiet")
    assert (health.health().status, quieted()) == ("ok", ["tests.add", "tests.keyword"])
    queue.command(other.uuid, "stop")
    assert quieted() == ["tests.add", "tests.echo", "tests.keyword"]
    what = "Work of Type 'tests.echo' is due, and every daemon that serves it is"
    assert health.health().problems == (f"{what} quiet or stopping.",)
    world.store.renew(host.uuid, lease=30, mode="stopping")
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
