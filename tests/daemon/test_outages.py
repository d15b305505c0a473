"""The database refuses, fails and goes silent, and nothing is lost (G11)."""

import contextlib
import os
import resource
import shutil
import sqlite3
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import connection

from atp.conf import settings
from atp.models import Instance
from atp.states import State
from tests import environment, patience
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, child_environment, manage, stays, wait_for
from tests.postgres import EmbeddedPostgres

from .harness import is_alive
from .proxy import Proxy
from .scenario import on_postgresql, on_sqlite


def four_running(record, flag):
    """Return the Instances of four tasks that run until the flag is set."""
    before = len(record.lines("start"))
    instances = types.wait.enqueue_many(
        {"path": str(record), "until": str(flag), "number": n} for n in range(4)
    )
    record.wait_for("start", before + 4)
    wait_for(lambda: Instance.objects.filter(state=State.RUNNING).count() == 4)
    return instances


def none_is_charged(instances):
    for instance in instances:
        instance.wait(DEADLINE)
    assert {(i.state, i.attempt, i.lost) for i in instances} == {(State.FINISHED, 1, 0)}


@contextlib.contextmanager
def refused_by_the_server(table, code="25006"):
    """Let the server refuse every update of a table, with this code of PostgreSQL's error."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END $$;"
            f"CREATE TRIGGER refuse BEFORE UPDATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse()"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER refuse ON {table}; DROP FUNCTION refuse()")


@on_postgresql
def test_result_is_kept_while_the_server_refuses_it(atpd, record, flag):
    """G11: as in a fail-over, with a full disk or memory, and while it shuts down."""
    daemon = atpd(processes=4)
    for number, code in enumerate(("25006", "53100", "53200", "57P01"), start=1):
        instances = four_running(record, flag)
        with refused_by_the_server("atp_instance", code):
            flag.touch()
            record.wait_for("end", 4 * number)
            stays(lambda: not daemon.facts("dispatcher_died"), 1.5)
        none_is_charged(instances)
        flag.unlink()
    assert not daemon.facts("dispatcher_died")


@on_postgresql
def test_lasting_failure_is_retried_ever_more_slowly(atpd, record):
    """G11."""
    with refused_by_the_server("atp_task"):
        instance = types.note.enqueue(path=str(record))
        daemon = atpd(processes=1)
        daemon.wait_for_fact("database_failed")
        stays(lambda: len(daemon.facts("rejoined")) < 15, 5)
        assert len(daemon.facts("database_failed")) == 1
    assert instance.wait(DEADLINE).state == State.FINISHED


@on_postgresql
def test_connection_that_dies_while_connecting_hangs_nothing(atpd, record):
    """G11: past the time limit of a call."""
    with Proxy() as proxy:
        daemon = atpd(processes=1, environment={"DATABASE_URL": proxy.url}).ready()
        proxy.die_after_connecting(delay=settings.STATEMENT_TIMEOUT + 0.6)
        daemon.wait_for_fact("database_slow")
        proxy.dead.wait(DEADLINE)
        proxy.recover()
        instance = types.note.enqueue(path=str(record))
        assert instance.wait(DEADLINE).state == State.FINISHED


@on_sqlite
def test_daemon_joins_a_replaced_database_file(atpd, record, tmp_path):
    """G1, G11: it does not go on with a file that nobody else sees."""
    name = Path(connection.settings_dict["NAME"])
    daemon = atpd(processes=1).ready()
    with contextlib.ExitStack() as stack:
        old, copy = (
            stack.enter_context(contextlib.closing(sqlite3.connect(path)))
            for path in (name, tmp_path / "copy")
        )
        old.backup(copy)
    connection.close()
    other = shutil.copy(tmp_path / "copy", f"{name}.copy")
    for suffix in ("-wal", "-shm"):
        Path(f"{name}{suffix}").unlink(missing_ok=True)
    # At no time is there none: the daemon would make one that is empty.
    os.replace(other, name)
    instance = types.note.enqueue(path=str(record))
    daemon.wait_for_fact("lease_lost")
    assert instance.wait(DEADLINE).state == State.FINISHED
    assert daemon.stop() == 0


@on_sqlite
def test_results_wait_for_a_disk_that_refuses_writes(atpd, record, flag):
    """G11."""
    daemon = atpd(processes=4)
    instances = four_running(record, flag)
    dispatcher = daemon.dispatcher()
    _, most = resource.prlimit(dispatcher, resource.RLIMIT_FSIZE)
    # No file that this process writes may be longer now; nor may its log.
    resource.prlimit(dispatcher, resource.RLIMIT_FSIZE, (1, most))
    flag.touch()
    record.wait_for("end", 4)
    stays(lambda: not Instance.objects.filter(state=State.FINISHED).exists(), 2)
    resource.prlimit(dispatcher, resource.RLIMIT_FSIZE, (most, most))
    daemon.wait_for_fact("database_back")
    none_is_charged(instances)
    assert daemon.dispatcher() == dispatcher


@on_sqlite
def test_locked_sqlite_database_costs_no_task_and_no_lease(atpd, record, flag):
    """G11: longer than KILL_AFTER."""
    url = f"sqlite:///{connection.settings_dict['NAME']}?timeout=1"
    leases = {"LEASE": 9.0, "KILL_AFTER": 5.0, "RENEW_EVERY": 0.5, "STATEMENT_TIMEOUT": 4.0}
    daemon = atpd(processes=4, settings=leases, environment={"DATABASE_URL": url})
    instances = four_running(record, flag)
    waiting = types.note.enqueue(path=str(record))
    dispatcher = daemon.dispatcher()
    with contextlib.closing(sqlite3.connect(connection.settings_dict["NAME"], timeout=20)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        flag.touch()
        record.wait_for("end", 4)
        assert "locked" in daemon.wait_for_fact("database_failed")["error"]
        longer_than_kill_after = patience.scaled(leases)["KILL_AFTER"] + 1
        stays(lambda: not daemon.facts("dispatcher_died"), longer_than_kill_after)
        raw.rollback()
    daemon.wait_for_fact("database_back")
    none_is_charged([*instances, waiting])
    assert not daemon.facts("worker_killed")
    assert daemon.dispatcher() == dispatcher


@pytest.fixture
def own_server(tmp_path):
    """A PostgreSQL of this test's own, with an empty queue; and its URL."""
    server = EmbeddedPostgres(environment.folder() / f"outage-{os.urandom(4).hex()}")
    server.start()
    try:
        run_manage(server, "migrate", "-v", "0")
        yield server
    finally:
        server.stop("immediate")


def run_manage(server, *args):
    """Run ``manage.py`` on a server of its own."""
    own = child_environment(DATABASE_URL=server.url())
    subprocess.run(manage(*args), env=own, check=True)


def asked(server, statement):
    """The rows that a server of its own answers."""
    raw = connection.Database.connect(server.url())
    with contextlib.closing(raw), raw.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


@pytest.mark.slow
@on_postgresql
@pytest.mark.timeout(240)
def test_tasks_survive_a_stop_of_postgresql(atpd, own_server, record):
    """G11: 15 s amid 300 tasks: all finish, nothing is charged, no process exits."""
    own = {"DATABASE_URL": own_server.url()}
    enqueue = (
        "from tests.app import tasks_daemon as types;"
        f"types.nap.enqueue_many({{'path': {str(record)!r}, 'number': n}} for n in range(300))"
    )
    usual = {"LEASE": 30.0, "KILL_AFTER": 26.0, "STATEMENT_TIMEOUT": 5.0, "RENEW_EVERY": 5.0}
    daemons = [atpd(processes=4, settings=usual, environment=own) for _ in range(2)]
    for daemon in daemons:
        daemon.ready(workers=4)
    run_manage(own_server, "shell", "-v", "0", "-c", enqueue)
    record.wait_for("end", 60)
    processes = [pair for daemon in daemons for pair in daemon.family()]
    own_server.stop("fast")
    stays(lambda: all(is_alive(*pair) for pair in processes), 15, what="every process")
    own_server.start()
    back = datetime.now(UTC)
    for daemon in daemons:
        fact = daemon.wait_for_fact("database_back")
        # Within 2 s, and what a loaded machine adds.
        late = (datetime.fromisoformat(fact["time"]) - back).total_seconds()
        assert late < 2 + 8 * patience.factor()
    left = "SELECT count(*) FROM atp_task"
    wait_for(lambda: asked(own_server, left) == [(0,)], 60, what="the rest")
    charged = "SELECT state, sum(restarts), sum(lost), sum(retries), count(*) FROM atp_instance"
    assert asked(own_server, f"{charged} GROUP BY state") == [("FINISHED", 0, 0, 0, 300)]
    assert set(record.numbers("end").values()) == {1}
    assert [pair for daemon in daemons for pair in daemon.family()] == processes
