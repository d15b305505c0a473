"""Argparse types for the arguments of subcommands.

Each of these functions parses an argument and returns its value, or raises ArgumentTypeError with a
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
    """Return an argparse type that parses with a Kind.

    If ``can_be_none`` is True, it parses the word "none" as NONE.
    """

    def read(given: str) -> Any:
        if can_be_none and given == "none":
            return NONE
        try:
            return kind.from_text(given)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return read


def option_name(parameter: Parameter) -> str:
    """Return the command-line option for an operation's parameter, such as ``--max-wait``."""
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
    """Return the word in ``words`` that equals the argument if case is ignored.

    The words are in capitals.
    """
    if given.upper() not in words:
        hint = did_you_mean(given, words)
        raise ArgumentTypeError(f"{given!r} must be one of: {', '.join(words)}.{hint}")
    return words[words.index(given.upper())]


def uuid_prefix(given: str) -> str:
    """Return the argument if it is a uuid, or at least the first 8 digits of one."""
    digits = given.lower().replace("-", "")
    if not _PREFIX.fullmatch(digits):
        raise ArgumentTypeError(f"{given!r} must be a uuid, or at least the first 8 digits of one")
    return given.lower()


def whole_uuid(given: str) -> str:
    """Return the argument if it is a whole uuid, which final operations such as delete need."""
    if len(uuid_prefix(given).replace("-", "")) != 32:
        raise ArgumentTypeError(f"{given!r} is not a whole uuid")
    return given.lower()


def seconds(given: str) -> float:
    """Parse a number of seconds, 0 or more."""
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value < _LONGEST.total_seconds():
        raise ArgumentTypeError(f"{given!r} must be a number of seconds, 0 or more")
    return value
