"""Text that fits the log: clean, not too long, exceptions with their tracebacks."""

import traceback

from ..conf import settings
from .raised import facts


def clean(text: str) -> str:
    """Make text fit a database column: PostgreSQL takes no NUL, UTF-8 no lone surrogate."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def shorten(text: str) -> str:
    """Cut out the middle of text that is too long for the log: the middle matters least."""
    limit = settings.MAX_LOG_MESSAGE
    if len(text) <= limit:
        return text
    half = max((limit - 40) // 2, 1)
    return f"{text[:half]}\n… {len(text) - 2 * half} characters …\n{text[-half:]}"


def words(error: BaseException) -> str:
    """Return the message of an exception, which may be ""; its class if it cannot be read."""
    text = facts.text(error)
    return clean(shorten(facts.name(error) if text is None else text))


def describe(error: BaseException) -> str:
    """Return an exception with its traceback for the log.

    The exception's own line is what :func:`.wording.headline` returns.
    """
    named = f"{facts.name(error)}: {words(error)}".removesuffix(": ")
    try:
        lines = traceback.format_exception(type(error), error, facts.trace(error))
        text = "".join(lines).rstrip()
        if facts.is_a(error, BaseExceptionGroup):  # its traceback ends with those of its parts
            text = f"{text}\n{named}"
    except BaseException:  # its notes, its causes, its attributes: all are the application's
        text = f"{_frames(error)}{named}"
    return clean(shorten(text))


def _frames(error: BaseException) -> str:
    try:
        return f"Traceback (most recent call last):\n{''.join(_lines(error))}"
    except BaseException:
        return ""


def _lines(error: BaseException) -> list[str]:
    return traceback.format_tb(facts.trace(error))
