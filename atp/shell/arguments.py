"""The types of arguments on the command line.

The functions are argparse types: they return the value, or raise ArgumentTypeError with a
sentence about the error.
"""

import re
from argparse import ArgumentTypeError
from datetime import timedelta

from ..operations.operation import PRIORITY, Delay, Moment, Text, WholeNumber
from ..states import Reason, State
from ..text import did_you_mean

_LONGEST = timedelta(days=3650)
_PREFIX = re.compile(r"[0-9a-f]{8,32}")


# The value of an option that is given as "none".
NONE = object()


def of(kind, *, can_be_none=False):
    """Return the argparse type that reads a Kind; with ``can_be_none``, "none" is NONE."""

    def read(given):
        if can_be_none and given == "none":
            return NONE
        try:
            return kind.from_text(given)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return read


def option(parameter):
    """Return the name of the option for a parameter of a verb."""
    return f"--{parameter.name.replace('_', '-')}"


text, moment, delay, priority = of(Text()), of(Moment()), of(Delay()), of(PRIORITY)
positive = of(WholeNumber(1, 1_000_000))


def _word(given, words):
    if given.upper() not in words:
        hint = did_you_mean(given, words)
        raise ArgumentTypeError(f"{given!r} is none of {', '.join(words)}.{hint}")
    return words[words.index(given.upper())]


def state(given):
    return State(_word(given, State.values))


def reason(given):
    return Reason(_word(given, Reason.values))


def uuid_prefix(given):
    """Read a uuid, or its first 8 digits or more."""
    digits = given.lower().replace("-", "")
    if not _PREFIX.fullmatch(digits):
        raise ArgumentTypeError(
            f"{given!r} is neither a uuid nor the first 8 digits or more of one"
        )
    return given.lower()


def whole_uuid(given):
    """Read a whole uuid, not abbreviated: for verbs that cannot be undone."""
    if len(uuid_prefix(given).replace("-", "")) != 32:
        raise ArgumentTypeError(f"{given!r} is not a whole uuid")
    return given.lower()


def seconds(given):
    """Read a number of seconds, 0 or more."""
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value < _LONGEST.total_seconds():
        raise ArgumentTypeError(f"{given!r} is not a number of seconds")
    return value
