"""Whether the queue is being worked on."""

from datetime import timedelta

import pytest
from django.db import OperationalError, ProgrammingError, connection
from django.db.migrations.recorder import MigrationRecorder

from atp import queue
from atp.models import Daemon, Downstream, Instance, Schedule
from atp.reports import health, overview
from atp.verbs import migrated

from .app import tasks_downstream
from .app.tasks import add, echo
from .helpers import Thread, open_transaction, wait_for
from .store.broken import LONG, age, execute, settle


def test_an_empty_queue_needs_no_daemon(world):
    found = health.health()
    assert (found.status, found.problems, found.database) == ("ok", (), True)
    assert found.daemons == {"alive": 0, "late": 0, "lost": 0}
    assert health.oldest_due() is None


def test_work_that_is_served(world, host):
    first = echo.enqueue()
    echo.enqueue()
    assert health.health().status == "ok"
    assert health.oldest_due() == first.task.due_at


def test_work_that_nobody_serves(world):
    world.host("tests.add")
    add.enqueue(1)
    echo.enqueue()
    found = health.health()
    assert found.status == "failing"
    assert found.problems == ("Work of Type 'tests.echo' is due, and no daemon serves it.",)


def overdue(**more):
    row = queue.create_schedule("each.hour", "tests.echo", every=timedelta(hours=1))
    past = row.next_at - timedelta(hours=1) - LONG
    Schedule.objects.filter(pk=row.pk).update(next_at=past, due_at=past, **more)


def test_slots_that_no_daemon_decides(world):
    overdue()
    assert health.health().problems == ("Slots of schedules are due, and no daemon is alive.",)
    assert health.health("tests.echo").status == "failing"
    assert health.health("tests.add").status == "ok"
    settle(world.host("tests.add"))
    [words] = health.health().problems
    assert words.startswith("Schedule 'each.hour' has been due for")


def test_a_schedule_that_cannot_be_planned_says_why(world):
    settle(world.host("tests.add"))
    overdue(trouble="timezone='Mars/Base': no time zone has this name.")
    [words] = health.health().problems
    assert words.endswith("no time zone has this name.")


def test_work_that_is_not_due_yet(world):
    echo.using(run_after=timedelta(hours=1)).enqueue()
    assert health.health().status == "ok"
    assert health.oldest_due() is None


def test_a_lost_daemon_serves_nothing(world, host):
    echo.enqueue()
    host.lose_lease()
    found = health.health()
    assert found.status == "failing"
    assert found.daemons == {"alive": 0, "late": 0, "lost": 1}


def test_a_late_daemon_still_has_its_lease(world, host, monkeypatch):
    echo.enqueue()
    monkeypatch.setattr(overview, "condition", lambda row, time: overview.LATE)
    found = health.health()
    assert found.status == "ok"
    assert found.daemons == {"alive": 0, "late": 1, "lost": 0}


@pytest.mark.parametrize("mode", ["quiet", "stopping"])
def test_who_is_quiet_or_stopping_serves_nothing(world, host, mode):
    """Told by an operator, or by itself after a signal."""
    echo.enqueue()
    world.store.renew(host.uuid, lease=30, mode=mode)
    if mode == "quiet":
        assert health.health().status == "ok"  # it has been told to resume
        queue.command(host.uuid, "quiet")
    found = health.health()
    assert found.problems == (f"Work of Type 'tests.echo' is due, and what serves it is {mode}.",)
    world.host("tests.echo")
    assert health.health().status == "ok"


def test_types_that_only_quiet_daemons_serve(world, host):
    """Nothing is wrong yet, but somebody has to resume one."""

    def quieted():
        return health.quieted(overview.daemons(), overview.now())

    other = world.host("tests.echo")
    queue.command(host.uuid, "quiet")
    assert quieted() == ["tests.add", "tests.keyword"]
    queue.command(other.uuid, "stop")
    assert quieted() == ["tests.add", "tests.echo", "tests.keyword"]
    queue.command(host.uuid, "resume")
    assert (quieted(), health.health().status) == ([], "ok")


def test_a_database_that_has_not_been_migrated(world):
    rows = MigrationRecorder(connection).migration_qs.filter(app="atp")
    rows.latest("pk").delete()
    found = health.health()
    assert (found.status, found.database) == ("failing", False)
    assert "has not been migrated: it lacks 00" in found.problems[0]
    assert found.problems[0].endswith(" Run manage.py migrate.")


def test_a_database_without_any_table(world, monkeypatch):
    monkeypatch.setattr(migrated, "_has_table", set())
    monkeypatch.setattr(MigrationRecorder, "has_table", lambda self: False)
    assert "0001_initial" in health.health().problems[0]


def test_a_table_of_migrations_that_is_gone(world, monkeypatch):
    """That it is there is looked up once, and again after a failure."""
    migrated.missing()
    with monkeypatch.context() as context:
        context.setattr(MigrationRecorder, "has_table", lambda self: False)
        assert migrated.missing() == []
        context.setattr(MigrationRecorder, "migration_qs", property(_without_table))
        assert health.health().problems == ("The database does not answer.",)
        assert "0001_initial" in health.health().problems[0]
    assert health.health().status == "ok"


def _without_table(recorder):
    raise ProgrammingError('relation "django_migrations" does not exist')


def test_a_database_that_does_not_answer(world, monkeypatch):
    def refused():
        raise OperationalError("could not connect to server at db.example")

    monkeypatch.setattr(overview, "now", refused)
    found = health.health()
    assert (found.status, found.database) == ("failing", False)
    assert found.problems == ("The database does not answer.",)


def test_a_million_waiting_tasks_cost_nothing(world, host, django_assert_max_num_queries):
    """It asks for one Task of each Type that nobody serves, or that is served by who is idle."""
    settle(host)
    echo.enqueue()
    with django_assert_max_num_queries(16) as queries:
        health.health()
    counting = [each["sql"] for each in queries if "count(" in each["sql"].lower()]
    assert all("pg_stat_activity" in sql for sql in counting)


@pytest.mark.parametrize(
    ("alias", "command"),
    [("default", "manage.py migrate"), ("queue", "manage.py migrate --database queue")],
)
def test_the_remedy_names_the_database(alias, command):
    """Without its name Django migrates the default one alone."""
    assert migrated.command(alias) == command


@pytest.mark.parametrize("module", [None])
def test_a_project_without_migrations(world, settings, module):
    migrated._migrations.cache_clear()
    settings.MIGRATION_MODULES = {"atp": module}
    try:
        assert health.health().status == "ok"
    finally:
        migrated._migrations.cache_clear()


def test_a_lost_daemon_with_work_in_hand_and_nobody_to_take_it_over(world, host):
    """Nothing is due, and yet nothing goes on."""
    echo.enqueue()
    assert host.claim(limit=1)
    assert health.health().status == "ok"
    host.lose_lease()
    found = health.health()
    assert found.status == "failing"
    assert found.problems == (
        "Daemon host:1 was lost with work in hand, and none is alive to go on.",
    )
    world.host("tests.add", name="other")
    assert health.health().status == "ok"


def test_no_daemon_at_all(world):
    echo.enqueue()
    add.enqueue(1)
    assert health.health().problems == ("Work is due, and no daemon is alive.",)


def test_what_is_held_is_nobody_s_fault(world):
    """Somebody holds it on purpose."""
    echo.using(collection="a").enqueue()
    assert health.health().problems
    for place in ({"type": "tests.echo", "collection": "a"}, {"type": "tests.echo"}, {}):
        queue.hold(**place)
        assert not health.health().problems
        queue.open_gate(**place)


class TestWhatShouldNeverBe:
    """As far as indexes tell it: docs/check.md."""

    def test_due_for_long_while_an_idle_daemon_serves_it(self, world, host):
        """G2: it is not lost, and it is said."""
        settle(host)
        instances = [echo.enqueue() for _ in range(2)]
        age(*(instance.pk for instance in instances))
        found = health.health()
        assert found.status == "failing"
        [problem] = found.problems
        assert problem.startswith("Work of Type 'tests.echo' has been due for 1.")
        assert "(2 in all)" in problem
        host.claim()
        assert health.health().status == "ok"

    def test_held_and_limited_lanes_are_nobody_s_fault(self, world, host):
        """G9: an idle daemon leaves them alone on purpose."""
        settle(host)
        lanes = [echo.using(collection=name).enqueue() for name in ("held", "limited")]
        age(*(instance.pk for instance in lanes))
        assert health.health().status == "failing"
        queue.hold("tests.echo", "held")
        assert "(1 in all)" in health.health().problems[0]
        queue.limit("tests.echo", "limited", max_running=1)
        assert health.health().status == "ok"

    def test_held_by_a_daemon_that_nobody_sweeps(self, world, host):
        settle(world.host("tests.add", name="other"), idle=False)
        echo.enqueue()
        host.claim()
        host.lose_lease()
        assert health.health().status == "ok"
        Daemon.objects.filter(uuid=host.uuid).update(lease_until=world.store.now() - LONG)
        [problem] = health.health().problems
        assert problem.startswith("Daemon host:1 was lost 1.")

    def test_held_by_a_daemon_without_a_row(self, world, host):
        echo.enqueue()
        host.claim()
        key = host.row.pk
        execute("DELETE FROM atp_daemon WHERE id = %s", key)
        [problem] = health.health().problems
        assert problem.startswith(f"Daemon removed-{key}:0 has no row any more, but holds Tasks.")
        queue.scan()
        assert health.health().status == "ok"


def test_downstream_that_fails_is_a_problem_while_work_waits_for_it(world):
    world.host("downstream.call")
    queue.register(tasks_downstream.call, by="tests")
    Downstream.objects.filter(name="relay").update(state="open")
    assert health.health().problems == ()
    tasks_downstream.call.enqueue(path="", answers="")
    [words] = health.health().problems
    assert words.startswith("Downstream 'relay' has failed for ")
    assert health.health("tests.echo").problems == ()
    Downstream.objects.filter(name="relay").update(state="throttled")
    assert health.health().problems == ()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite tells nothing of them")
@pytest.mark.django_db(transaction=True)
def test_transaction_that_others_wait_for_is_a_problem(monkeypatch, transactional_db):
    monkeypatch.setattr(health, "BLOCKING", 0.0)
    queue.register(echo, by="tests")
    queue.hold("tests.echo")
    own = Instance.objects.filter(pk=echo.enqueue().pk)
    with open_transaction(lambda: list(own.select_for_update())):
        waiting = Thread(lambda: own.update(priority=1))
        wait_for(lambda: any("wait for its locks" in each for each in health.health().problems))
    waiting.result()
    assert health.health().problems == ()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite tells nothing of them")
@pytest.mark.django_db(transaction=True)
def test_table_that_is_locked_is_a_problem_though_nobody_waits(monkeypatch, transactional_db):
    """Daemons try again rather than wait."""
    monkeypatch.setattr(health, "BLOCKING", 0.0)
    with open_transaction(lambda: execute("LOCK TABLE atp_task IN EXCLUSIVE MODE")):
        [problem] = health.health().problems
    assert " and has locked the table atp_task in the database; " in problem
    assert ": no daemon can claim. To end it: SELECT pg_terminate_backend(" in problem
    assert health.health().problems == ()
