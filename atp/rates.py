"""Rates, as people write them: "50/s", "100/min", "5/10s"."""

import re

from .exceptions import InvalidLimit

SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_RATE = re.compile(r"([1-9]\d{0,8})/([1-9]\d{0,4})?(min|[smhdw])", re.ASCII)
_NOTHING = re.compile(r"0+(\.0*)?(/.*)?", re.ASCII)
# What keeps everything from being started is no limit.
HOLD = "To let nothing start, hold it: that is what a gate is for."
# What comes in this time may be started at once, if nothing else is said, in seconds.
BURST = 0.1


def per_second(rate):
    """Return a rate in tasks a second. Raises InvalidLimit."""
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if found is None:
        raise InvalidLimit(
            f"rate={rate!r}: must be a number, '/' and a time, as '50/s', '100/m' or '5/10s'; "
            f"times are {', '.join(SECONDS)}.{_hint(_NOTHING.fullmatch(str(rate)))}"
        )
    count, times, unit = found.groups()
    return int(count) / (int(times or 1) * SECONDS[unit])


def default_burst(rate):
    """Return how many may be started at once where nobody says: what comes in a moment."""
    return max(1, int(per_second(rate) * BURST))


def check_limits(*, max_running=None, rate=None, burst=None, weight=None):
    """Refuse what is out of range. Raises InvalidLimit; None is no limit, or not said."""
    for name, value in (("max_running", max_running), ("burst", burst)):
        if value is not None and not _is_count(value):
            hint = _hint(name == "max_running" and value == 0 and not isinstance(value, bool))
            raise InvalidLimit(f"{name}={value!r}: must be a whole number from 1 to {_MOST}.{hint}")
    if rate is not None:
        per_second(rate)
    elif burst is not None:
        raise InvalidLimit(f"burst={burst!r}: is of a rate, and there is none.")
    if weight is not None:
        is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not is_number or not _LIGHTEST <= weight <= _HEAVIEST:
            raise InvalidLimit(
                f"weight={weight!r}: must be a number from {_LIGHTEST} to {_HEAVIEST}."
            )


def _hint(is_nothing):
    return f" {HOLD}" if is_nothing else ""


_MOST = 1_000_000
_LIGHTEST, _HEAVIEST = 0.001, 1000


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST
