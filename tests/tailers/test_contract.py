"""What every source keeps: each record once, whatever fails between (G18)."""

import re
import uuid

import pytest
from django.contrib.auth.models import Group

from atp import queue
from atp.exceptions import Fatal, InvalidOption
from atp.models import Cursor, Tailer
from atp.sources import Directory, Gap, Kafka, RedisStream, Table

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
    made = OfRedis if request.param == "redis" else OfKafka
    return made(started[request.param], name)


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
    """``shard`` is its first; ``far`` is a position behind its end, and ``odd`` are none."""

    odd = ("yesterday", "banana", "-1", "1-x", "1-2-3", "1-2 x", "٣-0", "1_0-0")
    refusal = "is not a position in a stream"
    far = "9999999999999-0"

    def __init__(self, client, key):
        self.client, self.shard = client, key
        self.source = self.stream()

    def stream(self, **given):
        return RedisStream(self.shard, url=self.client.url, **given)

    def put(self, *texts):
        for text in texts:
            self.client.xadd(self.shard, {"data": text})

    @staticmethod
    def text(record):
        return record.text()


class OfKafka(OfRedis):
    odd = ("-1", "banana", "1.5", "٣", str(2**63))
    refusal = "is not an offset"
    far = "7"

    def __init__(self, broker, topic):
        broker.make(topic)
        self.broker, self.topic, self.shard = broker, topic, f"{topic}/0"
        self.source = self.stream()

    def stream(self, **given):
        return Kafka(self.topic, servers=self.broker.servers, **given)

    def put(self, *texts):
        for number, text in enumerate(texts):
            self.broker.put(self.topic, text, partition=number % 2)


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


streams = pytest.mark.parametrize("case", ["redis", "kafka"], indirect=True)


@streams
def test_a_stream_may_begin_with_what_comes(case, declare, read):
    """What comes between two attempts is not passed over, though the first has read nothing."""
    case.put("a")
    made = declare(case.stream(start="latest"))
    assert read(made)["records"] == 0
    case.put("b")
    assert read(made)["records"] == 1
    assert data() == ["b"]


@streams
def test_a_stream_that_ends_before_the_position_is_a_gap_that_may_be_passed_over(
    case, declare, read
):
    """G18: as after a fail-over that has lost records. Nothing that was read is read again."""
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
def test_a_position_that_is_none_cannot_be_set_and_is_fatal(case, declare, read):
    """G13: of what an operator gives, nothing is written."""
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


def test_what_was_not_settled_stays_and_is_told(case, tail, read, monkeypatch):
    """G18: as when the worker dies before the commit."""

    def function(record):
        raise KeyboardInterrupt

    case.put("a", "b", "c")
    with pytest.raises(KeyboardInterrupt):
        read(tail(function))
    assert data() == []
    monkeypatch.setattr("atp.tailers.tailer.LONGEST", -1.0)
    assert read(tail(function))["behind"] == 3
    assert Tailer.objects.get().behind == 3


def test_a_rejected_record_comes_back_as_it_was_when_it_is_redriven(case, tail, read, work, atp):
    """G13."""
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


def test_its_description_is_a_line_of_text(case):
    assert str(case.source).isprintable()
    assert list(case.source.problems()) == []


@pytest.mark.parametrize(
    ("source", "package", "extra"),
    [
        (RedisStream("a"), "redis", "redis"),
        (Kafka("a", servers="a:9092"), "confluent_kafka", "kafka"),
    ],
)
def test_a_check_names_the_extra_that_is_missing(monkeypatch, source, package, extra):
    monkeypatch.setattr("atp.sources.base.find_spec", lambda name: None)
    [told] = source.problems()
    assert told == f"the package {package} is missing: it comes with the extra [{extra}]"
