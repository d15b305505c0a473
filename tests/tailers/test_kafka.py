"""The source Kafka: partitions, offsets and deleted records (G18)."""

import uuid

import pytest

from atp.models import Cursor, Tailer
from atp.sources import Kafka

from .test_reading import data


@pytest.fixture
def topic(broker):
    name = f"scenes-{uuid.uuid4()}"
    broker.make(name)
    return name


@pytest.mark.slow
def test_each_partition_has_a_position_and_a_record_its_key_headers_and_time(
    broker, topic, declare, read
):
    """An empty partition has a position too, so that records deleted later are counted.

    Another topic is read from its beginning.
    """
    broker.put(topic, "a", "b", partition=0)
    broker.put(topic, "c", partition=3)
    read(declare(Kafka(topic, servers=broker.servers)))
    found = {f"{topic}/{number}": position for number, position in enumerate(("2", "0", "0", "1"))}
    assert dict(Cursor.objects.values_list("shard", "position")) == found
    assert sorted(data()) == ["a", "b", "c"]
    other = f"{topic}-2"
    broker.make(other)
    headers = {"mission": b"S2A"}
    broker.put(other, "d", key="x", headers=headers, timestamp=1_700_000_000_000)
    source = Kafka(other, servers=broker.servers)
    with source.open({}) as reader:
        reader.jumped()
        [record] = reader.read(500)
    assert (record.key, record.headers, record.text()) == (b"x", {"mission": "S2A"}, "d")
    assert (record.time.timestamp(), str(record)) == (1_700_000_000, f"{other}/0:1")
    assert read(declare(source))["records"] == 1


@pytest.mark.slow
def test_records_deleted_before_reading_are_counted_as_lost(broker, topic, declare, read):
    """The offsets show how many are missing. The test broker keeps 5 MB of a partition."""
    broker.put(topic, "a")
    source = Kafka(topic, servers=broker.servers, on_gap="skip")
    made = declare(source, lambda record: None)
    read(made)
    broker.put(topic, *["x" * 500_000] * 20)
    found = read(made)
    row = Tailer.objects.get()
    assert 0 < found["records"] < 20
    assert (row.gaps, row.lost + found["records"]) == (1, 20)
    assert read(made)["records"] == 0
    row.refresh_from_db()
    assert (row.gaps, row.lost + found["records"]) == (1, 20)
