"""The source RedisStream: entry ids, trimmed entries and recreated streams (G18)."""

import uuid

import pytest

from atp.models import Cursor, Tailer
from atp.sources import Gap, RedisStream, StreamRecord

from .test_reading import data


@pytest.fixture
def key():
    return f"scenes-{uuid.uuid4()}"


@pytest.fixture
def tail(redis, key, declare):
    def make(function=None, batch=500, **given):
        return declare(RedisStream(key, url=redis.url, **given), function, batch=batch)

    return make


@pytest.fixture
def put(redis, key):
    return lambda *texts: [redis.xadd(key, {"data": text}).decode() for text in texts]


def losses():
    """Return the number of skipped gaps, and of the records in the gaps."""
    row = Tailer.objects.get()
    return row.gaps, row.lost


def test_a_record_has_the_fields_of_its_entry(redis, key):
    id = redis.xadd(key, {"data": "a", "mission": "S2A", b"\xff": b"\xfe"}).decode()
    with RedisStream(key, url=redis.url).open({}) as reader:
        reader.jumped()
        [record] = reader.read(500)
    assert isinstance(record, StreamRecord)
    assert record.fields == {"data": b"a", "mission": b"S2A", "\\xff": b"\xfe"}
    assert (record.shard, record.position, record.text()) == (key, f"{id} 1", "a")
    assert record.time.timestamp() == pytest.approx(int(id.partition("-")[0]) / 1000)


@pytest.mark.slow
def test_trim_removes_committed_entries_from_the_stream(redis, key, tail, put, read):
    put("a", "b")
    made = tail(trim=True)
    read(made)
    assert redis.xlen(key) == 1
    put("c")
    assert read(made)["records"] == 1
    assert data() == ["a", "b", "c"]


def test_large_entries_are_read_a_few_at_a_time(redis, key, tail, put, read, monkeypatch):
    """The size of a batch is limited in bytes too."""
    monkeypatch.setattr("atp.sources.redis_stream.BATCH_BYTES", 250)
    monkeypatch.setattr("atp.sources.redis_stream.PORTION", 2)
    put(*["a" * 100] * 7)
    with RedisStream(key, url=redis.url).open({}) as reader:
        assert len(reader.read(500)) == 4
    assert read(tail())["records"] == 7


def test_the_records_before_a_gap_in_a_batch_are_read_before_it_is_skipped(
    redis, key, put, monkeypatch
):
    """The records before the gap must be read before the cursor moves past the gap (G18)."""
    monkeypatch.setattr("atp.sources.redis_stream.PORTION", 1)
    ids = put("a", "b", "c", "d")
    with RedisStream(key, url=redis.url, on_gap="skip").open({}) as reader:
        reader.jumped()
        query = reader._query

        def trim(limit):
            found = query(limit)
            redis.xtrim(key, minid=ids[3], approximate=False)
            return found

        monkeypatch.setattr(reader, "_query", trim)
        [record] = reader.read(500)
        assert (record.text(), reader.jumps()) == ("a", ())
        reader.settled([record])
        assert [each.text() for each in reader.read(500)] == ["d"]
        [move] = reader.jumps()
        assert move.before == record.position


def test_entries_removed_unread_raise_gap_or_are_counted_as_lost(redis, key, tail, put, read):
    made = tail(on_gap="skip")
    read(made)  # counting starts with the first scan, even if that read nothing (G18)
    ids = put("z", "y", "a")
    redis.xtrim(key, minid=ids[2], approximate=False)
    read(made)
    assert (data(), losses()) == (["a"], (1, 2))
    made = tail()
    redis.xtrim(key, maxlen=0, approximate=False)  # what was read is no gap
    put("b")
    assert read(made)["records"] == 1
    ids = put("x", "c", "d")
    redis.xtrim(key, minid=ids[2], approximate=False)
    with pytest.raises(Gap, match=r"2 entries after .* were removed unread"):
        read(made)
    assert (data(), losses()) == (["a", "b"], (1, 2))
    made = tail(on_gap="skip")
    assert read(made) == {"records": 1, "enqueued": 1, "rejected": 0, "behind": 0}
    assert "2 entries after" in read.context.messages[0][1]
    assert (data(), losses()) == (["a", "b", "d"], (2, 4))
    assert read(made)["records"] == 0
    assert losses() == (2, 4)


def test_entries_deleted_from_the_stream_are_counted(redis, key, tail, put, read):
    """No later record would reveal a loss at the end of the stream."""
    put("a")
    made = tail()
    read(made)
    redis.xdel(key, *put("b", "c"))
    found = read(made)
    assert (found["records"], found["behind"]) == (0, 0)
    assert losses() == (1, 2)
    put("d")
    assert read(made)["records"] == 1
    assert losses() == (1, 2)
    # Trimmed and deleted entries are counted together.
    made = tail(on_gap="skip", batch=1)
    ids = put("e", "f", "g", "h", "i", "j")
    redis.xdel(key, ids[3], ids[5])
    redis.xtrim(key, minid=ids[2], approximate=False)
    assert read(made)["records"] == 2
    assert data() == ["a", "d", "g", "i"]
    assert losses()[1] == 6


def test_entries_trimmed_during_an_attempt_raise_gap(redis, key, tail, put, read, work):
    """A producer that limits the length of the stream can be faster than the tailer."""
    put("a", "b", "c", "d")

    def function(record):
        redis.xtrim(key, maxlen=1, approximate=False)
        return work.call(data=record.text())

    with pytest.raises(Gap, match=r"2 entries after .* were removed unread"):
        read(tail(function=function, batch=1))


def test_a_recreated_stream_is_read_from_its_beginning_or_from_a_given_entry(
    redis, key, tail, put, read
):
    put("a", "b", "c")
    made = tail()
    read(made)
    redis.delete(key)
    assert read(made)["records"] == 0
    ids = put("d", "e")
    assert read(made)["records"] == 2
    # Nobody can tell whether the stream before had entries that were not read.
    assert losses() == (1, 0)
    # A position that an operator has set contains no count of entries.
    Cursor.objects.update(position=ids[0])
    assert read(made)["records"] == 1
    assert (data()[3:], losses()) == (["d", "e", "e"], (1, 0))
