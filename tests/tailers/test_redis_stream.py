"""The source RedisStream: ids, trimmed entries, streams that begin anew (G18)."""

import uuid

import pytest

from atp import queue
from atp.exceptions import Fatal, InvalidOption, InvalidType
from atp.models import Cursor, Tailer
from atp.sources import Gap, Note, RedisStream, StreamRecord

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


def test_it_may_begin_with_what_comes(tail, put, read):
    """What comes between two attempts is not passed over, though the first has read nothing."""
    put("a")
    made = tail(start="latest")
    assert read(made)["records"] == 0
    put("b")
    assert read(made)["records"] == 1
    assert data() == ["b"]


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
        look = reader._look

        def trim(limit):
            found = look(limit)
            redis.xtrim(key, minid=ids[3], approximate=False)
            return found

        monkeypatch.setattr(reader, "_look", trim)
        [record] = reader.read(500)
        assert (record.text(), reader.jumps()) == ("a", ())
        reader.settled([record])
        assert [each.text() for each in reader.read(500)] == ["d"]
        [move] = reader.jumps()
        assert move.before == record.position


def test_entries_that_were_removed_unread_are_a_gap(redis, key, tail, put, read):
    put("a")
    made = tail()
    read(made)
    ids = put("b", "c", "d")
    redis.xtrim(key, minid=ids[2], approximate=False)
    with pytest.raises(Gap, match=r"2 entries behind .* were removed unread"):
        read(made)
    assert data() == ["a"]
    assert losses() == (0, 0)


def test_a_gap_may_be_passed_over(redis, key, tail, put, read):
    put("a")
    made = tail(on_gap="skip")
    read(made)
    ids = put("b", "c")
    redis.xtrim(key, minid=ids[1], approximate=False)
    assert read(made) == {"records": 1, "enqueued": 1, "rejected": 0, "behind": 0}
    assert "1 entries behind" in read.context.messages[0][1]
    assert data() == ["a", "c"]
    assert losses() == (1, 1)
    assert read(made)["records"] == 0
    assert losses() == (1, 1)


def test_what_is_removed_before_the_first_record_is_counted(redis, key, tail, put, read):
    """G18: from the first look on, though it has found nothing."""
    made = tail(on_gap="skip")
    read(made)
    ids = put("a", "b", "c")
    redis.xtrim(key, minid=ids[2], approximate=False)
    read(made)
    assert data() == ["c"]
    assert losses() == (1, 2)


def test_a_note_is_checked():
    """G13: a source of the project says how much it passes over."""
    with pytest.raises(ValueError, match="must be one of"):
        Note(kind="gone", count=1, message="1 is gone")
    with pytest.raises(ValueError, match="must be 0 or more"):
        Note(kind="lost", count=-1, message="1 is gone")


def test_what_was_removed_after_it_was_read_is_no_gap(redis, key, tail, put, read):
    put("a", "b")
    made = tail()
    read(made)
    redis.xtrim(key, maxlen=0, approximate=False)
    put("c")
    assert read(made)["records"] == 1
    assert losses() == (0, 0)


def test_a_single_entry_that_somebody_deletes_is_no_gap(redis, key, tail, put, read):
    put("a")
    made = tail(trim=True)
    read(made)
    ids = put("b", "c")
    redis.xdel(key, ids[0])
    assert read(made)["records"] == 1
    put("d")
    assert read(made)["records"] == 1
    assert data() == ["a", "c", "d"]
    assert losses() == (1, 1)


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


def test_entries_that_go_before_the_first_batch_are_counted(redis, key, tail, put, read, work):
    """They were there when it began."""
    ids = put("a", "b", "c")

    def function(record):
        redis.xdel(key, ids[1])
        return work.call(data=record.text())

    assert read(tail(function, batch=1))["records"] == 2
    assert losses() == (1, 1)


def test_entries_that_are_trimmed_while_it_reads_are_a_gap(redis, key, tail, put, read, work):
    """A producer with a bound is quicker than the tailer."""
    put("a", "b", "c", "d")

    def function(record):
        redis.xtrim(key, maxlen=1, approximate=False)
        return work.call(data=record.text())

    with pytest.raises(Gap, match=r"2 entries behind .* were removed unread"):
        read(tail(function=function, batch=1))


def test_a_stream_that_ends_before_the_position_is_a_gap(redis, key, tail, put, read):
    """As after a fail-over that has lost entries."""
    redis.xadd(key, {"data": "a"}, id="9999999999999-0")
    made = tail()
    read(made)
    redis.delete(key)
    put("b")
    with pytest.raises(Gap, match="before 9999999999999-0, which was read"):
        read(made)


def test_after_entries_were_lost_it_may_go_on_with_what_comes(redis, key, tail, put, read):
    """G18: nothing that was read before is read again."""
    put("a")
    made = tail(on_gap="skip")
    read(made)
    Cursor.objects.update(position="9999999999999-0 5")
    assert read(made)["records"] == 0
    put("b")
    assert read(made)["records"] == 1
    assert data() == ["a", "b"]


def test_a_position_that_is_none_is_fatal(tail, put, read):
    put("a")
    made = tail()
    read(made)
    Cursor.objects.update(position="yesterday")
    with pytest.raises(Fatal, match="'yesterday' is no position of a stream"):
        read(made)


@pytest.mark.parametrize("position", ["banana", "-1", "1-x", "1-2-3", "1-2 x", "٣-0", "1_0-0"])
def test_an_operator_cannot_set_a_position_that_is_none(key, tail, put, read, position):
    """G13: nothing is written."""
    put("a")
    read(tail())
    before = Cursor.objects.get().position
    with pytest.raises(InvalidOption, match="is no position of a stream"):
        queue.seek("tests.tailer", shard=key, position=position)
    assert Cursor.objects.get().position == before


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


@pytest.mark.parametrize(
    "given", [{"start": "now"}, {"on_gap": "ask"}, {"url": ""}, {"key": 5}, {"key": "a\nb"}]
)
def test_bad_parameters_are_refused(given):
    """G13."""
    with pytest.raises(InvalidType, match=r"RedisStream\("):
        RedisStream(**{"key": "scenes", **given})


def test_a_check_names_the_extra(monkeypatch):
    monkeypatch.setattr("atp.sources.parameters.find_spec", lambda name: None)
    [told] = RedisStream("scenes").problems()
    assert told == "the package redis is missing: it comes with the extra [redis]"
