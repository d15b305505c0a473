"""Serialization of inputs and outputs, by format: JSON by default, or signed pickles.

Only Types that ask for pickles have them. A process reads a pickle only if ``ATP["ALLOW_PICKLE"]``
is set: whoever can sign a pickle can run code in the workers (G14).
"""

import base64
import pickle
from io import BytesIO
from typing import Any, NamedTuple

from django.core import signing

from ..conf import settings
from ..exceptions import CorruptData, InvalidType, NotSerializable, TooLarge
from ..graphs import placeholders
from ..graphs.placeholders import TAG
from ..text import exception_words
from .json import from_json, to_json

JSON = "json"
PICKLE = "pickle"
FORMATS = (JSON, PICKLE)
PICKLE_CONTENT_TYPE = "application/x-atp-signed-pickle"

# Part of every signature. It must never change, because stored pickles need it.
_SALT = "atp.codec"


class Payload(NamedTuple):
    """A serialized value: its format and its text."""

    format: str
    data: str


def encode(
    value: Any, *, format: str = JSON, limit: int | None = None, what: str = "The value"
) -> Payload:
    """Serialize ``value``.

    ``limit`` is the maximum size in bytes. ``what`` names the value in error messages. Raises
    NotSerializable or TooLarge.
    """
    data = to_pickle(value, what) if format == PICKLE else to_json(value, what)
    # A character is four bytes at most.
    if limit is not None and 4 * len(data) > limit and len(data.encode()) > limit:
        raise TooLarge(
            f"{what}: {len(data.encode())} bytes when serialized, the limit is {limit} bytes. "
            "Pass a path or a key instead of the data itself."
        )
    return Payload(format, data)


def decode(payload: Payload) -> Any:
    """Return the value that was serialized as ``payload``. Raises CorruptData."""
    if payload.format == PICKLE:
        return from_pickle(payload.data)
    if payload.format != JSON:
        raise CorruptData(f"Unknown format {payload.format!r}.")
    return from_json(payload.data)


def may_have_results(payload: Payload) -> bool:
    """Return True if a serialized value may contain results of other nodes."""
    if payload.format == PICKLE:
        return pickle_may_have_results(payload.data)
    return TAG in payload.data


def check_format(format: object) -> None:
    """Raise InvalidType for an unknown format, and for pickles if the project forbids them."""
    if format not in FORMATS:
        raise InvalidType(f"serializer={format!r}: must be one of {', '.join(FORMATS)}.")
    if format == PICKLE and not settings.ALLOW_PICKLE:
        raise InvalidType(
            "serializer='pickle' needs ATP['ALLOW_PICKLE'] = True: whoever knows SECRET_KEY "
            "and can write to the queue could run code in the workers."
        )


# Pickles, signed with SECRET_KEY.


class _Pickler(pickle.Pickler):
    """Refuses results of nodes that have not become Placeholders."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is placeholders.Result:
            raise NotSerializable(
                "a result of a node can be given to nodes of its graph only, in dicts, lists and "
                "tuples (see Graph.add())"
            )
        return NotImplemented


def to_pickle(value: Any, what: str = "The value") -> str:
    """Return ``value`` as text: a pickle in base64 and its signature. Raises NotSerializable."""
    try:
        raw = BytesIO()
        _Pickler(raw, protocol=5).dump(value)
    except Exception as error:
        why = str(error) if isinstance(error, NotSerializable) else exception_words(error)
        raise NotSerializable(f"{what} cannot be pickled: {why}") from error
    return signing.Signer(salt=_SALT).sign(base64.b64encode(raw.getvalue()).decode())


def pickle_may_have_results(text: str) -> bool:
    """Return True if text from :func:`to_pickle` may contain results of other nodes."""
    return placeholders.Placeholder.__name__.encode() in base64.b64decode(text.partition(":")[0])


def check_signature(text: str) -> str:
    """Return the signed text without unpickling it.

    Raises CorruptData if the signature is wrong, or if the project forbids pickles.
    """
    if not settings.ALLOW_PICKLE:
        raise CorruptData("This is a pickle, and ATP['ALLOW_PICKLE'] is not set.")
    try:
        return signing.Signer(salt=_SALT).unsign(text)
    except signing.BadSignature as error:
        raise CorruptData(f"The signature of a pickle is wrong: {error}") from error


def from_pickle(text: str) -> Any:
    """Return the value from text that :func:`to_pickle` wrote. Raises CorruptData."""
    signed = check_signature(text)
    try:
        return pickle.loads(base64.b64decode(signed))  # noqa: S301 (its signature was checked)
    except Exception as error:
        raise CorruptData(f"A pickle cannot be loaded: {exception_words(error)}.") from error
