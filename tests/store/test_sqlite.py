"""The store for SQLite: what it knows without looking, its plans, names and values."""

import re
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import override_settings

from atp.conf import settings
from atp.exceptions import LeaseLost
from atp.models import Daemon, Inputs, Instance, LogRecord, Task
from atp.states import Event, State
from atp.store.values import Move, ResponseData

from ..helpers import Thread
from .broken import execute
from .ends import make_late
from .internals import HANDED, TAKERS, Known, ORMStore, as_text, known, sqlite_vendor
from .world import HOUR, ONE, SECOND, TWO, World, only_sqlite, registration, scope

pytestmark = only_sqlite


@pytest.fixture
def knower(world, monkeypatch):
    monkeypatch.setattr(known, "SLOW", 0.0)
    # For the whole test, however quick the look was.
    monkeypatch.setattr(known, "TIMES", 1e9)
    monkeypatch.setattr(known, "AGAIN", 1e9)
    return world.host()


def instances(claimed):
    return [each.instance for each in claimed]


def test_they_go_on_in_order_and_others_are_found_where_those_do_not_suffice(world, knower):
    """G8: by priority, although nobody has looked which there are."""
    last, first = world.enqueue(6), world.enqueue(6, priority=5)
    taken = instances(knower.claim(3))
    assert knower.memory.shortcut(Known).lanes(3)
    now = world.enqueue(priority=9)
    [other] = world.enqueue(type=TWO)
    for _ in range(3):
        taken += instances(knower.claim(3))
    assert taken == (first[:3] + now + first[3:] + last)[:12]
    assert set(instances(knower.claim(3))) == {last[-1], other}


def test_a_claim_during_which_the_shortcut_ends_finds_what_is_due(world, knower, monkeypatch):
    """G9: it may end between the look before the transaction and the claim within it."""
    world.enqueue(6)
    knower.claim(2)
    asked, lanes = [], Known.lanes

    def only_once(self, limit):
        asked.append(limit)
        return lanes(self, limit) if len(asked) == 1 else []

    monkeypatch.setattr(Known, "lanes", only_once)
    assert len(knower.claim(2)) == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("what", ["shut", "gone", "late"])
def test_what_has_changed_since_the_look_counts(world, host, monkeypatch, what):
    """G6, G8, G9: a gate is shut, the daemon's row is gone, or the first is late by then."""
    key, other = world.enqueue(2)
    change = {
        "shut": lambda: world.store.control.shut(scope(ONE), "hold"),
        "gone": lambda: Daemon.objects.filter(uuid=host.uuid).delete(),
        "late": lambda: make_late(world, key),
    }
    atomic = world.store.atomic

    def change_before_the_lock():
        monkeypatch.setattr(world.store, "atomic", atomic)
        Thread(change[what]).result()
        return atomic()

    monkeypatch.setattr(world.store, "atomic", change_before_the_lock)
    with pytest.raises(LeaseLost) if what == "gone" else nullcontext():
        assert instances(host.claim()) == ([other] if what == "late" else [])
    assert world.get(key).reason == ("MISSED" if what == "late" else "")
    assert (world.state(key) == State.ACCEPTED) == (what != "late")


VERB = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b")
# What may be read from end to end: what the statement was given, a row or few, and tables that
# hold what somebody has set, or a row for each lost daemon. What is in a subquery has steps of its
# own.
SHORT = (
    *("SCAN json_each", "SCAN level", "SCAN CONSTANT ROW", "SCAN pragma_data_version"),
    *("SCAN atp_daemon", "SCAN atp_gate", "SCAN atp_limit", "SCAN atp_downstream"),
    *("SCAN atp_graph USING INDEX atp_graph_live", "SCAN atp_failing", "SCAN atp_uncounted"),
    "SCAN (subquery",
)


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
        ends = [Event.FINISH, Event.RETRY, Event.FAIL, Event.PAUSE, Event.RELEASE]
        for each, event in zip(claimed[:5], ends, strict=True):
            delay = SECOND if event == Event.RETRY else None
            host.move(each, Event.START)
            host.move(each, event, delay=delay, reason="ERROR" if event == Event.FAIL else "")
        host.move(claimed[5], Event.START)
        for each in claimed[6:]:
            host.move(each, Event.FINISH, started=now, response=answer)
        host.claim(1)
        world.store.claims.miss()
        world.store.daemons.outlook(host.types, daemon=host.uuid)
        with connection.cursor() as cursor:
            cursor.execute(TAKERS, {"type": 1, "collection": "a", "now": "2026"})
            cursor.execute(HANDED.replace(":channel", "%(channel)s"), {"channel": "a"})
    return steps


@pytest.mark.parametrize("count", [None, 0, 300])
def test_no_table_is_read_from_end_to_end_and_nothing_is_sorted(world, count):
    """G8: a claim reads no further than to its limit, as it walks in the order of an index.

    Also if a daemon starts with statistics of an empty queue, or of one that was full then.
    """
    if count is not None:
        world.enqueue(count)
        execute("ANALYZE")
        Task.objects.update(due_at=world.store.now().replace(year=2100))
    host = world.host()
    steps = work(world, host)
    assert len({sql for _, sql in steps}) > 12
    scans = [(step, sql) for step, sql in steps if step.startswith("SCAN")]
    assert [(step, sql) for step, sql in scans if not step.startswith(SHORT)] == []
    of_lanes = [step for step, sql in steps if "FROM atp_task task INDEXED" in sql]
    assert of_lanes
    assert all("TEMP B-TREE" not in step for step in of_lanes)
    wanted = "atp_task_claim (type_id=? AND collection=? AND priority=? AND due_at<?)"
    assert any(wanted in step for step in of_lanes)


def test_locks_lie_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own queue.sqlite3"
    path.touch()
    quoted = str(path).replace(" ", "%20")
    beside = "file:own%20queue.sqlite3?mode=rw&cache=private"
    found = path.stat()
    for given in (str(path), path.name, f"file:{path}", f"file://{quoted}?mode=rw", beside):
        connection = SimpleNamespace(settings_dict={"NAME": given})
        assert sqlite_vendor.lock_folder(connection) == tmp_path / "own queue.sqlite3-atpd", given
        assert sqlite_vendor.file_id(connection) == (found.st_dev, found.st_ino), given


VIENNA = ZoneInfo("Europe/Vienna")
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
TIMES = [
    NOON,
    NOON.replace(microsecond=120),
    NOON.replace(year=1, tzinfo=timezone(timedelta(hours=-5))),
    datetime(2026, 10, 25, 2, 30, tzinfo=VIENNA, fold=1),
]


def test_times_as_the_field_writes_them():
    field = Instance._meta.get_field("created")
    for time in TIMES:
        assert as_text(time) == field.get_db_prep_value(time, connection)


@pytest.mark.parametrize("use_tz", [True, False])
def test_rows_are_those_of_the_portable_store(world, use_tz, monkeypatch):
    """A life that one of them writes reads like that by the other, to the byte."""
    monkeypatch.setattr(ORMStore, "now", lambda store: NOON)
    with override_settings(USE_TZ=use_tz, TIME_ZONE="Europe/Vienna"):
        ours, theirs = (
            life(World(store, world.folder), world.host())
            for store in (world.store, ORMStore(settings.DATABASE))
        )
    assert ours == theirs


def life(world, host):
    """Let three Instances live; returns what was claimed, and all rows about them."""
    of = registration(timeout=timedelta(seconds=1, microseconds=5))
    times = {"due": NOON, "start_before": TIMES[3]}
    keys = world.enqueue(3, type=of, collection="esa", priority=-3, created_by="ann", **times)
    claimed = world.store.claims.claim(host.uuid, host.types, 3)
    assert [each.instance for each in claimed] == keys
    shared = {"started": TIMES[0], "time": TIMES[1], "who": "worker"}
    ends = [
        Move(event=Event.FINISH, instance=keys[0], attempt=1, **shared),
        Move(event=Event.RETRY, instance=keys[1], attempt=1, delay=HOUR, **shared),
    ]
    assert world.store.records.record(ends, daemon=host.uuid) == []
    rows = [rows_of(model, keys) for model in (Instance, Task, LogRecord, Inputs)]
    host.move(claimed[2], Event.START, Event.FINISH)
    Task.objects.filter(pk__in=keys).update(due_at=NOON.replace(year=2100))
    return rows, [(each.parameters, each.time, each.priority) for each in claimed]


def rows_of(model, keys):
    """The rows about these Instances with the kinds of their values; what is random is left out."""
    of_instance = "id" if model is Instance else "instance_id"
    names = [field.column for field in model._meta.concrete_fields]
    names = [name for name in names if name not in ("id", "instance_id", "uuid", "daemon_id")]
    # Put together, so that the driver converts nothing.
    columns = ", ".join(f"{name} || ':' || typeof({name})" for name in names)
    statement = (
        f"SELECT {columns} FROM {model._meta.db_table} "
        f"WHERE {of_instance} BETWEEN {keys[0]} AND {keys[-1]} ORDER BY {model._meta.pk.column}"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def test_keys_go_on_where_others_have_left_off(world):
    """This store gives out the keys of Instances itself."""
    portable = World(ORMStore(settings.DATABASE), world.folder)
    [first], [second], [third] = world.enqueue(), portable.enqueue(), world.enqueue()
    assert [second, third] == [first + 1, first + 2]
    world.as_anyone(Event.FAIL, third, reason="CANCELLED")
    world.store.removal.purge(instances=[third])
    [fourth] = world.enqueue()
    assert fourth == third + 1, "no key comes twice"
    assert portable.enqueue() == [fourth + 1]
