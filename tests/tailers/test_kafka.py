"""The source Kafka: partitions, offsets, records that were removed (G18)."""

import uuid

import pytest

from atp.models import Cursor, Tailer
from atp.sources import Kafka

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


def test_another_topic_is_read_from_its_beginning(broker, topic, declare, read):
    broker.put(topic, "a", "b")
    read(declare(Kafka(topic, servers=broker.servers)))
    other = f"{topic}-2"
    broker.make(other)
    broker.put(other, "c")
    assert read(declare(Kafka(other, servers=broker.servers)))["records"] == 1
