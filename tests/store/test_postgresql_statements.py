"""The store for PostgreSQL: statements that are prepared, and those that cannot be (G11, G13)."""

import configparser
import contextlib
from datetime import UTC, datetime

import pytest
from django.db import DatabaseError, connection, transaction

from atp.models import Instance
from atp.states import Event, State

from .. import environment
from .internals import THRESHOLD, enqueueing, sessions
from .world import move_of, only_postgresql

pytestmark = [only_postgresql, pytest.mark.django_db(transaction=True)]
OFTEN = THRESHOLD + 3


def ask(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else None


def prepared():
    """The names of what is prepared on this connection, without the checksums of their texts."""
    found = ask("SELECT name FROM pg_prepared_statements WHERE name LIKE 'atp%'")
    return {name.removeprefix("atp_").rpartition("_")[0] for (name,) in found or ()}


def test_all_statements_are_installed():
    config = configparser.ConfigParser()
    config.read(environment.ROOT / "setup.cfg")
    package = environment.ROOT / "atp"
    patterns = config["options.package_data"]["atp"].split()
    installed = {path for pattern in patterns for path in package.glob(pattern)}
    assert set(package.rglob("*.sql")) <= installed


def often(call):
    return [call() for _ in range(OFTEN)]


@pytest.fixture(autouse=True)
def _in_a_row(monkeypatch, world):
    """Nothing that is enqueued may be handed over, however long after another it comes."""
    monkeypatch.setattr(enqueueing, "APART", float("inf"))
    connection.close()  # what was prepared before is gone
    yield
    connection.close()


def test_what_is_done_again_and_again_is_prepared(world):
    """Also where what prepares was rolled back; an application's session keeps its settings."""
    assert prepared() == set()
    for _ in range(THRESHOLD):
        world.enqueue()
        assert "enqueue_one_plain" not in prepared()
    for _ in range(2):
        with transaction.atomic():
            world.enqueue()
            transaction.set_rollback(True)
    often(world.enqueue)
    assert "enqueue_one_plain" in prepared()
    assert Instance.objects.count() == THRESHOLD + OFTEN
    assert ask("SHOW plan_cache_mode") == [("auto",)]


def test_plans_are_made_anew_after_a_while(world, monkeypatch):
    """What was planned for an empty table is not kept for a full one."""
    often(world.enqueue)
    monkeypatch.setattr(sessions, "KEEP", 0.0)
    often(world.enqueue)
    often(world.host().claim)
    assert {"enqueue_one_plain", "claim"} <= prepared()


@pytest.mark.parametrize("command", ["DISCARD ALL", "DEALLOCATE ALL", "DISCARD PLANS"])
def test_what_an_application_does_to_its_session_stops_nothing(world, host, command):
    """Its connection is its own: what was prepared there may be gone at any time."""

    def run():
        world.enqueue()
        [case] = host.claim()
        host.move(case, Event.START)
        host.move(case, Event.FINISH, time=world.store.now())
        world.store.daemons.renew(host.uuid, lease=30)
        world.store.daemons.outlook(host.types)

    often(run)
    ask(command)
    with transaction.atomic():
        ask("CREATE TABLE kept (n int)")
        world.enqueue()
    assert ask("DROP TABLE kept") is None
    [case] = host.claim()
    host.move(case, Event.START, Event.FINISH)
    ask(command)
    often(run)
    assert Instance.objects.filter(state=State.FINISHED).count() == 2 * OFTEN + 1


@pytest.mark.parametrize("number", [1, THRESHOLD, THRESHOLD + 1])
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


def test_what_is_planned_where_there_is_nothing_does_for_much(world):
    """Each row is looked up by an index that says where it is, and no other is walked for it."""
    ask("VACUUM (ANALYZE) atp_instance, atp_inputs, atp_task")
    host = world.host()
    for _ in range(OFTEN):
        world.enqueue(2)
        claimed = host.claim(2)
        for event in (Event.START, Event.FINISH):
            now = datetime.now(UTC)
            host.record(*[move_of(task, event, time=now) for task in claimed])
    looked_up = [each for plan in plans() for each in lookups(plan)]
    assert {table for table, _, _ in looked_up} == {"atp_instance", "atp_inputs", "atp_task"}
    for table, index, condition in looked_up:
        wanted = 2 if index == "atp_instance_of_type" else 1
        assert condition.count("= ANY") >= wanted, f"{table} by {index}: {condition}"


def plans():
    """Yield the plans of the prepared statements that change what is claimed."""
    found = ask(
        "SELECT name, cardinality(parameter_types) FROM pg_prepared_statements "
        "WHERE name ~ '^atp_(claim|record|finish)'"
    )
    assert len(found) == 3
    for name, count in found:
        nothing = ", ".join(["NULL"] * count)
        [(plan,)] = ask(f"EXPLAIN (FORMAT JSON) EXECUTE {name} ({nothing})")
        yield plan[0]["Plan"]


def lookups(node):
    """Yield the table, index and condition where rows are looked up by what another step found."""
    # Each with each.
    assert "= ANY (ARRAY[" not in node.get("Join Filter", "")
    condition = node.get("Index Cond", "")
    if "= ANY (ARRAY[" in condition:
        yield node["Relation Name"], node["Index Name"], condition
    for below in node.get("Plans", ()):
        yield from lookups(below)


def test_a_guest_leaves_no_trace(world, host):
    """As the testing kit is one: a daemon has its statements planned in its own way."""
    world.enqueue()
    ask("SET enable_seqscan = on")
    with transaction.atomic():
        with world.store.rehearsals.as_guest():
            assert host.claim()
            assert ask("SHOW enable_seqscan") == [("off",)]
        assert ask("SHOW enable_seqscan") == [("on",)]
    assert ask("SHOW enable_seqscan") == [("on",)]
