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
    """Return the value with the type of each part, because 1, 1.0 and True are equal."""
    if isinstance(value, dict):
        return {key: kinds(item) for key, item in value.items()}
    if isinstance(value, list):
        return [kinds(item) for item in value]
    return type(value), value


@given(VALUES)
def test_json_round_trip_keeps_values_and_their_types(value):
    """G13: encoding and decoding do not change an accepted value."""
    payload = encode(value)
    assert kinds(decode(payload)) == kinds(value)
    json.loads(payload.data, parse_constant=pytest.fail)  # other JSON parsers can read it


def test_round_trip_keeps_special_numbers_and_turns_subclasses_into_plain_types():
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
    """A datetime with nanoseconds, like pandas.Timestamp, which equals no plain datetime."""

    nanosecond = 0

    def __eq__(self, other):
        return self.nanosecond == getattr(other, "nanosecond", 0) and super().__eq__(other)

    def replace(self, *args, **kwargs):
        made = super().replace(*args, **kwargs)
        made.nanosecond = self.nanosecond
        return made

    __hash__ = datetime.__hash__


class Listed(dict):
    """A dict like Django's QueryDict, whose ``items`` shows only the last of several values."""

    def items(self):
        return [(key, values[-1]) for key, values in super().items()]


class Hashed(str):
    __slots__ = ()

    def __hash__(self):
        return 7

    def __eq__(self, other):
        return self is other


class Unsaid(Exception):
    def __str__(self):
        raise ValueError("no words")


class OddList(list):
    def __iter__(self):
        raise Unsaid


def nested(depth, kind):
    value = 1
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


def test_encode_rejects_values_that_json_cannot_represent_without_loss():
    """G13: the named exception says which value is refused and where it is."""
    finer, cycle = Stamp(2030, 1, 1), []
    finer.nanosecond = 7
    cycle.append(cycle)
    for value, told in (
        ({1, 2}, "builtins.set"),
        ({1: 2}, "key 1"),
        ({"a": {None: 2}}, "key None"),
        ({Hashed("x"): 1, Hashed("x"): 2}, "holds more than the plain str"),
        (1j, "complex"),
        ("\ud800", "Unicode"),
        ({"\ud800": 1}, "Unicode"),
        (10**5000, "cannot be serialized"),
        (cycle, "nested"),
        (nested(10_000, list), "nested"),
        (nested(10_000, dict), "nested"),
        (time(12, tzinfo=ZoneInfo("Europe/Vienna")), "no UTC offset"),
        # A model row would be outdated when its task runs; a primary key is not.
        (Group(pk=3), "primary key, .pk"),
        (Group.objects.none(), "list of primary keys"),
    ):
        with pytest.raises(NotSerializable, match=told):
            encode(value, what="Inputs of 't'")
    for value, told in (
        *((each, "") for each in (object(), finer, Listed(a=[1, 2]), Hashed("x"), "\ud800")),
        *((each, "") for each in (10**5000, memoryview(b"abcd")[::2], memoryview(array("i", [1])))),
        (memoryview(b"ab").cast("b"), ""),
        (datetime(2030, 1, 1, tzinfo=tzinfo()), "is a .*NotImplementedError"),
        (OddList(), "is a .*Unsaid"),
    ):
        with pytest.raises(NotSerializable, match=rf"^The value at \['a'\]\[1\] .*{told}"):
            encode({"a": [1, value]})


def test_deeply_nested_value_is_refused_or_decodes_to_itself():
    """G13: at every depth, a refused value raises a named exception."""
    for kind in (list, dict):
        for depth in (1, 60, *range(61, 600, 7)):
            try:
                payload = encode(nested(depth, kind))
            except NotSerializable:
                assert depth > 60
            else:
                assert decode(payload) == nested(depth, kind)


def test_damaged_json_or_an_unknown_format_raises_corrupt_data():
    """G13: a tagged value that would be rounded is corrupt, because nothing is lost silently."""
    with pytest.raises(CorruptData, match="yaml"):
        decode(Payload("yaml", "1"))
    with pytest.raises(InvalidType, match="must be one of json, pickle"):
        codec.check_format("yaml")
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
def test_randomly_damaged_json_decodes_or_raises_corrupt_data(value, data):
    """No exception other than CorruptData is raised, whatever happens to the text."""
    text = to_json(value)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    try:
        from_json(text[:start] + data.draw(st.text(max_size=3)) + text[end:])
    except CorruptData:
        pass


@pytest.mark.slow
def test_parse_json_rejects_documents_that_would_lose_information():
    """G13: nothing is lost silently, for example one of two values under the same key."""
    plain = tagged_json.parse_json(
        '{"day": {"$date": "2030-01-31"}, "n": [1, 2.5, null, true, "é"]}'
    )
    assert plain == {"day": {"$date": "2030-01-31"}, "n": [1, 2.5, None, True, "é"]}
    assert tagged_json.from_plain(plain)["day"] == datetime(2030, 1, 31).date()
    for text, told in (
        ("{", "not JSON"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' occurs twice"),
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
    # A value this deep might have been parsed where more of the stack was free.
    value = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(CorruptData):
        tagged_json.from_plain(value)


def test_fallback_json_writer_writes_the_same_text_as_the_usual_writer():
    def no_such_encoder(*args):
        raise TypeError("made otherwise")

    for other in (tagged_json._writer(None), tagged_json._writer(no_such_encoder)):
        for value in ("é\n", 1, 1.5, True, None, [], {}, {"a": [1, {"b": "\u2028"}], "c": None}):
            assert tagged_json._write(value) == other(value)
            assert json.loads(other(value)) == value
