"""JSON that also carries values which plain JSON lacks.

Dates, times, timedeltas, UUIDs, Decimals, bytes, the floats that JSON lacks, and the results of
other nodes of a graph are tagged: each is written as an object with one key that starts with
"$". Every value is either read back equal or refused with
:class:`~atp.exceptions.NotSerializable`; tuples come back as lists.
"""

import base64
import json
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Model, QuerySet

from ..exceptions import CorruptData, NotSerializable
from ..graphs import results

# Deep enough for data, and far from where reading it back exhausts the stack.
MAX_DEPTH = 100


def to_json(value: Any, what: str = "The value") -> str:
    """Return ``value`` as JSON text."""
    try:
        text = _write(value if _is_plain(value) else _to_plain(value, what, ()))
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as error:
        raise NotSerializable(f"{what} has text that is not valid Unicode: {error}.") from None
    except NotSerializable:
        raise
    except (ValueError, RecursionError) as error:
        # An integer of more digits than Python converts, or a stack that was deep already.
        raise NotSerializable(f"{what} cannot be serialized: {error}.") from None
    return text


def from_json(text: str) -> Any:
    """Return the value from text that :func:`to_json` wrote. Raises CorruptData."""
    try:
        return _read(text)
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise CorruptData(f"Not the JSON that ATP writes: {error}.") from error


def parse(text: str | bytes) -> Any:
    """Return the plain value of JSON text from outside; :func:`from_plain` reads its tags.

    It is stricter than Python's json. A name that stands twice in an object
    is refused, since one of its values would be lost (G13), and so are NaN
    and Infinity, which JSON does not have. Raises NotSerializable.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise NotSerializable("not JSON that can be read: it is nested too deeply") from None
    except ValueError as error:
        raise NotSerializable(f"not JSON: {error}") from None


def from_plain(value: Any) -> Any:
    """Return a plain value with its tagged parts as dates, times and so on. Raises CorruptData."""
    try:
        text = json.dumps(value)
    except RecursionError as error:
        raise CorruptData("It is nested too deeply.") from error
    return from_json(text)


def _once(items: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(items)
    if len(named) < len(items):
        seen = set()
        twice = next(name for name, _ in items if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice!r} stands twice in one object")
    return named


def _pair(value: Any) -> tuple[str, Any]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r} is no pair of a name and a value")
    name, item = value
    return name, item


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON value")


_PLAIN = (str, int, bool, type(None))


def _is_plain(value: Any) -> bool:
    """Tell whether the value is a flat dict of plain JSON values, as most arguments are."""
    if type(value) is not dict:
        return False
    for key, item in value.items():
        if type(key) is not str or type(item) not in _PLAIN or key.startswith("$"):
            return False
    return True


def _to_plain(value: Any, what: str, path: tuple[str | int, ...]) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return _plain_dict(value, what, path)
    if kind in (list, tuple):
        _check_depth(path, what)
        return [_to_plain(item, what, (*path, index)) for index, item in enumerate(value)]
    for base, tag, write in _WRITERS:
        if isinstance(value, base):
            return {tag: write(value)} if tag else write(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, (str, int)):
        # An enum member or another subclass: it comes back as the plain value.
        return str.__str__(value) if isinstance(value, str) else int(value)
    if isinstance(value, dict):
        return _plain_dict(value, what, path)
    if isinstance(value, (list, tuple)):
        return _to_plain(list(value), what, path)
    raise NotSerializable(
        f"{what}{_at(path)} is a {kind.__module__}.{kind.__qualname__}, which JSON cannot carry. "
        f"{_instead_of(value)}"
    )


def _instead_of(value: Any) -> str:
    """Return a hint at values that could be given instead of this one."""
    if isinstance(value, results.Result):
        return "The result of a node can be given to nodes of its graph only: see Graph.add()."
    if isinstance(value, Model):
        return "Give its primary key, .pk, and let the handler read the row when it runs."
    if isinstance(value, QuerySet):
        return "Give a list of primary keys, and let the handler read the rows when it runs."
    return "JSON values, dates, times, timedeltas, UUIDs, Decimals and bytes can be."


def _plain_dict(value: dict[Any, Any], what: str, path: tuple[str | int, ...]) -> dict[str, Any]:
    _check_depth(path, what)
    plain = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotSerializable(
                f"{what}{_at(path)} has the key {key!r}; JSON objects have text keys only."
            )
        plain[key] = _to_plain(item, what, (*path, key))
    if len(plain) == 1 and next(iter(plain)).startswith("$"):
        return {"$object": [[key, item] for key, item in plain.items()]}
    return plain


def _check_depth(path: tuple[str | int, ...], what: str) -> None:
    if len(path) >= MAX_DEPTH:
        raise NotSerializable(f"{what} is nested more than {MAX_DEPTH} levels deep.")


def _at(path: tuple[str | int, ...]) -> str:
    return " at " + "".join(f"[{part!r}]" for part in path) if path else ""


def _time(value: time) -> str:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise NotSerializable(f"A time in {value.tzinfo} has no offset that could be written.")
    return value.isoformat()


# datetime before date, of which it is a subclass. Decimal keeps its text.
_WRITERS: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (datetime, "$datetime", datetime.isoformat),
    (date, "$date", date.isoformat),
    (time, "$time", _time),
    (timedelta, "$timedelta", lambda v: [v.days, v.seconds, v.microseconds]),
    (UUID, "$uuid", str),
    (Decimal, "$decimal", str),
    ((bytes, bytearray, memoryview), "$bytes", lambda v: base64.b64encode(v).decode()),
    (results.Placeholder, results.TAG, results.written),
)
_READERS: dict[str, Callable[[Any], Any]] = {
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$timedelta": lambda v: timedelta(*v),
    "$uuid": UUID,
    "$decimal": Decimal,
    "$bytes": lambda v: base64.b64decode(v, validate=True),
    "$float": float,
    results.TAG: results.read,
    "$object": lambda v: _once([_pair(each) for each in v]),
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
    """Return a function that writes JSON with a C encoder that is made only once.

    Python's JSONEncoder makes its C encoder anew for each value, which takes longer than
    writing a small value. If there is no C encoder, or if its signature is another one, the
    function is JSONEncoder's own.
    """
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)
    quote = json.encoder.encode_basestring
    try:
        write = make(None, encoder.default, quote, None, ":", ",", False, False, True)
    except TypeError:
        return encoder.encode
    return lambda value: "".join(write(value, 0))


# Made once: json.dumps() and json.loads() make another each time.
_write = _writer()
_read_tagged = json.JSONDecoder(object_hook=_from_tagged).decode
_read_untagged = json.JSONDecoder().raw_decode


def _read(text: str) -> Any:
    # Most values have no tags and need not be searched for them.
    if '"$' not in text:
        try:
            value, end = _read_untagged(text)
        except ValueError:
            end = None  # the decoder below says where, and allows space around the value
        if end == len(text):
            return value
    return _read_tagged(text)
