"""Rates as people write them ("50/s", "100/min", "5/10s"), and the ranges of limits."""

import re
from datetime import timedelta
from typing import Any

from ..exceptions import LONGEST_DELAY, InvalidLimit

SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
# As a pattern of JSON schema, too.
PATTERN = r"^([1-9][0-9]{0,8})/([1-9][0-9]{0,4})?(min|[smhdw])$"
_RATE = re.compile(PATTERN)
_NOTHING = re.compile(r"0+(\.0*)?(/.*)?", re.ASCII)
# A rate of 0 is refused with this hint.
HOLD = "To let nothing start, use a gate: hold keeps all Instances waiting."
# A max_waiting of 0 is refused with this hint.
GATE = "To let nothing in, use a gate: drop fails each Instance that is enqueued."
# The largest count, and the range of weights.
MOST = 1_000_000
LIGHTEST, HEAVIEST = 0.001, 1000
# The shortest max_wait, in seconds.
SHORTEST_WAIT = 1
# The default burst is the number of tasks that the rate allows in this time, in seconds.
BURST = 0.1


def per_second(rate: object) -> float:
    """Return a rate as a number of tasks a second. Raises InvalidLimit."""
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if found is None:
        raise InvalidLimit(
            f"rate={rate!r}: must be a number, '/' and a time, as '50/s', '100/m' or '5/10s'; "
            f"times are {', '.join(SECONDS)}.{_hint(_NOTHING.fullmatch(str(rate)))}"
        )
    count, times, unit = found.groups()
    return int(count) / (int(times or 1) * SECONDS[unit])


def default_burst(rate: str) -> int:
    """Return the default burst for a rate."""
    return max(1, int(per_second(rate) * BURST))


def check_limits(
    *,
    max_running: object = None,
    max_running_per_collection: object = None,
    rate: object = None,
    burst: object = None,
    weight: Any = None,
    max_waiting: object = None,
    max_wait: object = None,
) -> None:
    """Raise InvalidLimit for a value out of range. None means no limit, or not given."""
    counts = {
        "max_running": max_running,
        "max_running_per_collection": max_running_per_collection,
        "burst": burst,
        "max_waiting": max_waiting,
    }
    for name, value in counts.items():
        if value is not None and not _is_count(value):
            is_nothing = name != "burst" and value == 0 and not isinstance(value, bool)
            hint = _hint(is_nothing, GATE if name == "max_waiting" else HOLD)
            raise InvalidLimit(f"{name}={value!r}: must be a whole number from 1 to {MOST}.{hint}")
    _check_max_wait(max_wait)
    if rate is not None:
        per_second(rate)
    elif burst is not None:
        raise InvalidLimit(f"burst={burst!r}: needs a rate, and none is given.")
    if weight is not None:
        is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not is_number or not LIGHTEST <= weight <= HEAVIEST:
            raise InvalidLimit(
                f"weight={weight!r}: must be a number from {LIGHTEST} to {HEAVIEST}."
            )


def _check_max_wait(value: object) -> None:
    if value is None:
        return
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidLimit(f"max_wait={value!r}: must be seconds or a timedelta.")
    if not SHORTEST_WAIT <= number <= LONGEST_DELAY:
        hint = _hint(number == 0, GATE)
        raise InvalidLimit(
            f"max_wait={value!r}: must be from {SHORTEST_WAIT} to {LONGEST_DELAY:.0f} s.{hint}"
        )


def _hint(is_nothing: object, hint: str = HOLD) -> str:
    return f" {hint}" if is_nothing else ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST
