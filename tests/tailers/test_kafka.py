"""The source Kafka: partitions, offsets, records that were removed (G18)."""

import uuid

import pytest
from confluent_kafka import KafkaException

from atp import queue
from atp.exceptions import Fatal, InvalidOption, InvalidType
from atp.models import Cursor, Tailer
from atp.sources import Gap, Kafka

from . import servers
from .test_reading import data


@pytest.fixture(scope="module")
def broker():
    return servers.Broker()


@pytest.fixture
def topic(broker):
    name = f"scenes-{uuid.uuid4()}"
    broker.make(name)
    return name


@pytest.fixture
def tail(broker, topic, declare):
    def make(function=None, **given):
        return declare(Kafka(topic, servers=broker.servers, **given), function)

    return make


def positions():
    return dict(Cursor.objects.values_list("shard", "position"))


def test_each_partition_has_a_position(broker, topic, tail, read):
    """Also those without a record, so that what is removed before the next look is counted."""
    broker.put(topic, "a", "b", partition=0)
    broker.put(topic, "c", partition=3)
    read(tail())
    found = {f"{topic}/{number}": position for number, position in enumerate(("2", "0", "0", "1"))}
    assert positions() == found
    assert sorted(data()) == ["a", "b", "c"]


def test_a_record_has_its_key_its_headers_and_its_time(broker, topic, tail, read):
    headers = {"mission": b"S2A"}
    broker.put(topic, "a", key="x", headers=headers, timestamp=1_700_000_000_000)
    seen = []
    read(tail(function=lambda record: seen.append(record)))
    [record] = seen
    assert (record.key, record.headers, record.text()) == (b"x", {"mission": "S2A"}, "a")
    assert record.time.timestamp() == 1_700_000_000
    assert str(record) == f"{topic}/0:1"


def test_it_may_begin_with_what_comes(broker, topic, tail, read):
    """What comes between two attempts is not passed over, though the first has read nothing."""
    broker.put(topic, "a")
    made = tail(start="latest")
    assert read(made)["records"] == 0
    broker.put(topic, "b")
    assert read(made)["records"] == 1
    assert data() == ["b"]


def test_a_topic_that_ends_before_the_position_is_a_gap(broker, topic, tail, read):
    broker.put(topic, "a")
    made = tail()
    read(made)
    Cursor.objects.filter(shard=f"{topic}/0").update(position="7")
    with pytest.raises(Gap, match="partition 0 ends at 1, before 7, which is next"):
        read(made)


def test_a_gap_may_be_passed_over(broker, topic, tail, read):
    broker.put(topic, "a")
    made = tail(on_gap="skip")
    read(made)
    Cursor.objects.filter(shard=f"{topic}/0").update(position="7")
    assert read(made)["records"] == 0
    assert "partition 0 ends at 1" in read.context.messages[0][1]
    # Nothing that was read before is read again.
    broker.put(topic, "b")
    assert read(made)["records"] == 1
    assert data() == ["a", "b"]


def test_records_that_were_removed_unread_are_counted(broker, topic, tail, read):
    """The offsets tell their number. The broker of the tests keeps the last 5 MB of a partition."""
    broker.put(topic, "a")
    made = tail(lambda record: None, on_gap="skip")
    read(made)
    broker.put(topic, *["x" * 500_000] * 20)
    found = read(made)
    row = Tailer.objects.get()
    assert 0 < found["records"] < 20
    assert (row.gaps, row.lost + found["records"]) == (1, 20)
    assert read(made)["records"] == 0
    row.refresh_from_db()
    assert (row.gaps, row.lost + found["records"]) == (1, 20)


@pytest.mark.parametrize("position", ["yesterday", "-1"])
def test_a_position_that_is_none_is_fatal(broker, topic, tail, read, position):
    broker.put(topic, "a")
    made = tail()
    read(made)
    Cursor.objects.filter(shard=f"{topic}/0").update(position=position)
    with pytest.raises(Fatal, match=f"'{position}' is no offset"):
        read(made)


@pytest.mark.parametrize("position", ["banana", "-1", "1.5", "٣", str(2**63)])
def test_an_operator_cannot_set_a_position_that_is_none(broker, topic, tail, read, position):
    """G13: nothing is written."""
    broker.put(topic, "a")
    read(tail())
    with pytest.raises(InvalidOption, match="is no offset"):
        queue.seek("tests.tailer", shard=f"{topic}/0", position=position)
    assert positions()[f"{topic}/0"] == "1"


def test_another_topic_is_read_from_its_beginning(broker, topic, declare, read):
    broker.put(topic, "a", "b")
    read(declare(Kafka(topic, servers=broker.servers)))
    other = f"{topic}-2"
    broker.make(other)
    broker.put(other, "c")
    assert read(declare(Kafka(other, servers=broker.servers)))["records"] == 1


def test_a_topic_that_is_not_there_is_an_error(broker, declare, read):
    made = declare(Kafka("a-topic-with-a bad-name", servers=broker.servers))
    with pytest.raises(KafkaException):
        read(made)


@pytest.mark.parametrize(
    "given",
    [
        {"start": "now"},
        {"on_gap": "ask"},
        {"servers": ""},
        {"topic": None},
        {"config": {"enable.auto.commit": True}},
        {"config": {"bootstrap.servers": "a:1"}},
    ],
)
def test_bad_parameters_are_refused(given):
    """G13."""
    with pytest.raises(InvalidType, match=r"Kafka\("):
        Kafka(**{"topic": "scenes", "servers": "a:9092", **given})


def test_a_check_names_the_extra(monkeypatch):
    monkeypatch.setattr("atp.sources.parameters.find_spec", lambda name: None)
    [told] = Kafka("scenes", servers="a:9092").problems()
    assert told == "the package confluent_kafka is missing: it comes with the extra [kafka]"
