"""JSON with tags for values that plain JSON lacks.

Dates, times, timedeltas, UUIDs, Decimals, bytes, the floats that JSON lacks, and the results of
other nodes of a graph are tagged: each becomes an object with one key that starts with "$". A
value that would not come back equal is refused with :class:`~atp.exceptions.NotSerializable`.
Exceptions are made on purpose: tuples come back as lists, bytearrays and memoryviews as bytes, and
instances of subclasses as the plain value that they equal.
"""

import base64
import json
import math
import operator
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from django.db.models import Model, QuerySet
from django.utils.functional import Promise

from ..exceptions import CorruptData, NotSerializable
from ..graphs import placeholders
from ..text import exception_words, shorten

# Enough levels for data, and far fewer than those that exhaust the stack of a reader.
MAX_DEPTH = 100

# The keys and indexes that lead to a part of a value.
Path = tuple[str | int, ...]


def to_json(value: Any, what: str = "The value") -> str:
    """Return ``value`` as JSON text. Raises NotSerializable, also if the value's code raises."""
    plain = None
    try:
        plain = value if _is_plain(value) else _to_plain(value, what, ())
        text = _write(plain)
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as error:
        at = _at(_place_of_unwritable(plain))
        raise NotSerializable(f"{what}{at} has text that is not valid Unicode: {error}.") from None
    except NotSerializable:
        raise
    # An integer with more digits than Python converts, or a stack that was deep already.
    except Exception as error:
        at = _at(_place_of_unwritable(plain))
        raise NotSerializable(
            f"{what}{at} cannot be serialized: {exception_words(error)}."
        ) from error
    return text


def _place_of_unwritable(plain: Any) -> Path:
    """Return the path of the first part that JSON in UTF-8 cannot represent."""

    def is_unwritable(part: Any) -> bool:
        try:
            _write(part).encode()
        except Exception:
            return True
        return False

    try:
        return _path_of(is_unwritable, plain)
    except RecursionError:
        return ()


def _path_of(is_found: Callable[[Any], bool], value: Any) -> Path:
    """Return the path of the first part of a plain value, other than a list or dict, that is found.

    Returns an empty path if there is none.
    """
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            if isinstance(key, str) and is_found(key):
                return (key,)
            if isinstance(item, dict | list):
                if below := _path_of(is_found, item):
                    return (key, *below)
            elif is_found(item):
                return (key,)
    return ()


def from_json(text: str) -> Any:
    """Return the value from text that :func:`to_json` wrote. Raises CorruptData."""
    try:
        return _read(text)
    # A tag may hold anything.
    except Exception as error:
        why = shorten(str(error) or type(error).__name__, 300)
        raise CorruptData(f"Not the JSON that ATP writes: {why}.") from error


def parse_json(text: str | bytes) -> Any:
    """Return the plain value from JSON text of a client; :func:`from_plain` reads its tags.

    This is stricter than Python's json. It refuses a name that an object has twice, because one of
    its values would be lost (G13). It also refuses NaN and Infinity, which JSON does not have, and
    numbers beyond the range of floats. Raises NotSerializable.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique_names,
            parse_constant=_refuse_constant,
            parse_float=_read_float,
        )
    except RecursionError:
        raise NotSerializable("not JSON that can be read: it is nested too deeply") from None
    except _OddNumber as error:
        raise NotSerializable(f"not JSON: {error}{_at(_place_of_odd_number(text))}") from None
    except ValueError as error:
        raise NotSerializable(f"not JSON: {error}") from None


def from_plain(value: Any) -> Any:
    """Return a plain value with dates, times and so on for its tags. Raises CorruptData."""
    try:
        text = json.dumps(value)
    except RecursionError as error:
        raise CorruptData("It is nested too deeply.") from error
    return from_json(text)


def _unique_names(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's items as a dict. Raises ValueError if it has a name twice."""
    values = dict(items)
    if len(values) < len(items):
        seen = set()
        twice = next(name for name, _ in items if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{shorten(repr(twice), 100)} stands twice in one object")
    return values


def _read_pair(value: Any) -> tuple[str, Any]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r} is not a pair of a name and a value")
    name, item = value
    return name, item


class _OddNumber(ValueError):
    """A number that no float can represent."""


def _refuse_constant(word: str) -> Any:
    raise _OddNumber(f"{word} is not a JSON value")


def _read_float(text: str) -> float:
    """Return a number as a float. Raises _OddNumber if it would become ∞ or 0."""
    number = float(text)
    if math.isinf(number):
        raise _OddNumber(f"{shorten(text, 40)} is too large for a float")
    if number == 0 and text.lower().partition("e")[0].strip("-0."):
        raise _OddNumber(f"{shorten(text, 40)} is too close to 0 for a float")
    return number


def _place_of_odd_number(text: str | bytes) -> Path:
    """Return the path of the first number in JSON text that no float can represent."""
    odd = object()

    def number(text: str) -> object:
        try:
            return _read_float(text)
        except _OddNumber:
            return odd

    try:
        value = json.loads(text, parse_float=number, parse_constant=lambda _: odd)
        return _path_of(lambda part: part is odd, value)
    except (ValueError, RecursionError):
        return ()


_PLAIN = (str, int, bool, type(None))


def _is_plain(value: Any) -> bool:
    """Return True if the value is a flat dict of plain JSON values, as most arguments are."""
    if type(value) is not dict:
        return False
    for key, item in value.items():
        if type(key) is not str or type(item) not in _PLAIN or key.startswith("$"):
            return False
    return True


def _to_plain(value: Any, what: str, path: Path) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return _plain_dict(value, what, path)
    if kind in (list, tuple):
        _check_depth(path, what)
        return [_to_plain(item, what, (*path, index)) for index, item in enumerate(value)]
    try:
        if kind in _WRITERS:
            return _WRITERS[kind](value)
        for base in _BASES:
            if issubclass(kind, base):
                return _write_subclass(value, base, what, path)
        advice = _advice_for(value)
    except NotSerializable:
        raise
    except _Refused as error:
        raise NotSerializable(f"{what}{_at(path)} {error}") from None
    # The value's own code may raise anything.
    except Exception as error:
        raise NotSerializable(
            f"{what}{_at(path)} is a {_name(kind)}, which cannot be converted: "
            f"{exception_words(error)}."
        ) from error
    raise NotSerializable(
        f"{what}{_at(path)} is a {_name(kind)}, which JSON cannot carry. {advice}"
    )


class _Refused(Exception):
    """A value is refused; its name and path are put before the message."""


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _write_subclass(value: Any, base: type, what: str, path: Path) -> Any:
    """Return the plain value that an instance of a subclass equals, with tags.

    For example, a member of an IntEnum comes back as an int. Raises _Refused for a value that holds
    more than its base class can, for example a pandas.Timestamp with nanoseconds.
    """
    if issubclass(base, dict):
        plain: Any = dict(value.items())
        is_same = len(plain) == dict.__len__(value) and all(
            key in plain and plain[key] is item for key, item in dict.items(value)
        )
    elif issubclass(base, (list, tuple)):
        plain, stored = list(value), list(base.__iter__(value))
        is_same = len(plain) == len(stored) and all(map(operator.is_, plain, stored))
    else:
        tagged = _WRITERS[base](value) if base in _WRITERS else _PLAIN_OF[base](value)
        plain = _from_tagged(tagged) if isinstance(tagged, dict) else tagged
        if not _is_same(plain, value):
            raise _Refused(
                f"is a {_name(type(value))}, which holds more than the {base.__name__} that would "
                "come back."
            )
        return tagged
    if not is_same:
        raise _Refused(
            f"is a {_name(type(value))}, whose items differ from those of the {base.__name__} that "
            "would come back: give that instead."
        )
    return _to_plain(plain, what, path)


def _is_same(plain: Any, value: Any) -> bool:
    """Return True if a plain value equals one of a subclass; NaN is the same as NaN."""
    if isinstance(value, datetime):
        # Times in different zones are never equal in an hour that a zone repeats or skips.
        if plain.utcoffset() != value.utcoffset():
            return False
        plain, value = plain.replace(tzinfo=None), value.replace(tzinfo=None)
    return bool(plain == value) or bool(plain != plain and value != value)  # noqa: PLR0124


def _advice_for(value: Any) -> str:
    """Return a sentence about a value that the caller could give instead."""
    if isinstance(value, placeholders.Result):
        return "The result of a node can be given to nodes of its graph only: see Graph.add()."
    if isinstance(value, Model):
        return "Give its primary key, .pk, and let the handler read the row when it runs."
    if isinstance(value, QuerySet):
        return "Give a list of primary keys, and let the handler read the rows when it runs."
    if isinstance(value, Enum):
        return "Give its .value."
    if isinstance(value, Promise):
        return "Give text, str(…): in the handler another language may be active."
    if type(value).__module__.partition(".")[0] == "numpy":
        return "Give Python's own value, .item() or .tolist()."
    return "Give JSON values, dates, times, timedeltas, UUIDs, Decimals or bytes."


def _plain_dict(value: dict[Any, Any], what: str, path: Path) -> dict[str, Any]:
    _check_depth(path, what)
    plain = {}
    for name, item in value.items():
        key = name if type(name) is str else _plain_key(name, what, path)
        plain[key] = _to_plain(item, what, (*path, key))
    if len(plain) < len(value):
        raise NotSerializable(f"{what}{_at(path)} has several keys with the same text.")
    if len(plain) == 1 and next(iter(plain)).startswith("$"):
        return {"$object": [[key, item] for key, item in plain.items()]}
    return plain


def _plain_key(key: Any, what: str, path: Path) -> str:
    if not isinstance(key, str):
        raise NotSerializable(
            f"{what}{_at(path)} has the key {_describe_key(key)}; JSON objects have text keys only."
        )
    return str(_to_plain(key, f"A key of {what}", path))


def _describe_key(value: Any) -> str:
    try:
        return shorten(repr(value), 100)
    except Exception:
        return f"of {_name(type(value))}"


def _check_depth(path: Path, what: str) -> None:
    if len(path) >= MAX_DEPTH:
        raise NotSerializable(f"{what} is nested more than {MAX_DEPTH} levels deep.")


def _at(path: Path) -> str:
    return " at " + "".join(f"[{shorten(repr(part))}]" for part in path) if path else ""


def _write_datetime(value: datetime) -> dict[str, str]:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise _Refused(f"is a time in {value.tzinfo}, which has no UTC offset to write.")
    return {"$datetime": datetime.isoformat(value)}


def _write_time(value: time) -> dict[str, str]:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise _Refused(f"is a time in {value.tzinfo}, which has no UTC offset to write.")
    return {"$time": time.isoformat(value)}


def _write_bytes(value: bytes | bytearray | memoryview) -> dict[str, str]:
    if type(value) is memoryview and not holds_bytes(value):
        raise _Refused("is a memoryview that is not a plain row of bytes.")
    return {"$bytes": base64.b64encode(value).decode()}


def holds_bytes(view: memoryview) -> bool:
    """Return True if a memoryview is a plain row of bytes, without other items or steps."""
    return view.ndim == 1 and view.c_contiguous and view.format == "B"


def _write_float(value: float) -> float | dict[str, str]:
    number = float.__float__(value)
    return number if math.isfinite(number) else {"$float": repr(number)}


# The functions that write values of types that JSON lacks. A Decimal keeps its text.
_WRITERS: dict[type, Callable[[Any], Any]] = {
    float: _write_float,
    datetime: _write_datetime,
    date: lambda v: {"$date": date.isoformat(v)},
    time: _write_time,
    timedelta: lambda v: {"$timedelta": [v.days, v.seconds, v.microseconds]},
    UUID: lambda v: {"$uuid": UUID.__str__(v)},
    Decimal: lambda v: {"$decimal": Decimal.__str__(v)},
    bytes: _write_bytes,
    bytearray: _write_bytes,
    memoryview: _write_bytes,
    placeholders.Placeholder: lambda v: {placeholders.TAG: placeholders.encode_result(v)},
}
_PLAIN_OF: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__}
# The types whose subclasses are written, too. datetime stands before date, its base class.
_BASES = (
    *(datetime, date, time, timedelta, UUID, Decimal, bytes, bytearray),
    *(str, int, float, dict, list, tuple),
)
_TOO_FINE = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")


def _time_reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader that refuses digits after the microseconds; Python's own drops them."""

    def exact(text: str) -> Any:
        if _TOO_FINE.search(text):
            raise ValueError(f"{shorten(text, 60)} is finer than a microsecond")
        return read(text)

    return exact


def _read_duration(parts: list[int]) -> timedelta:
    days, seconds, microseconds = parts
    if not all(type(part) is int for part in parts):
        raise ValueError("a timedelta has whole days, seconds and microseconds")
    return timedelta(days, seconds, microseconds)


def _read_odd_float(text: str) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError("a $float is nan, inf or -inf")
    return float(text)


_READERS: dict[str, Callable[[Any], Any]] = {
    "$datetime": _time_reader(datetime.fromisoformat),
    "$date": date.fromisoformat,
    "$time": _time_reader(time.fromisoformat),
    "$timedelta": _read_duration,
    "$uuid": UUID,
    "$decimal": Decimal,
    "$bytes": lambda v: base64.b64decode(v, validate=True),
    "$float": _read_odd_float,
    placeholders.TAG: placeholders.decode_result,
    "$object": lambda v: _unique_names([_read_pair(each) for each in v]),
}


def _from_tagged(value: dict[str, Any]) -> Any:
    if len(value) == 1:
        [(tag, item)] = value.items()
        reader = _READERS.get(tag)
        if reader is not None:
            return reader(item)
    return value


def _writer(
    make: Any = json.encoder.c_make_encoder,  # type: ignore[attr-defined]
) -> Callable[[Any], str]:
    """Return a function that writes JSON, always with the same C encoder.

    Python's JSONEncoder makes a new C encoder for each value, which takes longer than writing a
    small value. If there is no C encoder, or its signature is different, this returns
    JSONEncoder's own function.
    """
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)
    quote = json.encoder.encode_basestring
    try:
        write = make(None, encoder.default, quote, None, ":", ",", False, False, True)
    except TypeError:
        return encoder.encode
    return lambda value: "".join(write(value, 0))


# Made only once, while json.dumps() and json.loads() make new ones for each call.
_write = _writer()
_read_tagged = json.JSONDecoder(object_hook=_from_tagged).decode
_read_untagged = json.JSONDecoder().raw_decode


def _read(text: str) -> Any:
    # Most values have no tags, and this is faster for them.
    if '"$' not in text:
        try:
            value, end = _read_untagged(text)
        except ValueError:
            end = None  # the decoder below tells the place, and allows space around the value
        if end == len(text):
            return value
    return _read_tagged(text)
