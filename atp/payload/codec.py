"""Serialization of inputs and outputs, by format: JSON by default, signed pickle on request."""

from typing import Any, NamedTuple

from ..conf import settings
from ..exceptions import CorruptData, InvalidType, TooLarge
from ..graphs.results import TAG
from .signed_pickle import from_pickle, to_pickle
from .signed_pickle import may_have_results as pickle_may_have_results
from .tagged_json import from_json, to_json

JSON = "json"
PICKLE = "pickle"
FORMATS = (JSON, PICKLE)
PICKLE_CONTENT_TYPE = "application/x-atp-signed-pickle"


class Payload(NamedTuple):
    """A serialized value: its format and its text."""

    format: str
    data: str


def encode(
    value: Any, *, format: str = JSON, limit: int | None = None, what: str = "The value"
) -> Payload:
    """Serialize ``value``.

    ``limit`` is the largest size in bytes. ``what`` names the value in error
    messages. Raises NotSerializable or TooLarge.
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
    """Return whether results of other nodes may stand in a serialized value."""
    if payload.format == PICKLE:
        return pickle_may_have_results(payload.data)
    return TAG in payload.data


def check_format(format: object) -> None:
    """Raise InvalidType for an unknown format, and for pickle if the project does not allow it."""
    if format not in FORMATS:
        raise InvalidType(f"serializer={format!r}: must be one of {', '.join(FORMATS)}.")
    if format == PICKLE and not settings.ALLOW_PICKLE:
        raise InvalidType(
            "serializer='pickle' needs ATP['ALLOW_PICKLE'] = True: whoever knows SECRET_KEY "
            "and can write to the queue could run code in the workers."
        )
