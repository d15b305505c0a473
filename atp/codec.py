"""Serialization of inputs and outputs: JSON by default, signed pickle by explicit setting.

JSON carries what JSON has, and beside it dates, times, timedeltas, UUIDs,
Decimals, bytes and the floats that JSON lacks, each as an object with one
key that starts with "$". Everything comes back equal to what went in, or is
refused with :class:`~atp.exceptions.NotSerializable`; tuples come back as
lists.
"""

import base64
import json
import math
import pickle
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from django.core import signing

from .conf import settings
from .exceptions import CorruptData, InvalidType, NotSerializable, TooLarge

# Deep enough for data, and far from where reading it back exhausts the stack.
MAX_DEPTH = 100

JSON = "json"
PICKLE = "pickle"
FORMATS = (JSON, PICKLE)
PICKLE_CONTENT_TYPE = "application/x-atp-signed-pickle"


class Payload(NamedTuple):
    """A serialized value: its format and its text."""

    format: str
    data: str


def encode(value, *, format=JSON, limit=None, what="The value"):
    """Serialize ``value``.

    ``limit`` is the largest size in bytes. ``what`` names the value in error
    messages. Raises NotSerializable or TooLarge.
    """
    if format == PICKLE:
        data = _pickle(value, what)
    else:
        data = to_json(value, what)
    # A character is four bytes at most.
    if limit is not None and 4 * len(data) > limit and len(data.encode()) > limit:
        raise TooLarge(
            f"{what}: {len(data.encode())} bytes when serialized, the limit is {limit} bytes. "
            "Pass a path or a key instead of the data itself."
        )
    return Payload(format, data)


def decode(payload):
    """Return the value that was serialized as ``payload``. Raises CorruptData."""
    if payload.format == PICKLE:
        return _unpickle(payload.data)
    if payload.format != JSON:
        raise CorruptData(f"Unknown format {payload.format!r}.")
    return from_json(payload.data)


def check_format(format):
    """Refuse a format that is unknown, or pickle where the project has not allowed it."""
    if format not in FORMATS:
        raise InvalidType(f"serializer={format!r}: must be one of {', '.join(FORMATS)}.")
    if format == PICKLE and not settings.ALLOW_PICKLE:
        raise InvalidType(
            "serializer='pickle' needs ATP['ALLOW_PICKLE'] = True: whoever knows SECRET_KEY "
            "and can write to the queue could run code in the workers."
        )


def to_json(value, what="The value"):
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


def from_json(text):
    """Return the value of what :func:`to_json` wrote. Raises CorruptData."""
    try:
        return _read(text)
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise CorruptData(f"Not the JSON that ATP writes: {error}.") from error


def parse(text):
    """Return what JSON text from outside says, as it stands there: see :func:`from_plain`.

    It is stricter than Python's json. A name that stands twice in an object
    is refused, since one of its values would be lost (G13), and so are NaN
    and Infinity, which JSON does not have. Raises NotSerializable.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise NotSerializable(f"not JSON: {error}") from None


def from_plain(value):
    """Return a value with its tagged parts read, as dates and times. Raises CorruptData."""
    try:
        text = json.dumps(value)
    except RecursionError as error:
        raise CorruptData(f"Nested too deeply: {error}.") from error
    return from_json(text)


def _once(items):
    named = dict(items)
    if len(named) < len(items):
        seen = set()
        twice = next(name for name, _ in items if name in seen or seen.add(name))
        raise ValueError(f"{twice!r} stands twice in one object")
    return named


def _no_constant(word):
    raise ValueError(f"{word} is no JSON value")


_PLAIN = (str, int, bool, type(None))


def _is_plain(value):
    """Whether it is a dict, as arguments are, that JSON has as it is and at one level."""
    if type(value) is not dict:
        return False
    for key, item in value.items():
        if type(key) is not str or type(item) not in _PLAIN or key.startswith("$"):
            return False
    return True


def _to_plain(value, what, path):
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
        "JSON values, dates, times, timedeltas, UUIDs, Decimals and bytes can be."
    )


def _plain_dict(value, what, path):
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


def _check_depth(path, what):
    if len(path) >= MAX_DEPTH:
        raise NotSerializable(f"{what} is nested more than {MAX_DEPTH} levels deep.")


def _at(path):
    return " at " + "".join(f"[{part!r}]" for part in path) if path else ""


def _time(value):
    if value.tzinfo is not None and value.utcoffset() is None:
        raise NotSerializable(f"A time in {value.tzinfo} has no offset that could be written.")
    return value.isoformat()


# datetime before date, of which it is a subclass. Decimal keeps its text.
_WRITERS = (
    (datetime, "$datetime", datetime.isoformat),
    (date, "$date", date.isoformat),
    (time, "$time", _time),
    (timedelta, "$timedelta", lambda v: [v.days, v.seconds, v.microseconds]),
    (UUID, "$uuid", str),
    (Decimal, "$decimal", str),
    ((bytes, bytearray, memoryview), "$bytes", lambda v: base64.b64encode(v).decode()),
)
_READERS = {
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$timedelta": lambda v: timedelta(*v),
    "$uuid": UUID,
    "$decimal": Decimal,
    "$bytes": lambda v: base64.b64decode(v, validate=True),
    "$float": float,
    "$object": dict,
}


def _from_tagged(value):
    if len(value) == 1:
        [(tag, item)] = value.items()
        reader = _READERS.get(tag)
        if reader is not None:
            return reader(item)
    return value


def _writer(make=json.encoder.c_make_encoder):
    """Return what writes JSON, with the part of Python's encoder that is in C made once.

    The encoder makes that anew for each value, which takes longer than to write one that
    is small. Where there is none, or it is made otherwise, it is the encoder itself.
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


def _read(text):
    # Most have no tags, and need not be looked through for them.
    if '"$' not in text:
        try:
            value, end = _read_untagged(text)
        except ValueError:
            end = None  # the other says where, and knows space around it
        if end == len(text):
            return value
    return _read_tagged(text)


_SALT = "atp.codec"


def _pickle(value, what):
    try:
        raw = pickle.dumps(value, protocol=5)
    except Exception as error:
        raise NotSerializable(f"{what} cannot be pickled: {error}") from error
    return signing.Signer(salt=_SALT).sign(base64.b64encode(raw).decode())


def _unpickle(text):
    if not settings.ALLOW_PICKLE:
        raise CorruptData("This is a pickle, and ATP['ALLOW_PICKLE'] is not set.")
    try:
        raw = base64.b64decode(signing.Signer(salt=_SALT).unsign(text))
    except signing.BadSignature as error:
        raise CorruptData(f"The signature of a pickle is wrong: {error}") from error
    try:
        return pickle.loads(raw)  # noqa: S301 (its signature was checked)
    except Exception as error:
        raise CorruptData(f"A pickle cannot be loaded: {error!r}.") from error
