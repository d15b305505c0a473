"""Points in time in a body: text with an offset, or a number of seconds from now."""

from datetime import datetime, timedelta

from ..exceptions import LONGEST_DELAY, InvalidOption


def read(name, value):
    """Return a datetime, or a timedelta from now. Raises InvalidOption."""
    if isinstance(value, str):
        return _time(name, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidOption(f"{name} must be a time as text, or a number of seconds from now.")
    if not 0 <= value <= LONGEST_DELAY:
        raise InvalidOption(f"{name} must be from 0 to {LONGEST_DELAY:.0f} seconds from now.")
    return timedelta(seconds=value)


def _time(name, text):
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidOption(
            f"{name}={text!r} is no time with an offset, as 2030-01-31T18:00:00Z; "
            "a number would be seconds from now."
        )
    return time
