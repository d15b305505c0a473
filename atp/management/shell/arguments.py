"""What may stand on the command line, each kind checked where it is read.

The functions are argparse types: they return the value or raise
ArgumentTypeError with a sentence that says what is wrong.
"""

import re
from argparse import ArgumentTypeError
from datetime import timedelta

from ... import wording
from ...conf import did_you_mean
from ...options import MAX_IDENTIFIER
from ...states import Reason, State

_LONGEST = timedelta(days=3650)
_PREFIX = re.compile(r"[0-9a-f]{8,32}")


def text(given):
    """Text as it may be stored in a column of one line."""
    if not given.isprintable():
        raise ArgumentTypeError(f"{given!r} is not printable text on one line")
    if len(given) > MAX_IDENTIFIER:
        raise ArgumentTypeError(f"{len(given)} characters, {MAX_IDENTIFIER} are allowed")
    return given


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
    """A uuid, or its first eight characters or more."""
    digits = given.lower().replace("-", "")
    if not _PREFIX.fullmatch(digits):
        raise ArgumentTypeError(
            f"{given!r} is neither a uuid nor the first 8 digits or more of one"
        )
    return given.lower()


def whole_uuid(given):
    """A uuid without abbreviation, for what cannot be undone."""
    if len(uuid_prefix(given).replace("-", "")) != 32:
        raise ArgumentTypeError(f"{given!r} is not a whole uuid")
    return given.lower()


def positive(given):
    """A whole number from 1."""
    if not given.isdecimal() or not 1 <= int(given[:9]) <= 1_000_000:
        raise ArgumentTypeError(f"{given!r} is not a whole number from 1 to 1000000")
    return int(given)


def whole(given):
    try:
        return int(given)
    except ValueError:
        raise ArgumentTypeError(f"{given!r} is not a whole number") from None


def seconds(given):
    """A number of seconds, 0 or more."""
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value < _LONGEST.total_seconds():
        raise ArgumentTypeError(f"{given!r} is not a number of seconds")
    return value


def moment(given):
    """A time as an aware datetime, or a delay as a timedelta; see :func:`wording.read_moment`."""
    try:
        return wording.read_moment(given)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def delay(given):
    """A delay as a timedelta."""
    value = moment(given)
    if not isinstance(value, timedelta):
        raise ArgumentTypeError(f"{given!r} is not a delay as 90s, 10m, 1h30m or 2d")
    return value
