"""The options of one enqueue (`using()`), and their checks.

An Instance keeps some of its options in its column `own`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self, TypedDict, Unpack

from django.conf import settings as project
from django.utils import timezone

from .exceptions import LONGEST_DELAY, InvalidOption
from .text import did_you_mean

# The column ``own`` of an Instance: a small JSON object with values for this Instance only
#
# Most Instances have none: then the column is NULL, takes no space, and nothing reads it.

# The keys of the object. Times are in seconds.
TIMEOUT, OWN_MAX_RETRIES, UNIQUE = "timeout", "max_retries", "unique"
# The Instance's hooks; and, if the Instance is itself a hook, the uuid of the Instance that ended.
HOOKS, HOOK_OF = "hooks", "hook_of"
# The values that the enqueue saved for the handler, by context propagator (atp.middleware).
CARRIED = "carried"


def own_options(**values: Any) -> str | None:
    """Return the JSON text for the column ``own``: all values that are not None.

    Return None if all values are None.
    """
    options = {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in values.items()
        if value is not None
    }
    return json.dumps(options, separators=(",", ":")) if options else None


def read_own_options(text: str | None) -> dict[str, Any] | None:
    """Return the dictionary that :func:`own_options` wrote as text; None for None."""
    return None if text is None else json.loads(text)


def own_timeout(own: Mapping[str, Any]) -> timedelta | None:
    """Return the time-out in the column ``own`` of an Instance; None if the Type's applies."""
    seconds = own.get(TIMEOUT)
    return None if seconds is None else timedelta(seconds=seconds)


# The options of an enqueue, and their checks

MIN_PRIORITY = -100
MAX_PRIORITY = 100
MAX_IDENTIFIER = 200
MAX_ADDRESS = 500
MAX_RETRIES = 1_000_000
# In seconds.
SHORTEST_TIMEOUT = 0.001
# "lane:", a Type, "/" and a collection.
MAX_SUBJECT = 2 * MAX_IDENTIFIER + 8
ON_FULL = ("raise", "delay")
EXISTING = ("raise", "return", "redrive", "replace", "debounce")
# Those that change a waiting Instance with the same unique key.
OF_UNIQUE = ("replace", "debounce")
_DAY = timedelta(days=1)
# A pattern for identifiers of Types, as fnmatch reads it.
_PATTERN = re.compile(r"[A-Za-z0-9_.:*?\[\]!\-]{1,200}")


class OptionValues(TypedDict, total=False):
    """The options of an enqueue by name. Each option may be left out."""

    priority: int
    collection: str
    run_after: datetime | timedelta | float | None
    start_before: datetime | timedelta | float | None
    identifier: str | None
    existing: Literal["raise", "return", "redrive", "replace", "debounce"]
    unique: str | None
    created_by: str
    timeout: timedelta | float | None
    max_retries: int | None
    on_finished: Any
    on_failed: Any
    on_full: Literal["raise", "delay"]
    delay_tolerance: timedelta | float | None
    exact: bool


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of an enqueue; :meth:`TaskType.using` changes them.

    ``run_after`` and ``start_before`` are datetimes, or delays from now, in seconds or as
    timedeltas. ``existing`` says what to do if another Instance has the same identifier: "raise",
    "return" that Instance, or "redrive" it if it has FAILED. ``unique`` is a key that only one live
    Instance of the Type may have. With ``unique``, ``existing`` can also be "replace", which gives
    a waiting Instance with this key the new inputs, or "debounce", which gives it the new
    ``run_after``. ``timeout``, in seconds or as a timedelta, and ``max_retries`` are for this
    Instance only; None takes the value of its Type. ``on_finished`` and ``on_failed`` add hooks to
    those of the Type; :meth:`TaskType.using` checks them and resolves them to Types. ``on_full``
    says what to do if the queue is full: "raise" raises QueueFull, and "delay" makes the Instance
    due later, by at most ``delay_tolerance``, in seconds or as a timedelta. If ``exact`` is True,
    the enqueues of a Type take turns, so that ``max_waiting`` is never exceeded.

    The constructor checks all values except times. An invalid value raises InvalidOption.
    """

    priority: int = 0
    collection: str = ""
    run_after: datetime | timedelta | float | None = None
    start_before: datetime | timedelta | float | None = None
    identifier: str | None = None
    existing: str = "raise"
    unique: str | None = None
    created_by: str = ""
    timeout: timedelta | float | None = None
    max_retries: int | None = None
    on_finished: Any = None
    on_failed: Any = None
    on_full: str = "raise"
    delay_tolerance: timedelta | float | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        self._check_priority()
        if self.existing not in EXISTING:
            raise InvalidOption(
                f"existing={self.existing!r}: must be one of {', '.join(EXISTING)}."
                f"{did_you_mean(self.existing, EXISTING)}"
            )
        check_text("collection", self.collection)
        check_text("created_by", self.created_by)
        if self.identifier is not None:
            check_text("identifier", self.identifier, empty=False)
        if self.unique is not None:
            check_text("unique", self.unique, empty=False)
        if self.timeout is not None:
            _check_timeout(self.timeout)
        if self.max_retries is not None:
            _check_whole("max_retries", self.max_retries, MAX_RETRIES)
        if self.on_full != "raise" or self.delay_tolerance is not None:
            _check_on_full(self.on_full, self.delay_tolerance)
        if not isinstance(self.exact, bool):
            raise InvalidOption(f"exact={self.exact!r}: must be True or False.")

    @property
    def hooks(self) -> tuple[Any, ...]:
        """The hooks that were added for this Instance, without those of its Type."""
        if self.on_finished is None and self.on_failed is None:
            return ()
        return (*(self.on_finished or ()), *(self.on_failed or ()))

    def using(self, **changes: Unpack[OptionValues]) -> Self:
        """Return a copy with other options. Raises InvalidOption if one is unknown or invalid."""
        names = [field.name for field in fields(self)]
        for name in changes:
            if name not in names:
                raise InvalidOption(f"using() has no option {name!r}.{did_you_mean(name, names)}")
        return replace(self, **changes)

    def checked(self, now: Callable[[], datetime]) -> Self:
        """Return a copy in which ``run_after`` and ``start_before`` are datetimes in UTC.

        ``now()`` returns the database's time, from which delays count. Raises InvalidOption.
        """
        if self.run_after is None and self.start_before is None:
            return self
        due = resolve_time("run_after", self.run_after, now)
        start_before = resolve_time("start_before", self.start_before, now)
        if due is not None and start_before is not None and start_before <= due:
            raise InvalidOption(
                f"start_before ({start_before}) must be later than run_after ({due})."
            )
        if start_before is not None and start_before <= now():
            raise InvalidOption(f"start_before ({start_before}) has passed.")
        return replace(self, run_after=due, start_before=start_before)

    def _check_priority(self) -> None:
        priority = self.priority
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise InvalidOption(f"priority={priority!r}: must be a whole number.")
        if not MIN_PRIORITY <= priority <= MAX_PRIORITY:
            raise InvalidOption(
                f"priority={priority}: must be from {MIN_PRIORITY} to {MAX_PRIORITY}. "
                "A higher priority goes first."
            )


def _check_on_full(word: object, tolerance: object) -> None:
    if word not in ON_FULL:
        hint = did_you_mean(str(word), ON_FULL)
        raise InvalidOption(f"on_full={word!r}: must be one of {', '.join(ON_FULL)}.{hint}")
    if word == "raise":
        raise InvalidOption(f"delay_tolerance={tolerance!r}: needs on_full='delay'.")
    if tolerance is None:
        raise InvalidOption("on_full='delay': needs delay_tolerance, the longest delay.")
    _check_timeout(tolerance, "delay_tolerance")


def _check_timeout(value: object, name: str = "timeout") -> None:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidOption(f"{name}={value!r}: must be seconds or a timedelta.")
    if not SHORTEST_TIMEOUT <= number <= LONGEST_DELAY:
        raise InvalidOption(
            f"{name}={value!r}: must be from {SHORTEST_TIMEOUT} to {LONGEST_DELAY:.0f} s."
        )


def _check_whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise InvalidOption(f"{name}={value!r}: must be a whole number from 0 to {most}.")


def is_pattern(value: object) -> bool:
    """Return True if the value is a pattern for identifiers of Types, such as "dem.*"."""
    return isinstance(value, str) and _PATTERN.fullmatch(value) is not None


def check_text(name: str, value: object, *, empty: bool = True) -> None:
    """Raise InvalidOption unless the value is one printable line of text."""
    if not isinstance(value, str):
        raise InvalidOption(f"{name}={value!r}: must be text.")
    if not value and not empty:
        raise InvalidOption(f"{name} must not be empty.")
    if len(value) > MAX_IDENTIFIER:
        raise InvalidOption(
            f"{name} has {len(value)} characters, but only {MAX_IDENTIFIER} are allowed."
        )
    if "\x00" in value or not value.isprintable():
        raise InvalidOption(f"{name}={value!r}: must be printable text on one line.")


def check_lines(name: str, value: object, most: int) -> None:
    """Raise InvalidOption unless the value is printable text of up to ``most`` characters."""
    if not isinstance(value, str) or len(value) > most:
        raise InvalidOption(f"{name}: must be text of up to {most} characters.")
    for line in value.splitlines():
        for begin in range(0, len(line), MAX_IDENTIFIER):
            check_text(name, line[begin : begin + MAX_IDENTIFIER])


def resolve_time(
    name: str,
    value: datetime | timedelta | float | None,
    now: Callable[[], datetime] | None = None,
) -> datetime | None:
    """Return a time as a datetime in UTC. With ``now``, the value may be a delay.

    ATP calls this function for each datetime or delay that a caller passes. A naive datetime is in
    ``TIME_ZONE`` if USE_TZ is off, and invalid if USE_TZ is on. A delay is a number of seconds or a
    timedelta, and counts from the time that ``now()`` returns. None stays None. Raises
    InvalidOption.
    """
    if value is None:
        return None
    try:
        if now is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
            # A larger number may be a timestamp by mistake.
            if not 0 <= value <= LONGEST_DELAY:
                raise InvalidOption(
                    f"{name}={value!r}: must be from 0 to {LONGEST_DELAY:.0f} seconds from now."
                )
            value = timedelta(seconds=value)
        if now is not None and isinstance(value, timedelta):
            value = now() + value
        if not isinstance(value, datetime):
            more = "" if now is None else ", or a delay from now, in seconds or as a timedelta"
            raise InvalidOption(f"{name}={value!r}: must be a datetime{more}.")
        if timezone.is_naive(value):
            if project.USE_TZ:
                raise InvalidOption(
                    f"{name}={value!r} has no time zone, and USE_TZ is on: "
                    "use django.utils.timezone.now() or make_aware()."
                )
            value = timezone.make_aware(value)
        value = value.astimezone(UTC)
        # The time must also exist as local time in every time zone.
        _ = value - _DAY, value + _DAY
    except OverflowError:
        text = value.isoformat() if isinstance(value, datetime) else repr(value)
        raise InvalidOption(f"{name}={text} is outside the calendar.") from None
    return value
