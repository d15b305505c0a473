"""The claim order is said once, as data; whatever repeats it claims in the same order (G8)."""

import random
import re
from datetime import timedelta
from importlib.resources import files

import pytest
from django.db import connection

from atp.conf import settings
from atp.models import Task
from atp.rows.querysets import CLAIMING_ORDER, LANES_ORDER
from atp.store import get_store
from atp.store.postgresql import claims
from atp.store.postgresql.driver.statements import statement
from atp.store.sorting import RowOrder, in_sql

from .world import ONE, World, scope

COUNT = 60


@pytest.fixture
def queue(world):
    """Tasks of one lane with random priorities and due times, many of them the same."""
    chance, now = random.Random(18), world.store.now()
    for _ in range(COUNT):
        due = now - timedelta(seconds=chance.randrange(60, 64))
        world.enqueue(priority=chance.randrange(-1, 3), due=due)
    return world


def in_order():
    """The keys of what waits, in the order that is said."""
    return list(Task.objects.waiting().order_by(*CLAIMING_ORDER).values_list("pk", flat=True))


def claimed_by(host, *limits, **more):
    """The keys of what is claimed in one claim for each limit, until nothing is left."""
    keys = []
    while claimed := host.claim(limits[len(keys) % len(limits)], **more):
        keys += [task.instance for task in claimed]
    return keys


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("limits", [(1,), (7,), (COUNT,), (2, 30, 1, 5)], ids=str)
def test_claims(queue, limits, careful):
    expected = in_order()
    assert claimed_by(queue.host(), *limits, careful=careful) == expected


@pytest.mark.parametrize("limits", [(1,), (7,), (COUNT,)], ids=str)
def test_claims_of_what_is_limited(queue, limits):
    expected = in_order()
    queue.store.limit(scope(ONE), max_running=COUNT)
    assert claimed_by(queue.host(), *limits, free=COUNT) == expected


def test_the_first_that_is_due_in_a_lane(queue):
    type_id = Task.objects.values_list("type_id", flat=True)[0]
    host = queue.host()
    while waiting := in_order():
        closed = queue.store._closed(queue.store.now())
        [(_, _, priority)] = queue.store.due_lanes([type_id], closed, queue.store.now(), 10)
        assert priority == Task.objects.get(pk=waiting[0]).priority
        host.claim(9)


def test_the_index_on_what_waits():
    [index] = [index for index in Task._meta.indexes if index.name == "atp_task_claim"]
    names = [name.removesuffix("_id") for name in LANES_ORDER]
    assert [_name(expression) for expression in index.expressions] == names


def _name(expression):
    # F("priority").desc() is about an F, and F("due_at") is one.
    is_descending = getattr(expression, "descending", False)
    return "-" * is_descending + getattr(expression, "expression", expression).name


def test_rows_in_memory():
    chance = random.Random(4)
    rows = [tuple(chance.randrange(3) for _ in range(4)) for _ in range(200)]
    expected = sorted(rows, key=lambda row: (row[3], -row[1], row[0], row[2]))
    columns = {"place": 3, "priority": 1, "due_at": 0, "instance_id": 2}
    RowOrder(("place", *CLAIMING_ORDER), columns).sort(rows)
    assert rows == expected


def test_in_the_words_of_sql():
    assert in_sql(CLAIMING_ORDER) == "priority DESC, due_at, instance_id"
    assert in_sql(LANES_ORDER[:3], "task.") == "task.type_id, task.collection, task.priority DESC"


def _statements():
    folder = files("atp.store.postgresql").joinpath("sql")
    for path in [*folder.iterdir(), *folder.joinpath("parts").iterdir()]:
        if path.name.endswith(".sql"):
            yield path.name, path.read_text().splitlines()


@pytest.mark.parametrize("lines", [pytest.param(lines, id=name) for name, lines in _statements()])
def test_who_repeats_it_names_it(lines):
    """At the head, before the first line that is no comment."""
    body = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    if any(re.search(r"ORDER BY .*(priority|due_at)", line) for line in lines):
        assert "_ORDER of" in "\n".join(lines[:body])


@pytest.mark.skipif(connection.vendor != "postgresql", reason="the statement is PostgreSQL's")
def test_a_claim_can_do_without_its_shortcut(db, tmp_path, monkeypatch):
    """Without the lines that are "only with ends" the statement claims the same."""
    fixed = frozenset({("careful", None), ("ends", None)})
    with World(type(get_store())(settings.DATABASE), tmp_path) as world:
        for number in range(COUNT):
            world.enqueue(priority=number % 3, collection=f"lane {number % 4}")
        host, taken = world.host(), []
        assert "floor" not in statement("claim", fixed).text.partition("level (")[2]
        monkeypatch.setattr(claims, "_PLAIN", fixed)
        while claimed := host.claim(7):
            taken += claimed
    assert len(taken) == COUNT
    for number in range(4):
        lane = [t for t in taken if t.collection == f"lane {number}"]
        assert lane == sorted(lane, key=lambda task: (-task.priority, task.instance))
