"""The source RedisStream: ids, trimmed entries, streams that begin anew (G18)."""

import uuid

import pytest

from atp.models import Cursor, Tailer
from atp.sources import Gap, RedisStream, StreamRecord

from . import servers
from .test_reading import data


@pytest.fixture(scope="module")
def redis():
    with servers.valkey() as client:
        yield client


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
    def add(*texts):
        return [redis.xadd(key, {"data": text}).decode() for text in texts]

    return add


def losses():
    """Return the number of gaps that were passed over, and that of the records in them."""
    row = Tailer.objects.get()
    return row.gaps, row.lost


def test_a_record_has_the_fields_of_its_entry(redis, key, tail, read):
    id = redis.xadd(key, {"data": "a", "mission": "S2A", b"\xff": b"\xfe"}).decode()
    seen = []
    read(tail(function=lambda record: seen.append(record)))
    [record] = seen
    assert isinstance(record, StreamRecord)
    assert record.fields == {"data": b"a", "mission": b"S2A", "\\xff": b"\xfe"}
    assert (record.shard, record.position, record.text()) == (key, f"{id} 1", "a")
    assert record.time.timestamp() == pytest.approx(int(id.partition("-")[0]) / 1000)


def test_settled_entries_may_be_removed(redis, key, tail, put, read):
    put("a", "b")
    made = tail(trim=True)
    read(made)
    assert redis.xlen(key) == 1
    put("c")
    assert read(made)["records"] == 1
    assert data() == ["a", "b", "c"]


def test_large_entries_are_read_few_at_a_time(redis, key, tail, put, read, monkeypatch):
    """A batch ends at some bytes, too."""
    monkeypatch.setattr("atp.sources.redis_stream.BATCH_BYTES", 250)
    monkeypatch.setattr("atp.sources.redis_stream.PORTION", 2)
    put(*["a" * 100] * 7)
    with RedisStream(key, url=redis.url).open({}) as reader:
        assert len(reader.read(500)) == 4
    assert read(tail())["records"] == 7


def test_a_gap_behind_records_of_one_batch_is_passed_over_after_them(redis, key, put, monkeypatch):
    """G18: the move over the gap is committed first, and must not pass over what was read."""
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


def test_entries_that_were_removed_unread_are_a_gap_that_may_be_passed_over(
    redis, key, tail, put, read
):
    put("a")
    made = tail()
    read(made)
    ids = put("b", "c", "d")
    redis.xtrim(key, minid=ids[2], approximate=False)
    with pytest.raises(Gap, match=r"2 entries after .* were removed unread"):
        read(made)
    assert (data(), losses()) == (["a"], (0, 0))
    made = tail(on_gap="skip")
    assert read(made) == {"records": 1, "enqueued": 1, "rejected": 0, "behind": 0}
    assert "2 entries after" in read.context.messages[0][1]
    assert (data(), losses()) == (["a", "d"], (1, 2))
    assert read(made)["records"] == 0
    assert losses() == (1, 2)


def test_what_is_removed_before_the_first_record_is_counted(redis, key, tail, put, read):
    """G18: from the first look on, though it has found nothing."""
    made = tail(on_gap="skip")
    read(made)
    ids = put("a", "b", "c")
    redis.xtrim(key, minid=ids[2], approximate=False)
    read(made)
    assert data() == ["c"]
    assert losses() == (1, 2)


def test_what_was_removed_after_it_was_read_is_no_gap(redis, key, tail, put, read):
    put("a", "b")
    made = tail()
    read(made)
    redis.xtrim(key, maxlen=0, approximate=False)
    put("c")
    assert read(made)["records"] == 1
    assert losses() == (0, 0)


def test_entries_that_are_deleted_at_the_end_are_counted(redis, key, tail, put, read):
    """No record comes behind them."""
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


def test_trimmed_and_deleted_entries_are_counted_together(redis, key, tail, put, read):
    put("a")
    made = tail(on_gap="skip", batch=1)
    read(made)
    ids = put("b", "c", "d", "e", "f", "g")
    redis.xdel(key, ids[3], ids[5])
    redis.xtrim(key, minid=ids[2], approximate=False)
    assert read(made)["records"] == 2
    assert data() == ["a", "d", "f"]
    assert losses()[1] == 4


def test_entries_that_are_trimmed_while_it_reads_are_a_gap(redis, key, tail, put, read, work):
    """A producer with a bound is quicker than the tailer."""
    put("a", "b", "c", "d")

    def function(record):
        redis.xtrim(key, maxlen=1, approximate=False)
        return work.call(data=record.text())

    with pytest.raises(Gap, match=r"2 entries after .* were removed unread"):
        read(tail(function=function, batch=1))


def test_a_stream_that_is_made_anew_is_read(redis, key, tail, put, read):
    put("a", "b", "c")
    made = tail()
    read(made)
    redis.delete(key)
    assert read(made)["records"] == 0
    put("d")
    found = read(made)
    assert found["records"] == 1
    assert data()[-1] == "d"
    # Nobody can tell whether the stream before had entries that were not read.
    assert losses() == (1, 0)


def test_an_operator_sets_a_position_without_the_number_of_entries(tail, put, read):
    ids = put("a", "b", "c")
    made = tail()
    read(made)
    Cursor.objects.update(position=ids[0])
    assert read(made)["records"] == 2
    assert data() == ["a", "b", "c", "b", "c"]
    assert losses() == (0, 0)


def test_its_description_has_no_password():
    """G14."""
    told = str(RedisStream("scenes", url="redis://ann:secret@queue:6380/2"))
    assert told == "redis://queue:6380/2 scenes"
