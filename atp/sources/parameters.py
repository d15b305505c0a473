"""The parameters that sources have in common, and their check."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec

from ..exceptions import Fatal, InvalidType

EARLIEST, LATEST = "earliest", "latest"
FAIL, SKIP = "fail", "skip"
_WORDS = {"start": (EARLIEST, LATEST), "on_gap": (FAIL, SKIP)}


class OddPosition(Fatal, ValueError):
    """A position that no source of this kind has."""


def check_words(source: str, **given: str) -> None:
    """Check the words of a source's parameters. Raises InvalidType."""
    for name, value in given.items():
        if value not in _WORDS[name]:
            raise InvalidType(
                f"{source}({name}={value!r}): must be {' or '.join(map(repr, _WORDS[name]))}."
            )


def check_name(source: str, name: str, value: object) -> None:
    """Check that a name is text. Raises InvalidType."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidType(f"{source}({name}={value!r}): must be printable text.")


def instant(seconds: float) -> datetime | None:
    """Return a time in seconds since 1970 as a datetime; None if it is none."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def missing(library: str, extra: str) -> Iterator[str]:
    """Yield a sentence if a library cannot be imported; ``extra`` is the extra that installs it."""
    if find_spec(library) is None:
        yield f"the package {library} is missing: it comes with the extra [{extra}]"
