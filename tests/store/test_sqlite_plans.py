"""The store for SQLite finds all rows by an index, whatever the planner has been told (G9)."""

import re
from contextlib import contextmanager

import pytest
from django.db import connection

from atp.conf import settings
from atp.models import Task
from atp.states import Event
from atp.store.sqlite import SQLiteStore
from atp.store.sqlite.wakeups.handover import HANDED, TAKERS
from atp.store.values import ResponseData

from .world import ONE, SECOND, TWO, World

pytestmark = pytest.mark.skipif("connection.vendor != 'sqlite'")

VERB = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
# What may be read from end to end: what the statement was given, the recursion's
# queue, and the few daemons.
SHORT = ("SCAN json_each", "SCAN level", "SCAN CONSTANT ROW", "SCAN atp_daemon")
# Tables that hold a row for what somebody has set.
SHORT += ("SCAN atp_gate", "SCAN atp_limit", "SCAN atp_downstream")
# Looked at for one row: the index of graphs that live, and the nodes that are left to fail.
SHORT += ("SCAN atp_graph USING INDEX atp_graph_live", "SCAN atp_failing")
# One row each; of the latter what is in it has steps of its own.
SHORT += ("SCAN pragma_data_version", "SCAN (subquery")


@pytest.fixture
def world(db, tmp_path):
    with World(SQLiteStore(settings.DATABASE), tmp_path) as world:
        yield world


@contextmanager
def explained():
    """Collect the steps of the plans of all statements that are executed, with their text."""
    steps = []

    def explain(execute, sql, parameters, many, context):
        if VERB.match(sql):
            with connection.cursor() as cursor:
                given = parameters[0] if many else parameters
                cursor.cursor.execute(f"EXPLAIN QUERY PLAN {sql}", given)
                steps.extend((row[3], sql) for row in cursor.fetchall())
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(explain):
        yield steps


def work(world, host):
    """Let everything be done that a daemon does all the time."""
    now = world.store.now()
    for type in (ONE, TWO):
        world.enqueue(4, type=type, priority=1, due=now.replace(year=2100))
        world.enqueue(8, type=type)
    with explained() as steps:
        world.enqueue(2)
        claimed = host.claim(12)
        answer = ResponseData(content_type="text/plain", data=b"a", size=1)
        for each in claimed[:6]:
            host.move(each, Event.START)
        host.move(claimed[0], Event.FINISH)
        host.move(claimed[1], Event.RETRY, delay=SECOND)
        host.move(claimed[2], Event.FAIL, reason="ERROR")
        host.move(claimed[3], Event.PAUSE)
        host.move(claimed[4], Event.RELEASE)
        for each in claimed[6:]:
            host.move(each, Event.FINISH, started=now, response=answer)
        host.claim(1)
        world.store.miss()
        world.store.outlook(host.types, daemon=host.uuid)
        with connection.cursor() as cursor:
            cursor.execute(TAKERS, {"type": 1, "collection": "a", "now": "2026"})
            cursor.execute(HANDED.replace(":channel", "%(channel)s"), {"channel": "a"})
    return steps


def told(world, count):
    """Let the planner know how many rows there are, once there are ``count`` Tasks."""
    world.enqueue(count)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


@pytest.mark.parametrize("count", [None, 0, 1, 300])
def test_no_table_is_read_from_end_to_end(world, count):
    """Also if a daemon starts with statistics of an empty queue, or of one that was full then."""
    if count is not None:
        told(world, count)
        Task.objects.update(due_at=world.store.now().replace(year=2100))
    host = world.host()
    steps = work(world, host)
    assert len({sql for _, sql in steps}) > 12
    assert [
        (step, sql) for step, sql in steps if step.startswith("SCAN") and not step.startswith(SHORT)
    ] == []


@pytest.mark.parametrize("count", [None, 1, 300])
def test_a_lane_is_walked_in_the_order_of_its_index(world, count):
    """G8: nothing is sorted, so a claim reads no further than to its limit."""
    host = world.host()
    if count is not None:
        told(world, count)
    of_lanes = [step for step, sql in work(world, host) if "FROM atp_task task INDEXED" in sql]
    assert of_lanes
    assert all("TEMP B-TREE" not in step for step in of_lanes)
    assert any(
        "atp_task_claim (type_id=? AND collection=? AND priority=? AND due_at<?)" in s
        for s in of_lanes
    )
