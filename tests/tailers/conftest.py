"""Fixtures that declare tailers and remove them after the test."""

from contextlib import contextmanager

import pytest

from atp import tailer, task_type
from atp.operations.registry import registry
from atp.schedules.declaring import declared_schedules as schedules
from atp.sources import Reader, Record, Source
from atp.sources import base as sources
from atp.store.values import CursorMove
from atp.tailers.tailer import Reading, declared

from . import servers


class Numbers(Source):
    """A source in memory that keeps its records; a position is the number of records read.

    Its reader returns ``notes``, and ``jump`` until the cursor has moved.
    """

    def __init__(self, *records):
        self.records, self.notes, self.jump = list(records), (), None

    def __str__(self):
        return "numbers"

    @contextmanager
    def open(self, positions):
        yield _Opened(self, positions)


class _Opened(Reader):
    def __init__(self, source, positions):
        self._source, self._begin = source, positions.get("a")
        self._next = int(self._begin or 0)

    def jumps(self):
        return [] if self._source.jump is None else [self._source.jump]

    def jumped(self):
        self._source.jump = None

    def notes(self):
        return self._source.notes

    def read(self, limit):
        found = self._source.records[self._next : self._next + limit]
        first, self._next = self._next, self._next + len(found)
        return [
            Record(shard="a", position=str(first + number + 1), data=data)
            for number, data in enumerate(found)
        ]

    def moves(self, records):
        return [CursorMove(shard="a", before=self._begin, after=records[-1].position)]

    def settled(self, records):
        self._begin = records[-1].position

    def behind(self):
        return max(0, len(self._source.records) - int(self._begin or 0))


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    monkeypatch.setattr(registry, "_runs", dict(registry._runs))
    monkeypatch.setattr(schedules, "_specs", dict(schedules._specs))
    monkeypatch.setattr(declared, "_tailers", dict(declared._tailers))
    monkeypatch.setattr(sources, "declared", dict(sources.declared))


@pytest.fixture(scope="session")
def redis():
    with servers.valkey() as client:
        yield client


@pytest.fixture(scope="session")
def broker():
    return servers.Broker()


@pytest.fixture
def work():
    """A Type whose input is the data of a record."""

    @task_type("tests.tailed")
    def tailed(context, *, data: str):
        return data

    return tailed


@pytest.fixture
def declare(work):
    """Declare a tailer; by default its function makes one call for each record."""

    def make(source, function=None, **parameters):
        def of_data(record):
            return work.call(data=record.text())

        return tailer("tests.tailer", source, **parameters)(function or of_data)

    return make


@pytest.fixture
def read(db, atp):
    """A function that reads a tailer's source once, as an attempt does, and returns its counts."""

    def make(tailer, restarts=0, **given):
        context = atp.context(tailer.type, **given)
        context._attempt.restarts = restarts
        make.context = context
        return Reading(context, tailer).run()

    return make
