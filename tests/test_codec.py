"""Tests of :mod:`atp.payload.codec` and :mod:`atp.payload.json`."""

import enum
import json
import math
from array import array
from collections import Counter, OrderedDict, defaultdict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group
from hypothesis import given
from hypothesis import strategies as st

from atp.exceptions import CorruptData, InvalidType, NotSerializable
from atp.payload import codec
from atp.payload import json as tagged_json
from atp.payload.codec import Payload, decode, encode
from atp.payload.json import from_json, to_json

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


def test_special_numbers_and_plain_values_of_subclasses_come_back():
    for value in (math.nan, Decimal("NaN"), Decimal("-sNaN12"), -0.0):
        assert repr(decode(encode(value))) == repr(value)

    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    class Ratio(float):
        pass

    given = {Colour.RED: Colour.RED, "level": Level.HIGH, "ratio": Ratio(0.5)}
    assert kinds(decode(encode(given))) == kinds({"red": "red", "level": 3, "ratio": 0.5})
    Point = namedtuple("Point", "x y")
    assert kinds(decode(encode((1, (2, 3), Point(4, 5))))) == kinds([1, [2, 3], [4, 5]])
    assert kinds(decode(encode([bytearray(b"a"), memoryview(b"b")]))) == kinds([b"a", b"b"])
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Vienna"), fold=1)
    assert decode(encode(twice)).utcoffset() == timedelta(hours=1)
    assert decode(encode(twice)).timestamp() == twice.timestamp()
    day = enum.Enum("Day", {"ONE": (2030, 1, 1)}, type=date)
    flag = enum.IntFlag("Flag", "A B")
    mappings = OrderedDict(a=1), defaultdict(list, a=[1]), Counter("aab")
    for value in (Stamp(2030, 1, 1), *mappings, flag.A, day.ONE):
        found = decode(encode([value]))[0]
        assert found == value
        assert type(found) in type(value).__mro__[1:]


class Stamp(datetime):
    """As pandas.Timestamp: a datetime with nanoseconds, which equals none without."""

    nanosecond = 0

    def __eq__(self, other):
        return self.nanosecond == getattr(other, "nanosecond", 0) and super().__eq__(other)

    def replace(self, *args, **kwargs):
        made = super().replace(*args, **kwargs)
        made.nanosecond = self.nanosecond
        return made

    __hash__ = datetime.__hash__


class Listed(dict):
    """As QueryDict: it shows only the last of the values that it has."""

    def items(self):
        return [(key, values[-1]) for key, values in super().items()]


class Hashed(str):
    __slots__ = ()

    def __hash__(self):
        return 7

    def __eq__(self, other):
        return self is other


class Zone(tzinfo):
    """A zone that has no offset, as one that a test has half made."""

    def utcoffset(self, time):
        return None


def finer():
    made = Stamp(2030, 1, 1)
    made.nanosecond = 7
    return made


def test_a_value_with_more_than_would_come_back_is_refused():
    """G13: it would come back as another value."""
    for value in (
        *(finer(), Listed(a=[1, 2]), Hashed("x")),
        datetime(2030, 1, 1, tzinfo=Zone()),
        *(memoryview(b"abcd")[::2], memoryview(array("i", [1])), memoryview(b"ab").cast("b")),
    ):
        with pytest.raises(NotSerializable, match=r"^The value at \['a'\]\[1\] "):
            encode({"a": [1, value]})
    with pytest.raises(NotSerializable):
        encode({Hashed("x"): 1, Hashed("x"): 2})


class Odd(dict):
    def items(self):
        raise RuntimeError("no items here")


class Unsaid(Exception):
    def __str__(self):
        raise ValueError("nor words")


class OddList(list):
    def __iter__(self):
        raise Unsaid


def test_what_the_conversion_raises_is_not_serializable():
    """G13: the error names the value and its place."""
    for value, said in (
        (datetime(2030, 1, 1, tzinfo=tzinfo()), "NotImplementedError"),
        (Odd(), "RuntimeError: no items here"),
        (OddList(), "Unsaid"),
    ):
        with pytest.raises(NotSerializable, match=rf"at \['a'\] is a .*{said}"):
            encode({"a": value})
    for value in ("\ud800", 10**5000):
        with pytest.raises(NotSerializable, match=r"at \['a'\]\[1\]\['b'\] "):
            encode({"a": [0.5, {"b": value}]})


CYCLE = []
CYCLE.append(CYCLE)


def nested(depth, kind):
    value = 1
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


def test_what_json_cannot_carry_is_refused():
    """G13: a named exception that says what it is and where."""
    for value, told in (
        ({1, 2}, "builtins.set"),
        ({"a": [1, object()]}, r"at \['a'\]\[1\]"),
        ({1: 2}, "key 1"),
        ({"a": {None: 2}}, "key None"),
        (1j, "complex"),
        (lambda: None, "function"),
        ("\ud800", "Unicode"),
        ({"\ud800": 1}, "Unicode"),
        (10**5000, "cannot be serialized"),
        (CYCLE, "nested"),
        (nested(10_000, list), "nested"),
        (nested(10_000, dict), "nested"),
        (time(12, tzinfo=ZoneInfo("Europe/Vienna")), "no UTC offset"),
        # A row that waits in a queue is an old one; its key is not.
        (Group(pk=3), "primary key, .pk"),
        (Group.objects.none(), "list of primary keys"),
    ):
        with pytest.raises(NotSerializable, match=told):
            encode(value, what="Inputs of 't'")


def test_what_is_accepted_is_not_too_deep_to_be_read_back():
    """G13: at every depth it either comes back or is refused by name."""
    for kind in (list, dict):
        for depth in (1, 60, *range(61, 600, 7)):
            try:
                payload = encode(nested(depth, kind))
            except NotSerializable:
                assert depth > 60
            else:
                assert decode(payload) == nested(depth, kind)


def test_damaged_json_is_corrupt():
    """G13: so is a tagged value that would be rounded: nothing is cut off in silence."""
    assert from_json('{"$time": "00:00:00.123456000"}') == time(0, 0, 0, 123456)
    for text in (
        *('{"$float": "1e400"}', '{"$float": "1.5"}', '{"$timedelta": [0, 0, 0.5]}'),
        *('{"$timedelta": [1]}', '{"$datetime": "2030-01-01T00:00:00.123456789"}'),
        *('{"$time": "00:00:00.1234567"}', '{"$decimal": "1e99999999999999999999"}'),
        *("", "{", "nan", '{"$uuid": 5}', '{"$uuid": "x"}', '{"$date": "2026-13-01"}'),
        *('{"$datetime": []}', '{"$time": null}', '{"$timedelta": [1e300, 0, 0]}'),
        *('{"$decimal": {}}', '{"$bytes": "ä"}', '{"$float": "x"}', '{"$object": [[[], 1]]}'),
        "[" * 100_000,
    ):
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


def test_an_unknown_format_is_refused():
    with pytest.raises(CorruptData, match="yaml"):
        decode(Payload("yaml", "1"))
    with pytest.raises(InvalidType, match="must be one of json, pickle"):
        codec.check_format("yaml")


def test_json_from_outside_is_read_strictly():
    """G13: nothing is lost in silence, as one of two values of the same name would be."""
    plain = tagged_json.parse_json(
        '{"day": {"$date": "2030-01-31"}, "n": [1, 2.5, null, true, "é"]}'
    )
    assert plain == {"day": {"$date": "2030-01-31"}, "n": [1, 2.5, None, True, "é"]}
    assert tagged_json.from_plain(plain)["day"] == datetime(2030, 1, 31).date()
    for text, told in (
        ("{", "not JSON"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' stands twice"),
        ("-Infinity", "not a JSON value"),
        ("[" * 100_000, "not JSON"),
        ("1" * 10_000, "not JSON"),
        ('{"a": [1.5, {"b": 1e400}]}', r"1e400 is too large for a float at \['a'\]\[1\]\['b'\]"),
        ("1" * 400 + ".5", "too large"),
        ("[0.0, -0e5, 1e-400]", r"1e-400 is too close to 0 for a float at \[2\]"),
        ('{"a": [NaN]}', r"NaN is not a JSON value at \['a'\]\[0\]"),
    ):
        with pytest.raises(NotSerializable, match=told):
            tagged_json.parse_json(text)
    # It may have been read where there was more of the stack.
    value = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(CorruptData):
        tagged_json.from_plain(value)


def _no_such_encoder(*args):
    raise TypeError("made otherwise")


def test_where_pythons_encoder_is_another_it_writes_the_same():
    for other in (tagged_json._writer(None), tagged_json._writer(_no_such_encoder)):
        for value in ("é\n", 1, 1.5, True, None, [], {}, {"a": [1, {"b": "\u2028"}], "c": None}):
            assert tagged_json._write(value) == other(value)
            assert json.loads(other(value)) == value
