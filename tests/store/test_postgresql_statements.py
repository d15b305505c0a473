"""The store for PostgreSQL: statements that are prepared, and those that cannot be (G11, G13)."""

import configparser
import contextlib
from datetime import UTC, datetime

import pytest
from django.db import DatabaseError, connection, connections, transaction

from atp.conf import settings
from atp.models import Instance
from atp.states import Event, State
from atp.store import handover
from atp.store.postgresql import PostgreSQLStore
from atp.store.postgresql.driver import sessions
from atp.store.postgresql.driver.statements import FEW, THRESHOLD
from atp.store.values import Move

from .. import environment
from .world import World

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="that of PostgreSQL"),
    pytest.mark.django_db(transaction=True),
]
OFTEN = THRESHOLD + 3


@pytest.fixture
def world(transactional_db, tmp_path):
    connection.close()  # what was prepared before is gone
    with World(PostgreSQLStore(settings.DATABASE), tmp_path) as world:
        yield world
    connection.close()


def ask(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else None


def prepared():
    """The names of what is prepared on this connection, without the checksums of their texts."""
    found = ask("SELECT name FROM pg_prepared_statements WHERE name LIKE 'atp%'")
    return {name.removeprefix("atp_").rpartition("_")[0] for (name,) in found or ()}


def test_all_statements_and_their_parts_are_installed():
    config = configparser.ConfigParser()
    config.read(environment.ROOT / "setup.cfg")
    package = environment.ROOT / "atp"
    patterns = config["options.package_data"]["atp"].split()
    installed = {path for pattern in patterns for path in package.glob(pattern)}
    statements = set(package.rglob("*.sql"))
    assert any(path.parent.name == "parts" for path in statements)
    assert statements <= installed


def often(call):
    return [call() for _ in range(OFTEN)]


@pytest.fixture(autouse=True)
def _in_a_row(monkeypatch):
    """Nothing that is enqueued may be handed over, however long after another it comes."""
    monkeypatch.setattr(handover, "APART", float("inf"))


def test_a_connection_that_comes_back_from_a_pool_has_its_statements(world):
    """Django's pool gives a connection to one after another, as a new session to ATP."""
    often(world.enqueue)
    for _ in range(2):
        sessions._SESSIONS.pop(connections[settings.DATABASE])
        with transaction.atomic():
            often(world.enqueue)


def test_what_is_handed_over_is_prepared_too(world, monkeypatch):
    monkeypatch.setattr(handover, "APART", 0.0)
    often(world.enqueue)
    assert prepared() == {"enqueue_handing"}


def test_what_is_done_again_and_again_is_prepared(world):
    assert prepared() == set()
    for _ in range(THRESHOLD):
        world.enqueue()
        assert "enqueue_one" not in prepared()
    world.enqueue()
    world.enqueue()
    assert "enqueue_one" in prepared()
    assert Instance.objects.count() == THRESHOLD + 2


def test_a_new_connection_begins_anew(world):
    often(world.enqueue)
    connection.close()
    often(world.enqueue)
    assert "enqueue_one" in prepared()


def test_an_applications_session_keeps_its_settings(world):
    often(world.enqueue)
    assert ask("SHOW plan_cache_mode") == [("auto",)]


def test_many_are_planned_as_many(world):
    """But for claims and what has FINISHED, whose plans are the same for any number."""
    host = world.host()
    for _ in range(OFTEN):
        world.enqueue(FEW + 5)
        claimed = host.claim()
        assert len(claimed) == FEW + 5
    assert "claim" in prepared()
    assert "enqueue" not in prepared()


def test_plans_are_made_anew_after_a_while(world, monkeypatch):
    """What was planned for an empty table is not kept for a full one."""
    often(world.enqueue)
    monkeypatch.setattr(sessions, "KEEP", 0.0)
    often(world.enqueue)
    often(world.host().claim)
    assert {"enqueue_one", "claim"} <= prepared()


@pytest.mark.parametrize("command", ["DISCARD ALL", "DEALLOCATE ALL", "DISCARD PLANS"])
class TestWhatAnApplicationDoesToItsSession:
    """Its connection is its own: what was prepared there may be gone at any time."""

    def test_enqueueing_goes_on(self, world, command):
        often(world.enqueue)
        ask(command)
        often(world.enqueue)
        assert Instance.objects.count() == 2 * OFTEN

    def test_enqueueing_inside_a_transaction_goes_on(self, world, command):
        often(world.enqueue)
        ask(command)
        with transaction.atomic():
            ask("CREATE TABLE kept (n int)")
            world.enqueue()
        assert ask("DROP TABLE kept") is None
        assert Instance.objects.count() == OFTEN + 1

    def test_so_does_a_daemon(self, world, command):
        host = world.host()

        def run():
            world.enqueue()
            [case] = host.claim()
            host.move(case, Event.START)
            host.move(case, Event.FINISH, time=world.store.now())
            world.store.renew(host.uuid, lease=30)
            world.store.outlook(host.types)

        often(run)
        ask(command)
        often(run)
        assert Instance.objects.filter(state=State.FINISHED).count() == 2 * OFTEN


@pytest.mark.parametrize("number", range(1, OFTEN))
def test_a_transaction_that_is_broken_breaks_no_later_one(world, number):
    """Whether it is the first statement or that which prepares: the next is as good as ever."""
    often(world.store.tell)  # that statements can be prepared here is known
    for _ in range(number):
        world.enqueue()
    with contextlib.suppress(DatabaseError), transaction.atomic():
        with pytest.raises(DatabaseError):
            ask("SELECT 1 / 0")
        with pytest.raises(DatabaseError):
            world.enqueue()
    often(world.enqueue)
    assert Instance.objects.count() == number + OFTEN


def test_what_prepares_is_rolled_back(world):
    for _ in range(OFTEN):
        with transaction.atomic():
            world.enqueue()
            transaction.set_rollback(True)
    often(world.enqueue)
    assert Instance.objects.count() == OFTEN


def test_a_table_that_changes_under_it(world):
    """A migration while applications are connected."""
    often(world.enqueue)
    ask("ALTER TABLE atp_instance ADD COLUMN more int")
    try:
        often(world.enqueue)
    finally:
        ask("ALTER TABLE atp_instance DROP COLUMN more")
    often(world.enqueue)
    assert Instance.objects.count() == 3 * OFTEN


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_planned_where_there_is_nothing_does_for_much(world, count):
    """Each row is looked up by an index that says where it is, and no other is walked for it."""
    ask("VACUUM (ANALYZE) atp_instance, atp_inputs, atp_task")
    host = world.host()
    for _ in range(OFTEN):
        world.enqueue(count)
        claimed = host.claim(count)
        for event in (Event.START, Event.FINISH):
            world.store.record([now(event, task) for task in claimed], daemon=host.uuid)
    looked_up = [each for name in planned() for each in lookups(plan_of(name))]
    assert {table for table, _, _ in looked_up} == {"atp_instance", "atp_inputs", "atp_task"}
    for table, index, condition in looked_up:
        wanted = 2 if index == "atp_instance_of_type" else 1
        assert condition.count("= ANY") >= wanted, f"{table} by {index}: {condition}"


def now(event, task):
    return Move(event, task.instance, task.attempt, datetime.now(UTC))


def planned():
    """The names of the prepared statements that change what is claimed."""
    found = ask("SELECT name FROM pg_prepared_statements WHERE name ~ '^atp_(claim|record|finish)'")
    assert len(found) == 3
    return [name for (name,) in found]


def plan_of(name):
    [(count,)] = ask(
        f"SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = '{name}'"
    )
    nothing = ", ".join(["NULL"] * count)
    [(plan,)] = ask(f"EXPLAIN (FORMAT JSON) EXECUTE {name} ({nothing})")
    return plan[0]["Plan"]


def lookups(node):
    """Yield the table, index and condition where rows are looked up by what another step found."""
    # Each with each.
    assert "= ANY (ARRAY[" not in node.get("Join Filter", "")
    condition = node.get("Index Cond", "")
    if "= ANY (ARRAY[" in condition:
        yield node["Relation Name"], node["Index Name"], condition
    for below in node.get("Plans", ()):
        yield from lookups(below)
