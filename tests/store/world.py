"""A queue under test: what enqueues, the daemons that hold, and what must always be true."""

import os
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from atp import states
from atp.models import Daemon, Inputs, Instance, Kind, LogRecord, Node, Response, Task, Type
from atp.payload.codec import Payload
from atp.states import CLAIMED, TERMINAL, Event, Reason, State
from atp.store.facts import DaemonFacts, Scope
from atp.store.values import Move, Registration, Submission

from .internals import ClaimMemory, filelock

# Longer than any test takes on a loaded machine: a lease that is over is made so by the test.
LEASE = 600.0
ONE, TWO, THREE = "store.one", "store.two", "store.three"
SECOND = timedelta(seconds=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
IS_SQLITE = connection.vendor == "sqlite"
needs_row_locks = pytest.mark.skipif(IS_SQLITE, reason="SQLite has no locks of rows")
only_sqlite = pytest.mark.skipif(not IS_SQLITE, reason="only SQLite does this")
only_postgresql = pytest.mark.skipif(IS_SQLITE, reason="only PostgreSQL does this")


def registration(identifier=ONE, **parameters):
    """Return a Registration; what is not given has a plain value."""
    plain = {"timeout": timedelta(minutes=5), "max_restarts": 3, "max_retries": 2}
    plain |= {"backoff": 5 * SECOND, "backoff_max": HOUR, "retention": None, "max_memory": None}
    plain |= {"handler": "somewhere.handler", "serializer": "json"}
    return Registration(**{"identifier": identifier, **plain, **parameters})


def scope(type=None, collection=None):
    """Return the Scope of a lane, of a Type by its identifier, or of everything."""
    return Scope(None if type is None else Type.objects.get(identifier=type), collection)


@dataclass
class Host:
    """A daemon as the store sees it."""

    world: "World"
    types: tuple = (ONE, TWO, THREE)
    name: str = "host"
    uuid: UUID = field(default_factory=uuid4)
    descriptor: int = -1
    memory: ClaimMemory = field(default_factory=ClaimMemory)

    def join(self, *, lease=LEASE, request="", **kwargs):
        lock = ""
        if self.world.store.lock_folder is not None:
            lock = str(self.world.folder / f"{self.uuid}.lock")
            self.descriptor = filelock.acquire_lock(lock)
        known = {"host": self.name, "pid": 1, "version": "1", "types": self.types}
        facts = DaemonFacts(uuid=self.uuid, lock=lock, request=request, **known)
        self.joined = self.world.store.daemons.join(facts, lease=lease, **kwargs)
        return self.joined

    @property
    def row(self):
        return Daemon.objects.filter(uuid=self.uuid).first()

    def claim(self, limit=100, types=None, **more):
        types = types or self.types
        return self.world.store.claims.claim(self.uuid, types, limit, memory=self.memory, **more)

    def record(self, *changes):
        return self.world.store.records.record(list(changes), daemon=self.uuid)

    def move(self, case, *events, **details):
        """Record events of an attempt that must be accepted."""
        assert self.record(*[move_of(case, event, **details) for event in events]) == []

    def holds(self):
        return set(Task.objects.held_by(self.uuid).values_list("pk", flat=True))

    def lose_lease(self):
        """Let its lease be over, as when all its processes are dead."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        Daemon.objects.filter(uuid=self.uuid).update(lease_until=self.world.store.now() - SECOND)

    def close(self):
        if self.descriptor >= 0:
            os.close(self.descriptor)


class World:
    """The database behind a store, with the verbs that tests need in short."""

    def __init__(self, store, folder):
        self.store = store
        self.folder = folder
        self.hosts = []

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        for host in self.hosts:
            host.close()
        if kind is None:
            self.check()

    def host(self, *types, name="host", **kwargs):
        """Return a daemon that has joined."""
        host = Host(self, types or (ONE, TWO, THREE), name)
        self.hosts.append(host)
        host.join(**kwargs)
        return host

    def enqueue(self, count=1, type=ONE, **options):
        """Enqueue ``count`` Instances and return their keys, in order."""
        of = type if isinstance(type, Registration) else registration(type)
        request = Submission(inputs=Payload("json", "{}"), **options)
        return [i.pk for i in self.store.enqueueing.enqueue(of, [request] * count, who="tests")]

    def get(self, key):
        return Instance.objects.select_related("type").get(pk=key)

    def state(self, key):
        return self.get(key).state

    def task(self, key):
        return Task.objects.filter(pk=key).first()

    def log(self, key):
        return list(LogRecord.objects.of_instance(key))

    def events(self, key):
        return [record.event for record in self.log(key) if record.event]

    def as_anyone(self, event, key, **details):
        """Record an event that nobody's hold on the Task is needed for; returns the refused."""
        return self.store.records.record([Move(event=event, instance=key, **details)])

    def bring_to(self, state, host, **options):
        """Return what ``host`` claimed, brought to ``state`` by legal moves."""
        [key] = self.enqueue(**options)
        if state == State.ACCEPTED:
            return Case(key, 0)
        [case] = host.claim()
        path = {
            State.SCHEDULED: [],
            State.RUNNING: [Event.START],
            State.PAUSED: [Event.START, Event.PAUSE],
            State.FINISHED: [Event.START, Event.FINISH],
            State.FAILED: [Event.START, Event.FAIL],
        }[state]
        for event in path:
            host.move(case, event, reason=Reason.ERROR if event == Event.FAIL else "")
        assert self.state(key) == state
        return Case(case.instance, case.number)

    def snapshot(self):
        """Return all that a refused write must leave as it was: not its message and count."""
        rows = {m.__name__: _rows(m) for m in (Instance, Task, Inputs, Response, Type, LogRecord)}
        for row in rows["Type"]:
            del row["late_writes"]
        refusals = (Kind.LATE, Kind.REFUSED)
        rows["LogRecord"] = [row for row in rows["LogRecord"] if row["kind"] not in refusals]
        return rows

    @contextmanager
    def case(self, what):
        """One case of a table: a failure names it, and afterwards the queue is as before it."""
        try:
            with transaction.atomic():
                yield
                self.check()
                transaction.set_rollback(True)
        except BaseException as error:
            error.add_note(f"in the case of {what}")
            raise
        # Nothing is known of what is gone.
        self.store = type(self.store)(self.store.alias)
        for host in self.hosts:
            host.memory = ClaimMemory()

    def check(self):
        """G1 and G6: one Task row for each live Instance, and a history that is legal."""
        tasks = Task.objects.in_bulk()
        records = defaultdict(list)
        for record in LogRecord.objects.transitions().in_order():
            records[record.instance_id].append(record)
        for instance in Instance.objects.all():
            task = tasks.pop(instance.pk, None)
            if instance.state in TERMINAL:
                assert task is None, f"{instance.state}, with a Task"
            else:
                assert task is not None, f"{instance.state}, without a Task"
                assert (task.daemon_id is not None) == (instance.state in CLAIMED)
                assert task.attempt == instance.attempt
                assert task.type_id == instance.type_id
            self._check_history(instance, records[instance.pk])
        assert not tasks
        if Node.objects.exists():
            from . import graphs

            graphs.check()

    @staticmethod
    def _check_history(instance, records):
        state, counters = None, {}
        for record in records:
            row = states.transition(Event(record.event), state)
            assert row is not None, f"{record.event} from {state}"
            state = row.target
            counters |= {name: counters.get(name, 0) + 1 for name in row.counts}
            counters |= dict.fromkeys(row.resets, 0)
            assert record.state == state
            assert record.attempt == counters.get("attempt", 0)
        assert state == instance.state
        for name in ("attempt", "restarts", "retries", "lost"):
            assert getattr(instance, name) == counters.get(name, 0), name


def _rows(model):
    """Return a model's rows as the database has them: it is done often, and nobody converts."""
    table, key = (
        connection.ops.quote_name(n) for n in (model._meta.db_table, model._meta.pk.column)
    )
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY {key}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@dataclass(frozen=True)
class Case:
    """An Instance, and the attempt under which it was claimed."""

    instance: int
    number: int


def move_of(case, event, **details):
    """Return the Move that an attempt makes with this event."""
    return Move(event=event, instance=case.instance, attempt=case.number, **details)


def finish_of(world, case, **details):
    """Return the Move of an attempt that starts and finishes now."""
    now = world.store.now()
    return move_of(case, Event.FINISH, started=now, time=now, **details)


def file_of(path="atp/a", name="a"):
    """Return what a note says of a published file."""
    return {"name": name, "path": path, "content_type": "x/y", "size": 1, "attempt": 1}


def is_anybody_waiting_for_a_lock(*, count=1):
    """Whether at least so many sessions wait for locks."""
    with connection.cursor() as cursor:
        # A transaction sees what it has seen first.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock'"
        )
        return cursor.fetchone()[0] >= count
