"""Two small helpers for user input: a suggestion for a misspelt word, and durations in seconds."""

import difflib
from collections.abc import Iterable
from datetime import timedelta
from typing import overload


def did_you_mean(word: object, possibilities: Iterable[object]) -> str:
    """Return " Did you mean …?" with the closest of ``possibilities``, or "" if none is close."""
    close = difflib.get_close_matches(str(word), [str(p) for p in possibilities], n=1, cutoff=0.6)
    if not close:
        upper = {str(p).upper(): str(p) for p in possibilities}
        close = difflib.get_close_matches(str(word).upper(), upper, n=1, cutoff=0.6)
        close = [upper[c] for c in close]
    return f" Did you mean {close[0]!r}?" if close else ""


@overload
def seconds(value: None) -> None: ...
@overload
def seconds(value: timedelta | float) -> timedelta: ...
def seconds(value: timedelta | float | None) -> timedelta | None:
    """Return a duration, given in seconds or as a timedelta, as a timedelta; None stays None."""
    if value is None or isinstance(value, timedelta):
        return value
    return timedelta(seconds=value)
