"""What every source keeps: each record once, whatever fails between (G18)."""

import uuid

import pytest
from django.contrib.auth.models import Group

from atp.models import Tailer
from atp.sources import Directory, Kafka, RedisStream, Table

from . import servers
from .test_reading import data, enqueued

SOURCES = ("directory", "table", "redis", "kafka")


@pytest.fixture(scope="module")
def started():
    """The servers, each started when it is needed."""
    found = {}
    with servers.valkey() as redis:
        found["redis"] = redis
        found["kafka"] = servers.Broker()
        yield found


@pytest.fixture(params=SOURCES)
def case(request, started, tmp_path):
    """A source; ``case.put(text, …)`` puts records into it."""
    name = f"records-{uuid.uuid4()}"
    if request.param == "directory":
        return OfDirectory(tmp_path)
    if request.param == "table":
        return OfTable()
    return (
        OfRedis(started["redis"], name)
        if request.param == "redis"
        else OfKafka(started["kafka"], name)
    )


class OfDirectory:
    def __init__(self, folder):
        self.folder, self.source = folder, Directory(folder, quiet=0, pattern="*.txt")

    def put(self, *texts):
        for text in texts:
            (self.folder / f"{text}.txt").write_text(text)

    @staticmethod
    def text(record):
        return record.path.read_text()


class OfTable:
    source = Table(Group)

    def put(self, *texts):
        for text in texts:
            Group.objects.create(name=text)

    @staticmethod
    def text(record):
        return record.row.name


class OfRedis:
    def __init__(self, client, key):
        self.client, self.key = client, key
        self.source = RedisStream(key, url=client.url)

    def put(self, *texts):
        for text in texts:
            self.client.xadd(self.key, {"data": text})

    @staticmethod
    def text(record):
        return record.text()


class OfKafka:
    def __init__(self, broker, topic):
        broker.make(topic)
        self.broker, self.topic = broker, topic
        self.source = Kafka(topic, servers=broker.servers)

    def put(self, *texts):
        for number, text in enumerate(texts):
            self.broker.put(self.topic, text, partition=number % 2)

    @staticmethod
    def text(record):
        return record.text()


@pytest.fixture
def tail(case, declare, work):
    def make(function=None, **given):
        function = function or (lambda record: work.call(data=case.text(record)))
        return declare(case.source, function, **given)

    return make


def test_each_record_is_enqueued_once(case, tail, read):
    """G18: also by another attempt, and what comes later."""
    made = tail(batch=2)
    case.put("a", "b", "c")
    assert read(made) == {"records": 3, "enqueued": 3, "rejected": 0, "behind": 0}
    assert read(made) == {"records": 0, "enqueued": 0, "rejected": 0, "behind": 0}
    case.put("d")
    assert read(made)["records"] == 1
    assert sorted(data()) == ["a", "b", "c", "d"]


def test_what_was_not_settled_is_read_again(case, tail, read, work):
    """G18: as when the worker dies before the commit."""

    def function(record):
        raise KeyboardInterrupt

    case.put("a", "b")
    with pytest.raises(KeyboardInterrupt):
        read(tail(function))
    assert data() == []


def test_a_rejected_record_comes_back_as_it_was(case, tail, read, atp):
    """G13: the function gets an equal record when it is redriven."""
    seen = []

    def function(record):
        seen.append(record)
        raise KeyError("cloud")

    case.put("a")
    made = tail(function)
    assert read(made)["rejected"] == 1
    assert len(enqueued("tests.tailer.rejected")) == 1
    atp.drain(made.rejected, raises=False)
    first, again = seen
    assert again == first
    assert case.text(again) == "a"


def test_it_tells_what_is_left(case, tail, read, monkeypatch):
    """As many as the source itself would say."""
    case.put("a", "b", "c")
    made = tail(batch=1)
    monkeypatch.setattr("atp.tailers.reading.LONGEST", -1.0)
    assert read(made)["behind"] == 3
    assert Tailer.objects.get().behind == 3


def test_its_description_is_a_line_of_text(case):
    assert str(case.source).isprintable()
    assert list(case.source.problems()) == []
