"""The types of arguments on the command line.

The functions are argparse types: they return the value, or raise ArgumentTypeError with a
sentence about the error.
"""

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ..operations.operation import PRIORITY, Delay, Kind, Moment, Parameter, Text, WholeNumber
from ..states import Reason, State
from ..text import did_you_mean

# The value of an option to which the user gave "none".
NONE = object()

_LONGEST = timedelta(days=3650)
_PREFIX = re.compile(r"[0-9a-f]{8,32}")


def make_reader(kind: Kind, *, can_be_none: bool = False) -> Callable[[str], Any]:
    """Return the argparse type for a Kind; with ``can_be_none``, it reads "none" as NONE."""

    def read(given: str) -> Any:
        if can_be_none and given == "none":
            return NONE
        try:
            return kind.from_text(given)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return read


def option_name(parameter: Parameter) -> str:
    """Return the name of the option for a parameter of an operation."""
    return f"--{parameter.name.replace('_', '-')}"


text, moment, delay, priority = (
    make_reader(Text()),
    make_reader(Moment()),
    make_reader(Delay()),
    make_reader(PRIORITY),
)
positive = make_reader(WholeNumber(1, 1_000_000))


def state(given: str) -> State:
    return State(_read_word(given, State.values))


def reason(given: str) -> Reason:
    return Reason(_read_word(given, Reason.values))


def _read_word(given: str, words: Sequence[str]) -> str:
    """Return the word that was given; words are in capitals, and case does not matter."""
    if given.upper() not in words:
        hint = did_you_mean(given, words)
        raise ArgumentTypeError(f"{given!r} must be one of: {', '.join(words)}.{hint}")
    return words[words.index(given.upper())]


def uuid_prefix(given: str) -> str:
    """Read a uuid, or its first 8 digits or more."""
    digits = given.lower().replace("-", "")
    if not _PREFIX.fullmatch(digits):
        raise ArgumentTypeError(
            f"{given!r} is neither a uuid nor the first 8 digits or more of one"
        )
    return given.lower()


def whole_uuid(given: str) -> str:
    """Read a uuid that is not abbreviated: for operations that cannot be undone."""
    if len(uuid_prefix(given).replace("-", "")) != 32:
        raise ArgumentTypeError(f"{given!r} is not a whole uuid")
    return given.lower()


def seconds(given: str) -> float:
    """Read a number of seconds, 0 or more."""
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value < _LONGEST.total_seconds():
        raise ArgumentTypeError(f"{given!r} is not a number of seconds")
    return value
