"""A scan walks along indexes: each of its questions has one. docs/check.md has its cost."""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from atp.store.findings import NOWHERE, Cursor
from atp.store.postgresql.driver.statements import PLANNING

from .broken import age, settle
from .world import ONE, scope

# The first or the last of a table's own order is no walk, although SQLite calls it a scan.
FIRST = r"ORDER BY 1 DESC LIMIT 1( OFFSET 5)?$"


@pytest.fixture
def walker(world, monkeypatch):
    """The keys of what waits for tomorrow, an idle daemon, and the session of a daemon."""
    monkeypatch.setattr("atp.store.common.scan.SPAN", 5)
    settle(world.host(ONE))
    due = world.store.now() + timedelta(days=1)
    keys = [
        key
        for n in range(3)
        for name in ("", "a")
        for key in world.enqueue(5, due=due, priority=n, collection=name)
    ]
    held = world.enqueue(5, collection="held")
    age(*held)
    world.store.shut(scope(ONE, "held"), "hold")
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            for name, value in PLANNING.items():
                cursor.execute(f"SET LOCAL {name} = {value}")
    return keys


@pytest.mark.parametrize("part", ["nothing", "newest", "middle"])
def test_no_table_is_read_from_end_to_end(world, walker, part):
    """G9: neither what waits nor what has ended is in its way."""
    middle = Cursor(task=walker[15], instance=walker[15])
    cursor = {"nothing": NOWHERE, "newest": None, "middle": middle}[part]
    with CaptureQueriesContext(connection) as asked:
        assert world.store.scan(cursor, repair=False).findings == ()
    for query in asked.captured_queries:
        sql = query["sql"]
        if sql.startswith("SELECT") and "clock_timestamp" not in sql:
            plan = explained(sql)
            found = re.search(r"(Seq Scan on|SCAN) atp_(task|instance)\b(?!.*USING)", plan)
            assert not found or re.search(FIRST, sql), f"{sql}\n{plan}"


def explained(sql):
    words = "EXPLAIN" if connection.vendor == "postgresql" else "EXPLAIN QUERY PLAN"
    with connection.cursor() as cursor:
        cursor.execute(f"{words} {sql}")
        return "\n".join(str(row[-1]) for row in cursor.fetchall())
