"""Read and write JSON with tags, which represent values that plain JSON does not have.

Dates, times, timedeltas, UUIDs, Decimals, bytes, NaN and infinite floats, and the results of other
nodes of a graph are tagged. Each becomes an object with one key that starts with "$". If reading a
value back would not return an equal value, writing raises
:class:`~atp.exceptions.NotSerializable`. There are deliberate exceptions: tuples come back as
lists, bytearrays and memoryviews as bytes, and instances of subclasses as the plain value that they
equal.
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
from . import references

# Enough levels for data, and far fewer than those that exhaust the stack of a reader.
MAX_DEPTH = 100

# The keys and indexes that lead to a part of a value.
Path = tuple[str | int, ...]


def to_json(value: Any, what: str = "The value") -> str:
    """Return ``value`` as JSON text.

    ``what`` names the value in error messages. Raises NotSerializable, even if the value's own
    code raises another exception.
    """
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
    """Return the path to the first part of a value that JSON in UTF-8 cannot represent."""

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
    """Return the path to the first part of a plain value for which ``is_found`` returns True.

    The parts are keys, and values other than lists and dicts. Returns an empty path if no part is
    found.
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
    """Parse text that :func:`to_json` wrote, and return the value. Raises CorruptData."""
    try:
        return _read(text)
    # A tag can have any value, so a reader can raise any exception.
    except Exception as error:
        why = shorten(str(error) or type(error).__name__, 300)
        raise CorruptData(f"Not the JSON that ATP writes: {why}.") from error


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text from a client, without reading tags; :func:`from_plain` reads them.

    This is stricter than Python's json module. If an object has the same name twice, the text is
    rejected, because one of the two values would be lost (G13). NaN and Infinity, which JSON does
    not have, and numbers beyond the range of floats are also rejected. Raises NotSerializable.
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
    """Return a plain JSON value after replacing its tags with dates, times and so on.

    Raises CorruptData.
    """
    try:
        text = json.dumps(value)
    except RecursionError as error:
        raise CorruptData("The value is nested too deeply.") from error
    return from_json(text)


def _unique_names(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the items of a JSON object as a dict. Raises ValueError if a name occurs twice."""
    values = dict(items)
    if len(values) < len(items):
        seen = set()
        twice = next(name for name, _ in items if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{shorten(repr(twice), 100)} occurs twice in one object")
    return values


def _read_pair(value: Any) -> tuple[str, Any]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r} is not a pair of a name and a value")
    name, item = value
    return name, item


class _OddNumber(ValueError):
    """Raised for a number that no float can represent."""


def _refuse_constant(word: str) -> Any:
    raise _OddNumber(f"{word} is not a JSON value")


def _read_float(text: str) -> float:
    """Parse a number as a float. Raises _OddNumber if the float would be ∞, or wrongly 0."""
    number = float(text)
    if math.isinf(number):
        raise _OddNumber(f"{shorten(text, 40)} is too large for a float")
    if number == 0 and text.lower().partition("e")[0].strip("-0."):
        raise _OddNumber(f"{shorten(text, 40)} is too close to 0 for a float")
    return number


def _place_of_odd_number(text: str | bytes) -> Path:
    """Return the path to the first number in JSON text that no float can represent."""
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
        f"{what}{_at(path)} is a {_name(kind)}, which JSON cannot represent. {advice}"
    )


class _Refused(Exception):
    """Raised for a value that cannot be written; the caller adds the value's name and path."""


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _write_subclass(value: Any, base: type, what: str, path: Path) -> Any:
    """Return the tagged form of the plain value that an instance of a subclass equals.

    For example, a member of an IntEnum becomes an int. Raises _Refused for a value that holds more
    than its base class can, for example a pandas.Timestamp with nanoseconds.
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
                f"is a {_name(type(value))}, which holds more than the plain {base.__name__} that "
                "ATP would store."
            )
        return tagged
    if not is_same:
        raise _Refused(
            f"is a {_name(type(value))}, whose items differ from those of the plain "
            f"{base.__name__} that ATP would store. Give a plain {base.__name__} instead."
        )
    return _to_plain(plain, what, path)


def _is_same(plain: Any, value: Any) -> bool:
    """Return True if a plain value equals an instance of a subclass, with NaN equal to NaN."""
    if isinstance(value, datetime):
        # Times in different zones are never equal in an hour that a zone repeats or skips.
        if plain.utcoffset() != value.utcoffset():
            return False
        plain, value = plain.replace(tzinfo=None), value.replace(tzinfo=None)
    return bool(plain == value) or bool(plain != plain and value != value)  # noqa: PLR0124


def _advice_for(value: Any) -> str:
    """Return a sentence that tells the caller what to pass instead of a value."""
    if isinstance(value, placeholders.Result):
        return "Only nodes of the same graph can take the result of a node: see Graph.add()."
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
        raise _Refused("is a memoryview that is not a contiguous sequence of bytes.")
    return {"$bytes": base64.b64encode(value).decode()}


def holds_bytes(view: memoryview) -> bool:
    """Return True if a memoryview is a contiguous, one-dimensional sequence of bytes."""
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
    references.Reference: references.encode,
}
_PLAIN_OF: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__}
# The types whose subclasses can be written. datetime comes before date, its base class.
_BASES = (
    *(datetime, date, time, timedelta, UUID, Decimal, bytes, bytearray),
    *(str, int, float, dict, list, tuple),
)
_TOO_FINE = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")


def _time_reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap a function that parses a time, so that it rejects digits after the microseconds.

    Python's own functions drop these digits without an error.
    """

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
    references.TAG: references.decode,
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
    """Return a function that writes a value as JSON and reuses one C encoder.

    Python's JSONEncoder makes a new C encoder for each value, which takes longer than writing a
    small value. If Python has no C encoder, or one with a different signature, this returns the
    encode() method of a JSONEncoder.
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
# Each tag is the name of a member, so it begins like this.
TAG_BEGINS = '"$'


def _read(text: str) -> Any:
    # Most values have no tags, and this is faster for them.
    if TAG_BEGINS not in text:
        try:
            value, end = _read_untagged(text)
        except ValueError:
            # The decoder below allows space around the value, and its error names the position.
            end = None
        if end == len(text):
            return value
    return _read_tagged(text)
