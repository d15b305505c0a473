"""Serialize inputs and outputs as JSON (the default) or as signed pickles.

ATP uses pickles only for Types that declare ``serializer="pickle"``. A process reads a pickle only
if ``ATP["ALLOW_PICKLE"]`` is set, because whoever can sign a pickle can run code in the workers
(G14).
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
from . import references
from .json import TAG_BEGINS, from_json, to_json

JSON = "json"
PICKLE = "pickle"
FORMATS = (JSON, PICKLE)
PICKLE_CONTENT_TYPE = "application/x-atp-signed-pickle"

# Part of every signature. The salt must never change, or stored pickles become unreadable.
_SALT = "atp.codec"


class Payload(NamedTuple):
    """A serialized value: ``data`` is its text, ``format`` is "json" or "pickle"."""

    format: str
    data: str


def encode(
    value: Any, *, format: str = JSON, limit: int | None = None, what: str = "The value"
) -> Payload:
    """Return ``value`` in serialized form, as a Payload.

    ``limit`` is the maximum size in bytes. ``what`` names the value in error messages. Raises
    NotSerializable or TooLarge.
    """
    data = to_pickle(value, what) if format == PICKLE else to_json(value, what)
    # A character is four bytes at most.
    if limit is not None and 4 * len(data) > limit and len(data.encode()) > limit:
        raise TooLarge(
            f"{what}: {len(data.encode())} bytes when serialized, but the limit is {limit} bytes. "
            "Pass a path or a key instead of the data itself."
        )
    return Payload(format, data)


def decode(payload: Payload) -> Any:
    """Return the value that was serialized as ``payload``. Raises CorruptData."""
    if payload.format == JSON:
        return from_json(payload.data)
    if payload.format == PICKLE:
        return from_pickle(payload.data)
    raise CorruptData(f"Unknown format {payload.format!r}.")


def is_untagged(payload: Payload) -> bool:
    """Return True if a serialized value has no tags: then it has no results and no references.

    This is quicker than to ask for both.
    """
    return payload.format == JSON and TAG_BEGINS not in payload.data


def may_have_results(payload: Payload) -> bool:
    """Return True if a serialized value may contain placeholders for results of other nodes.

    This quick check never misses a placeholder, but can return True for a value without one.
    """
    if payload.format == PICKLE:
        return pickle_may_have_results(payload.data)
    return TAG in payload.data


def may_have_references(payload: Payload) -> bool:
    """Return True if serialized inputs may contain references that have to be fetched."""
    return payload.format == JSON and references.TAG in payload.data


def check_format(format: object) -> None:
    """Raise InvalidType if a format is unknown, or is "pickle" and the project forbids pickles."""
    if format not in FORMATS:
        raise InvalidType(f"serializer={format!r}: must be one of {', '.join(FORMATS)}.")
    if format == PICKLE and not settings.ALLOW_PICKLE:
        raise InvalidType(
            "serializer='pickle' needs ATP['ALLOW_PICKLE'] = True, because whoever knows "
            "SECRET_KEY and can write to the queue could run code in the workers."
        )


# Pickles, signed with SECRET_KEY.


class _Pickler(pickle.Pickler):
    """A pickler that rejects results of graph nodes that were not replaced by Placeholders."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is placeholders.Result:
            raise NotSerializable(
                "only nodes of the same graph can take the result of a node, in dicts, lists and "
                "tuples (see Graph.add())"
            )
        return NotImplemented


def to_pickle(value: Any, what: str = "The value") -> str:
    """Return ``value`` as text that has a pickle in base64 and a signature.

    ``what`` names the value in error messages. Raises NotSerializable.
    """
    try:
        raw = BytesIO()
        _Pickler(raw, protocol=5).dump(value)
    except Exception as error:
        why = str(error) if isinstance(error, NotSerializable) else exception_words(error)
        raise NotSerializable(f"{what} cannot be pickled: {why}") from error
    return signing.Signer(salt=_SALT).sign(base64.b64encode(raw.getvalue()).decode())


def pickle_may_have_results(text: str) -> bool:
    """Return True if text from :func:`to_pickle` may contain placeholders for results of nodes."""
    return placeholders.Placeholder.__name__.encode() in base64.b64decode(text.partition(":")[0])


def check_signature(text: str) -> str:
    """Check the signature of text from :func:`to_pickle`; return the pickle in base64.

    This does not unpickle anything. Raises CorruptData if the signature is wrong, or if the project
    forbids pickles.
    """
    if not settings.ALLOW_PICKLE:
        raise CorruptData("The stored value is a pickle, but ATP['ALLOW_PICKLE'] is not set.")
    try:
        return signing.Signer(salt=_SALT).unsign(text)
    except signing.BadSignature as error:
        raise CorruptData(f"The signature of a pickle is wrong: {error}") from error


def from_pickle(text: str) -> Any:
    """Check the signature of text from :func:`to_pickle` and unpickle the value.

    Raises CorruptData.
    """
    signed = check_signature(text)
    try:
        return pickle.loads(base64.b64decode(signed))  # noqa: S301 (its signature was checked)
    except Exception as error:
        raise CorruptData(f"A pickle cannot be loaded: {exception_words(error)}.") from error
