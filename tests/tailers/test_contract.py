"""All sources enqueue each record exactly once, whatever fails (G18)."""

import re
import uuid
from functools import partial

import pytest
from django.contrib.auth.models import Group

from atp import queue
from atp.exceptions import Fatal, InvalidOption
from atp.models import Cursor, Tailer
from atp.sources import Directory, Gap, Kafka, Record, RedisStream, Table

from .test_reading import data, enqueued

STREAMS = ("redis", "kafka")


@pytest.fixture(params=["directory", "table", *STREAMS])
def case(request, redis, broker, tmp_path):
    """A source to test; ``case.put(text, …)`` adds records."""
    name = f"records-{uuid.uuid4()}"
    makers = {
        "directory": lambda: OfDirectory(tmp_path),
        "table": OfTable,
        "redis": lambda: OfRedis(redis, name),
        "kafka": lambda: OfKafka(broker, name),
    }
    return makers[request.param]()


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
    """``shard`` is the stream, ``far`` a position after its end, and ``odd`` invalid positions."""

    odd = ("yesterday", "banana", "-1", "1-x", "1-2-3", "1-2 x", "٣-0", "1_0-0")
    refusal = "is not a position in a stream"
    far = "9999999999999-0"
    text = staticmethod(Record.text)

    def __init__(self, client, key):
        self.client, self.shard = client, key
        self.stream = partial(RedisStream, key, url=client.url)
        self.source = self.stream()

    def put(self, *texts):
        for text in texts:
            self.client.xadd(self.shard, {"data": text})


class OfKafka:
    odd = ("-1", "banana", "1.5", "٣", str(2**63))
    refusal = "is not an offset"
    far = "7"
    text = staticmethod(Record.text)

    def __init__(self, broker, topic):
        broker.make(topic)
        self.broker, self.topic, self.shard = broker, topic, f"{topic}/0"
        self.stream = partial(Kafka, topic, servers=broker.servers)
        self.source = self.stream()

    def put(self, *texts):
        for number, text in enumerate(texts):
            self.broker.put(self.topic, text, partition=number % 2)


@pytest.fixture
def tail(case, declare, work):
    def make(function=None, **given):
        function = function or (lambda record: work.call(data=case.text(record)))
        return declare(case.source, function, **given)

    return make


@pytest.mark.slow
def test_each_record_is_enqueued_once(case, tail, read):
    """This holds for a second attempt, and for records that are added later (G18)."""
    made = tail(batch=2)
    case.put("a", "b", "c")
    assert read(made) == {"records": 3, "enqueued": 3, "rejected": 0, "behind": 0}
    assert read(made) == {"records": 0, "enqueued": 0, "rejected": 0, "behind": 0}
    case.put("d")
    assert read(made)["records"] == 1
    assert sorted(data()) == ["a", "b", "c", "d"]


streams = pytest.mark.parametrize("case", STREAMS, indirect=True)


@streams
def test_a_stream_with_start_latest_reads_only_records_added_later(case, declare, read):
    """A record added between two attempts is read, even if the first attempt read nothing."""
    case.put("a")
    made = declare(case.stream(start="latest"))
    assert read(made)["records"] == 0
    case.put("b")
    assert read(made)["records"] == 1
    assert data() == ["b"]


@streams
def test_a_position_beyond_the_end_of_a_stream_raises_gap_or_is_skipped(case, declare, read):
    """A fail-over can lose records at the end of a stream (G18). No record is read twice."""
    case.put("a")
    made = declare(case.source)
    read(made)
    Cursor.objects.filter(shard=case.shard).update(position=case.far)
    told = f"ends at .*, before {case.far}, which"
    with pytest.raises(Gap, match=told):
        read(made)
    made = declare(case.stream(on_gap="skip"))
    assert read(made)["records"] == 0
    assert re.search(told, read.context.messages[0][1])
    case.put("b")
    assert read(made)["records"] == 1
    assert data() == ["a", "b"]


@streams
def test_an_invalid_position_is_rejected_and_fails_the_attempt(case, declare, read):
    """An operator's invalid position is not written (G13)."""
    case.put("a")
    made = declare(case.source)
    read(made)
    cursors = Cursor.objects.filter(shard=case.shard)
    before = cursors.get().position
    for position in case.odd:
        with pytest.raises(InvalidOption, match=case.refusal):
            queue.seek("tests.tailer", shard=case.shard, position=position)
    assert cursors.get().position == before
    cursors.update(position=case.odd[0])
    with pytest.raises(Fatal, match=f"'{case.odd[0]}' {case.refusal}"):
        read(made)


def test_records_that_were_not_committed_count_as_still_to_be_read(case, tail, read, monkeypatch):
    """A worker might die before it commits (G18)."""

    def function(record):
        raise KeyboardInterrupt

    case.put("a", "b", "c")
    with pytest.raises(KeyboardInterrupt):
        read(tail(function))
    assert data() == []
    monkeypatch.setattr("atp.tailers.tailer.LONGEST", -1.0)
    assert read(tail(function))["behind"] == 3
    assert Tailer.objects.get().behind == 3


def test_redriving_a_rejected_record_maps_the_original_record_again(case, tail, read, work, atp):
    """No part of the record is lost when it is rejected (G13)."""
    seen = []

    def function(record):
        seen.append(record)
        if len(seen) < 3:
            raise KeyError("cloud")
        return work.call(data=case.text(record))

    case.put("a")
    made = tail(function)
    assert read(made)["rejected"] == 1
    assert len(enqueued("tests.tailer.rejected")) == 1
    [run] = atp.drain(made.rejected, raises=False)
    assert (run.state, run.reason, repr(run.error)) == ("FAILED", "ERROR", "KeyError('cloud')")
    queue.redrive(run.instance)
    [run] = atp.drain(made.rejected)
    assert (run.state, run.response, data()) == ("FINISHED", 1, ["a"])
    assert seen == [seen[0]] * 3


def test_a_stream_reports_a_missing_package_and_hides_its_password(monkeypatch):
    """The URL of the server contains a password (G14)."""
    redis = RedisStream("scenes", url="redis://ann:secret@queue:6380/2")
    kafka = Kafka("a", servers="a:9092")
    assert str(redis) == "redis://queue:6380/2 scenes"
    assert [*redis.problems(), *kafka.problems()] == []
    monkeypatch.setattr("atp.sources.base.find_spec", lambda name: None)
    assert [*redis.problems(), *kafka.problems()] == [
        "the package redis is missing: it comes with the extra [redis]",
        "the package confluent_kafka is missing: it comes with the extra [kafka]",
    ]
