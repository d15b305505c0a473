"""Pickles with a signature by SECRET_KEY, for Types that ask for them (G14).

A process reads one only if ``ATP["ALLOW_PICKLE"]`` is set: whoever can sign a pickle can run
code in the workers.
"""

import base64
import pickle
from io import BytesIO
from typing import Any

from django.core import signing

from ..conf import settings
from ..exceptions import CorruptData, NotSerializable
from ..graphs import results
from ..words.wording import exception_words

# Part of every signature. It must not change, even if this code moves: stored pickles need it.
_SALT = "atp.codec"


class _Pickler(pickle.Pickler):
    """Refuses results of nodes, except where they have been made Placeholders."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is results.Result:
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
        said = str(error) if isinstance(error, NotSerializable) else exception_words(error)
        raise NotSerializable(f"{what} cannot be pickled: {said}") from error
    return signing.Signer(salt=_SALT).sign(base64.b64encode(raw.getvalue()).decode())


def may_have_results(text: str) -> bool:
    """Return whether results of other nodes may stand in what :func:`to_pickle` wrote."""
    return results.Placeholder.__name__.encode() in base64.b64decode(text.partition(":")[0])


def check_signature(text: str) -> str:
    """Return the signed text without unpickling it.

    Raises CorruptData if the signature is wrong, or if this project allows no pickles.
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
