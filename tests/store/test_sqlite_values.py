"""The store for SQLite writes and reads values as Django does."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import override_settings

from atp.conf import settings
from atp.models import Inputs, Instance, LogRecord, Task
from atp.states import Event
from atp.store.common import ORMStore
from atp.store.sqlite import SQLiteStore
from atp.store.sqlite.base import as_text
from atp.store.values import Move

from .world import World, registration

pytestmark = pytest.mark.skipif("connection.vendor != 'sqlite'")

VIENNA = ZoneInfo("Europe/Vienna")
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
TIMES = [
    NOON,
    NOON.replace(microsecond=120),
    NOON.replace(year=1, tzinfo=timezone(timedelta(hours=-5))),
    datetime(2026, 10, 25, 2, 30, tzinfo=VIENNA, fold=1),
]


@pytest.fixture
def world(db, tmp_path):
    with World(SQLiteStore(settings.DATABASE), tmp_path) as world:
        yield world


@pytest.mark.parametrize("time", TIMES, ids=str)
def test_times_as_the_field_writes_them(time):
    field = Instance._meta.get_field("created")
    assert as_text(time) == field.get_db_prep_value(time, connection)


@pytest.mark.parametrize("use_tz", [True, False])
def test_rows_are_those_of_the_portable_store(world, use_tz, monkeypatch):
    """A life that one of them writes reads like that by the other, to the byte."""
    monkeypatch.setattr(ORMStore, "now", lambda store: NOON)
    with override_settings(USE_TZ=use_tz, TIME_ZONE="Europe/Vienna"):
        lives = [
            life(World(store, world.folder), world.host())
            for store in (world.store, ORMStore(settings.DATABASE))
        ]
    assert lives[0] == lives[1]


def life(world, host):
    """Let three Instances live; returns what was claimed, and all rows that are about them."""
    of = registration(timeout=timedelta(seconds=1, microseconds=5))
    times = {"due": NOON, "start_before": TIMES[3]}
    keys = world.enqueue(3, type=of, collection="esa", priority=-3, created_by="ann", **times)
    claimed = world.store.claim(host.uuid, host.types, 3)
    assert [each.instance for each in claimed] == keys
    shared = {"started": TIMES[0], "time": TIMES[1], "who": "worker"}
    ends = [
        Move(event=Event.FINISH, instance=keys[0], attempt=1, **shared),
        Move(event=Event.RETRY, instance=keys[1], attempt=1, delay=timedelta(hours=1), **shared),
    ]
    assert world.store.record(ends, daemon=host.uuid) == []
    [still_held] = [claimed[2]]
    rows = [rows_of(model, keys) for model in (Instance, Task, LogRecord, Inputs)]
    host.move(still_held, Event.START, Event.FINISH)
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


def test_a_uuid_is_read_as_it_was_made(world):
    [key] = world.enqueue()
    [claimed] = world.host().claim()
    instance = world.get(key)
    assert claimed.name == str(instance.uuid)
    assert claimed.uuid == instance.uuid


def test_keys_go_on_where_others_have_left_off(world):
    """This store gives out the keys of Instances itself."""
    portable = World(ORMStore(settings.DATABASE), world.folder)
    [first], [second], [third] = world.enqueue(), portable.enqueue(), world.enqueue()
    assert [second, third] == [first + 1, first + 2]
    world.as_anyone(Event.FAIL, third, reason="CANCELLED")
    world.store.purge(instances=[third])
    [fourth] = world.enqueue()
    assert fourth == third + 1, "no key comes twice"
    assert portable.enqueue() == [fourth + 1]
