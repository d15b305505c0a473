"""The store for PostgreSQL: what hooks cost, and that nothing is paid for where there are none."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from atp.conf import settings
from atp.states import Event
from atp.store.postgresql import PostgreSQLStore
from atp.store.postgresql.driver.statements import statement
from atp.store.values import Move

from .hooks import HOOKED, hooked
from .world import ONE, World

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="that of PostgreSQL"),
]


@pytest.fixture
def world(transactional_db, tmp_path):
    with World(PostgreSQLStore(settings.DATABASE), tmp_path) as world:
        yield world


def statements(call):
    """Return the statements of a call that read or write tables of the queue."""
    with CaptureQueriesContext(connection) as captured:
        call()
    found = [query["sql"] for query in captured.captured_queries]
    prepares = "PREPARE", "SELECT FROM pg_prepared_statements"
    return [sql for sql in found if "atp_" in sql and not sql.startswith(prepares)]


def end(world, type, of, count=5):
    """Let so many Instances of a Type end in a batch; returns the statements of that."""
    host = world.host(type)
    found = []
    for _ in range(2):
        world.enqueue(count, type=of)
        now = world.store.now()
        moves = [
            Move(Event.FINISH, case.instance, case.attempt, started=now, time=now)
            for case in host.claim()
        ]
        found = statements(lambda moves=moves: host.record(*moves))
    return found


def test_an_end_without_hooks_is_one_statement(world):
    assert len(end(world, ONE, ONE)) == 1


def test_an_enqueue_without_hooks_is_one_statement(world):
    world.enqueue()
    [sql] = statements(world.enqueue)
    assert "waits" not in sql


@pytest.mark.parametrize("count", [20, 200])
def test_a_batch_with_hooks_is_seven_statements_however_many_end(world, count):
    """What ends, the ends, what follows, the Types of the hooks, the hooks, a wake-up, the log."""
    assert len(end(world, HOOKED, hooked(), count)) == 7


@pytest.mark.parametrize("name", ["finish", "record"])
def test_the_statement_of_what_has_no_hooks_says_nothing_of_them(name):
    alone = statement(name, frozenset({("nodes", None), ("hooked", None)}))
    assert "waits < 0" not in alone.text
    assert "waits IS NULL" in alone.text
