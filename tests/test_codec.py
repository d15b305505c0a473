"""Tests of :mod:`atp.payload.codec` and :mod:`atp.payload.tagged_json`."""

import enum
import json
import math
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group
from hypothesis import given
from hypothesis import strategies as st

from atp.exceptions import CorruptData, InvalidType, NotSerializable, TooLarge
from atp.payload import codec, tagged_json
from atp.payload.codec import Payload, decode, encode
from atp.payload.tagged_json import from_json, to_json

OFFSETS = st.builds(
    timezone,
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)),
)
ZONES = st.none() | st.just(UTC) | OFFSETS
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.dates()
    | st.times(timezones=ZONES)
    | st.datetimes(timezones=ZONES)
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False)
    | st.binary()
)
KEYS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["$date", "$object", "$bytes", "$", "*", "$unknown"]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def kinds(value):
    """Return the value with the type of every part beside it: 1, 1.0 and True are equal."""
    if isinstance(value, dict):
        return {key: kinds(item) for key, item in value.items()}
    if isinstance(value, list):
        return [kinds(item) for item in value]
    return type(value), value


@given(VALUES)
def test_json_comes_back_equal_and_of_the_same_kind(value):
    """G13: what is accepted is not changed on the way."""
    payload = encode(value)
    assert kinds(decode(payload)) == kinds(value)
    json.loads(payload.data, parse_constant=pytest.fail)  # it is JSON as others read it


@pytest.mark.parametrize("value", [math.nan, Decimal("NaN"), Decimal("-sNaN12")])
def test_what_does_not_equal_itself_comes_back_too(value):
    assert repr(decode(encode(value))) == repr(value)


def test_negative_zero_keeps_its_sign():
    assert math.copysign(1, decode(encode(-0.0))) == -1


def test_times_keep_their_offset():
    value = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Vienna"), fold=1)
    assert decode(encode(value)).utcoffset() == timedelta(hours=1)
    assert decode(encode(value)).timestamp() == value.timestamp()


def test_subclasses_come_back_as_what_they_are_in_json():
    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    class Ratio(float):
        pass

    class Record(dict):
        pass

    given = Record({Colour.RED: Colour.RED, "level": Level.HIGH, "ratio": Ratio(0.5)})
    found = decode(encode(given))
    assert found == {"red": "red", "level": 3, "ratio": 0.5}
    assert kinds(found) == kinds({"red": "red", "level": 3, "ratio": 0.5})


def test_tuples_come_back_as_lists():
    assert decode(encode((1, (2, 3)))) == [1, [2, 3]]
    assert decode(encode([bytearray(b"a"), memoryview(b"b")])) == [b"a", b"b"]


CYCLE = []
CYCLE.append(CYCLE)


def nested(depth, kind):
    value = 1
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({1, 2}, "builtins.set"),
        (object(), "builtins.object"),
        ({"a": [1, object()]}, r"at \['a'\]\[1\]"),
        ({1: 2}, "key 1"),
        ({"a": {None: 2}}, "key None"),
        (1j, "complex"),
        (lambda: None, "function"),
        ("\ud800", "Unicode"),
        ({"\ud800": 1}, "Unicode"),
        pytest.param(10**5000, "cannot be serialized", id="huge"),
        pytest.param(CYCLE, "nested", id="cycle"),
        pytest.param(nested(10_000, list), "nested", id="deep list"),
        pytest.param(nested(10_000, dict), "nested", id="deep dict"),
        (time(12, tzinfo=ZoneInfo("Europe/Vienna")), "no offset"),
    ],
)
def test_what_json_cannot_carry_is_refused(value, told):
    """G13: a named exception that says what it is and where."""
    with pytest.raises(NotSerializable, match=told):
        encode(value, what="Inputs of 't'")


@pytest.mark.parametrize("kind", [list, dict])
def test_what_is_accepted_is_not_too_deep_to_be_read_back(kind):
    """G13: at every depth it either comes back or is refused by name."""
    for depth in range(1, 600, 7):
        try:
            payload = encode(nested(depth, kind))
        except NotSerializable:
            continue
        assert decode(payload) == nested(depth, kind)
    assert decode(encode(nested(60, kind))) == nested(60, kind)


def test_the_limit_is_in_bytes():
    assert encode("ää", limit=6).data == '"ää"'
    with pytest.raises(TooLarge, match="6 bytes when serialized, the limit is 5 bytes"):
        encode("ää", limit=5)
    with pytest.raises(TooLarge):
        encode("aaaaa", limit=6)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nan",
        '{"$uuid": 5}',
        '{"$uuid": "x"}',
        '{"$date": "2026-13-01"}',
        '{"$date": 5}',
        '{"$datetime": []}',
        '{"$time": null}',
        '{"$timedelta": 5}',
        '{"$timedelta": [1e300, 0, 0]}',
        '{"$decimal": "x"}',
        '{"$decimal": {}}',
        '{"$bytes": "ä"}',
        '{"$bytes": 1}',
        '{"$float": "x"}',
        '{"$float": []}',
        '{"$object": [[[], 1]]}',
        '{"$object": 1}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_damaged_json_is_corrupt(text):
    with pytest.raises(CorruptData):
        from_json(text)


@given(VALUES, st.data())
def test_damage_is_corrupt_or_reads_as_something(value, data):
    """Whatever happens to the text, nothing but CorruptData is raised."""
    text = to_json(value)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    try:
        from_json(text[:start] + data.draw(st.text(max_size=3)) + text[end:])
    except CorruptData:
        pass


def test_an_unknown_format_is_corrupt():
    with pytest.raises(CorruptData, match="yaml"):
        decode(Payload("yaml", "1"))


def test_an_unknown_serializer_is_refused():
    with pytest.raises(InvalidType, match="must be one of json, pickle"):
        codec.check_format("yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' stands twice"),
        ("[NaN]", "NaN is no JSON value"),
        ("-Infinity", "no JSON value"),
        ("[" * 100_000, "not JSON"),
        ("1" * 10_000, "not JSON"),
    ],
)
def test_json_from_outside_is_read_strictly(text, told):
    """G13: nothing is lost in silence, as one of two values of the same name would be."""
    with pytest.raises(NotSerializable, match=told):
        tagged_json.parse(text)


def test_json_from_outside_says_what_it_says():
    plain = tagged_json.parse('{"day": {"$date": "2030-01-31"}, "n": [1, 2.5, null, true, "é"]}')
    assert plain == {"day": {"$date": "2030-01-31"}, "n": [1, 2.5, None, True, "é"]}
    assert tagged_json.from_plain(plain)["day"] == datetime(2030, 1, 31).date()


def test_a_value_too_deep_for_the_stack():
    """G13: it may have been read where there was more of it."""
    value = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(CorruptData):
        tagged_json.from_plain(value)


def test_a_tagged_part_that_cannot_be_read():
    with pytest.raises(CorruptData):
        tagged_json.from_plain({"$date": "never"})


def _no_such_encoder(*args):
    raise TypeError("made otherwise")


@pytest.mark.parametrize("make", [None, _no_such_encoder], ids=["none", "another"])
def test_where_pythons_encoder_is_another_it_writes_the_same(make):
    other = tagged_json._writer(make)
    for value in ("é\n", 1, 1.5, True, None, [], {}, {"a": [1, {"b": "\u2028"}], "c": None}):
        assert tagged_json._write(value) == other(value)
        assert json.loads(other(value)) == value


@pytest.mark.parametrize(
    ("value", "told"),
    [(Group(pk=3), "primary key, .pk"), (Group.objects.none(), "list of primary keys")],
)
def test_rows_are_refused_with_the_way_to_do_it(value, told):
    """A row that waits in a queue is an old one; its key is not (G13)."""
    with pytest.raises(NotSerializable, match=told):
        tagged_json.to_json({"order": value})
