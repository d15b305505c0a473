"""The source RedisStream: ids, trimmed entries, streams that begin anew (G18)."""

import uuid

import pytest

from atp.exceptions import Fatal, InvalidType
from atp.models import Cursor
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


def test_entries_that_were_removed_unread_are_a_gap(redis, key, tail, put, read):
    put("a")
    made = tail()
    read(made)
    ids = put("b", "c", "d")
    redis.xtrim(key, minid=ids[2], approximate=False)
    with pytest.raises(Gap, match=r"up to 2 entries behind .* are missing"):
        read(made)
    assert data() == ["a"]


def test_a_gap_may_be_passed_over(redis, key, tail, put, read):
    put("a")
    made = tail(on_gap="skip")
    read(made)
    ids = put("b", "c")
    redis.xtrim(key, minid=ids[1], approximate=False)
    assert read(made) == {"records": 1, "enqueued": 1, "rejected": 0, "behind": 0}
    assert "up to 1 entries behind" in read.context.messages[0][1]
    assert data() == ["a", "c"]


def test_what_was_removed_after_it_was_read_is_no_gap(redis, key, tail, put, read):
    put("a", "b")
    made = tail()
    read(made)
    redis.xtrim(key, maxlen=0, approximate=False)
    put("c")
    assert read(made)["records"] == 1


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


def test_entries_that_are_trimmed_while_it_reads_are_a_gap(redis, key, tail, put, read, work):
    """A producer with a bound is quicker than the tailer."""
    put("a", "b", "c", "d")

    def function(record):
        redis.xtrim(key, maxlen=1, approximate=False)
        return work.call(data=record.text())

    with pytest.raises(Gap, match=r"up to 2 entries behind .* are missing"):
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


def test_an_operator_sets_a_position_without_the_number_of_entries(tail, put, read):
    ids = put("a", "b", "c")
    made = tail()
    read(made)
    Cursor.objects.update(position=ids[0])
    assert read(made)["records"] == 2
    assert data() == ["a", "b", "c", "b", "c"]


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
