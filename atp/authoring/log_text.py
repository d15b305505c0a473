"""Text that fits the log: clean, not too long, exceptions with their tracebacks."""

import traceback

from ..conf import settings


def clean(text: str) -> str:
    """Make text fit a database column: PostgreSQL takes no NUL, UTF-8 no lone surrogate."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def shorten(text: str) -> str:
    """Cut text that is too long for the log in its middle, which matters least."""
    limit = settings.MAX_LOG_MESSAGE
    if len(text) <= limit:
        return text
    half = max((limit - 40) // 2, 1)
    return f"{text[:half]}\n… {len(text) - 2 * half} characters …\n{text[-half:]}"


def describe(error: BaseException) -> str:
    """Return an exception with its traceback as text for the log; the last line names it."""
    lines = traceback.format_exception(error)
    if isinstance(error, BaseExceptionGroup):  # its traceback ends with those of its parts
        lines.append(f"{type(error).__name__}: {error}")
    return shorten(clean("".join(lines).rstrip()))
