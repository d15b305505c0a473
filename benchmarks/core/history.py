"""A long history, written straight into the tables: what the store would take hours for.

Most of it FINISHED, some FAILED, and in front of it what is live. It is made to
be unkind to lists: rare values lie deep, and some that are common each never
occur together.
"""

import io
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from uuid import UUID

from .database import set_sequence
from .filling import trust_keys
from .log_column import KIND

# Identifier and share of a thousand; the last has a handful of old Instances.
TYPES = {
    "scene.ingest": 400,
    "scene.thumbnail": 200,
    "scene.calibrate": 120,  # never fails
    "catalogue.index": 90,
    "tile.render": 70,
    "tile.publish": 50,
    "report.build": 30,
    "mail.send": 20,
    "cache.warm": 10,
    "archive.move": 7,
    "archive.check": 3,
}
UNFAILING = "scene.calibrate"
BIGGEST, SECOND = list(TYPES)[:2]
RARE_TYPE, RARE_TYPES = "audit.yearly", 40
# Each of the first two Types has collections of its own.
COLLECTIONS = {
    "scene.ingest": ["sentinel-1", "sentinel-2", "landsat-9"],
    "scene.thumbnail": ["aster", "modis"],
    "": ["alos", "envisat", "ers", "proba", "spot", "terra"],
}
RARE_COLLECTION, RARE_COLLECTIONS = "cryosat", 5
UNCOLLECTED = 0.4
# Of a thousand, like the shares of TYPES.
SHARE_OF_OTHERS = 100
REASONS = {"ERROR": 70, "FATAL": 15, "CANCELLED": 10, "STALE": 1, "MISSED": 4}
NEVER = ("scene.ingest", "MISSED")
RARE_REASON, RARE_REASONS = "DROPPED", 5
ABSENT_REASON = "UPSTREAM"

# Of those that wait, the share that is not due yet.
LATER = 0.02
SPAN = timedelta(days=30)
CHUNK = 20_000


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How many of what: ``ended`` Instances, ``failing`` of which is the share that FAILED.

    The newest ``logged`` have Inputs and LogRecords, one in the middle of the
    history a log of ``longest_log`` records. If there are more ``types`` than those of TYPES, the
    others have one in ten Instances. If ``lanes`` is not 0, the biggest Type has so many.
    """

    ended: int
    failing: float = 0.05
    waiting: int = 0
    claimed: int = 0
    logged: int = 100_000
    longest_log: int = 10_000
    types: int = 0
    lanes: int = 0


@dataclass(frozen=True, kw_only=True)
class Filled:
    """Instances to look for afterwards: that with the longest log, the newest, the oldest."""

    longest: object
    newest: object
    oldest: object


def fill(connection, shape):
    """Write a history of this shape into an empty queue; return what is :class:`Filled`."""
    return _Writer(connection, shape).write()


class _Places:
    """Which Instance is what, by its number: the first has 1, what has ended comes first."""

    def __init__(self, shape):
        self.total = shape.ended + shape.claimed + shape.waiting
        # One in a hundred of those that wait has done so for long.
        self._patient = self._every(shape.ended, shape.waiting // 100, first=5)
        self._ended = shape.ended + len(self._patient)
        self._claimed = self._ended + shape.claimed
        self._unlogged = self.total - shape.logged
        self.longest_log = shape.ended // 2 + 1
        # What is rare lies in the oldest tenth.
        deep = shape.ended // 10
        self.rare_types = self._every(deep, RARE_TYPES, first=1)
        self.rare_reasons = self._every(deep, RARE_REASONS, first=2)
        self.rare_collections = self._every(deep, RARE_COLLECTIONS, first=3)

    @staticmethod
    def _every(length, count, *, first):
        """Return ``count`` numbers up to ``length``, at the same distance from each other."""
        return set(range(first, length, max(length // count, 1))) if count else set()

    def is_waiting(self, number):
        return number > self._claimed or number in self._patient

    def is_claimed(self, number):
        return self._ended < number <= self._claimed

    def has_log(self, number):
        return number > self._unlogged or number == self.longest_log


class _Writer:
    def __init__(self, connection, shape):
        self._connection = connection
        self._shape = shape
        self._places = _Places(shape)
        self._random = random.Random(1)
        more = max(shape.types - len(TYPES) - 1, 0)
        others = {f"other.type-{number}": SHARE_OF_OTHERS / more for number in range(more)}
        self._weights = TYPES | others
        self._collections = dict(COLLECTIONS)
        if shape.lanes:
            self._collections[BIGGEST] = [f"lane-{number}" for number in range(shape.lanes)]
        self._now = datetime.now(UTC).replace(microsecond=0)

    def write(self):
        from atp.models import Inputs, Instance, LogRecord, Task

        self._types = self._make_types()
        self._daemons = self._make_daemons()
        for first in range(1, self._places.total + 1, CHUNK):
            numbers = range(first, min(first + CHUNK, self._places.total + 1))
            rows = [self._instance(number) for number in numbers]
            logged = [row for row in rows if self._places.has_log(row["id"])]
            live = [row for row in rows if row["finished"] is None]
            insert(self._connection, Instance, rows)
            insert(self._connection, Inputs, map(_inputs, logged))
            insert(self._connection, LogRecord, chain.from_iterable(map(self._log, logged)))
            insert(self._connection, Task, map(self._task, live))
        set_sequence(self._connection, Instance)
        newest, oldest = Instance.objects.order_by("-pk"), Instance.objects.order_by("pk")
        return Filled(
            longest=Instance.objects.get(pk=self._places.longest_log),
            newest=newest[0],
            oldest=oldest[0],
        )

    def _make_types(self):
        from atp.models import Type

        made = [
            Type(
                identifier=identifier,
                handler=f"benchmarks.{identifier}",
                max_restarts=3,
                max_retries=0,
                backoff=timedelta(seconds=1),
                backoff_max=timedelta(hours=1),
                registered=self._now,
            )
            for identifier in [*self._weights, RARE_TYPE]
        ]
        return {row.identifier: row.pk for row in Type.objects.bulk_create(made)}

    def _make_daemons(self):
        from atp.models import Daemon

        workers = [
            {"worker": number, "pid": 2000 + number, "type": None, "instance": None, "since": None}
            for number in range(8)
        ]
        made = [
            Daemon(
                uuid=self._uuid(self._now),
                host=f"worker-{number}.example.org",
                pid=1000 + number,
                version="1",
                types=list(self._weights),
                workers=workers,
                lease_until=self._now + timedelta(days=1),
                started=self._now - timedelta(days=1),
                seen=self._now,
            )
            for number in range(4)
        ]
        return [row.pk for row in Daemon.objects.bulk_create(made)]

    def _instance(self, number):
        places = self._places
        type = RARE_TYPE if number in places.rare_types else self._chosen(self._weights)
        created = self._now - SPAN + number * (SPAN / places.total)
        row = {
            "id": number,
            "type_id": self._types[type],
            "uuid": self._uuid(created),
            "identifier": None,
            "state": "ACCEPTED",
            "reason": "",
            "collection": self._collection(number, type),
            "priority": self._random.choice([0, 0, 0, 5, 10]),
            "attempt": 0,
            "restarts": 0,
            "retries": 0,
            "lost": 0,
            "progress": None,
            "progress_message": "",
            "start_before": None,
            "created_by": "",
            "created": created,
            "started": None,
            "finished": None,
        }
        if number % 5 == 0 or number == places.longest_log:
            row["identifier"] = f"request-{number}"
        if places.is_waiting(number):
            return row
        row |= {"attempt": 1, "started": created + timedelta(seconds=1)}
        if places.is_claimed(number):
            return row | {"state": self._random.choice(["SCHEDULED", "RUNNING", "PAUSED"])}
        row["finished"] = row["started"] + timedelta(seconds=self._random.expovariate(1 / 60))
        reason = RARE_REASON if number in places.rare_reasons else self._reason(type)
        return row | {"state": "FAILED" if reason else "FINISHED", "reason": reason}

    def _collection(self, number, type):
        if number in self._places.rare_collections:
            return RARE_COLLECTION
        if self._random.random() < UNCOLLECTED:
            return ""
        return self._random.choice(self._collections.get(type, self._collections[""]))

    def _reason(self, type):
        """Return why an Instance of this Type failed, or that it did not."""
        if type == UNFAILING or self._random.random() >= self._shape.failing:
            return ""
        reason = self._chosen(REASONS)
        return "ERROR" if (type, reason) == NEVER else reason

    def _chosen(self, weights):
        [found] = self._random.choices(list(weights), weights.values())
        return found

    def _uuid(self, time):
        """A version 7 UUID of a time."""
        value = int(time.timestamp() * 1000) << 80 | self._random.getrandbits(80)
        value = value & ~(0xF << 76) | 0x7 << 76
        return UUID(int=value & ~(0x3 << 62) | 0x2 << 62)

    def _task(self, row):
        is_later = self._random.random() < LATER
        return {
            "instance_id": row["id"],
            "type_id": row["type_id"],
            "collection": row["collection"],
            "priority": row["priority"],
            "due_at": row["created"] + (SPAN * 2 if is_later else timedelta(0)),
            "start_before": None,
            "daemon_id": self._random.choice(self._daemons) if row["attempt"] else None,
            "attempt": row["attempt"],
            "request": "",
        }

    def _log(self, row):
        is_longest = row["id"] == self._places.longest_log
        for number in range(self._shape.longest_log if is_longest else 4):
            yield {
                "instance_id": row["id"],
                "subject": "",
                "time": row["created"] + timedelta(milliseconds=number),
                KIND: "enqueue" if number == 0 else "message",
                "state": row["state"],
                "attempt": row["attempt"],
                "level": 20,
                "who": "",
                "message": f"step {number}",
            }


def _inputs(row):
    data = f'{{"path":"scenes/{row["id"]}.tif","azimuth":315.0}}'
    return {"instance_id": row["id"], "format": "json", "data": data}


def insert(connection, model, rows):
    """Insert rows, dicts by column, in the quickest way that the database has."""
    rows = list(rows)
    if rows:
        columns = list(rows[0])
        values = ([row[column] for column in columns] for row in rows)
        write = _copied if connection.vendor == "postgresql" else _inserted
        write(connection, model._meta.db_table, columns, values)


def _copied(connection, table, columns, values):
    from django.db import transaction

    text = "".join("\t".join(map(_as_text, row)) + "\n" for row in values)
    statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
    with transaction.atomic(), connection.cursor() as cursor:
        trust_keys(connection, cursor)
        if hasattr(cursor.cursor, "copy_expert"):
            cursor.cursor.copy_expert(statement, io.StringIO(text))
        else:
            with cursor.cursor.copy(statement) as copy:
                copy.write(text)


def _as_text(value):
    return r"\N" if value is None else str(value)


def _inserted(connection, table, columns, values):
    from django.db import transaction

    places = ", ".join(["?"] * len(columns))
    statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"
    rows = [[_as_stored(value) for value in row] for row in values]
    with transaction.atomic():
        connection.connection.executemany(statement, rows)


def _as_stored(value):
    """As Django writes it into SQLite."""
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, datetime):
        return str(value.replace(tzinfo=None))
    return value
