"""How an Instance is enqueued: the options, and what is wrong with them."""

from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta

from django.conf import settings as project
from django.utils import timezone

from .conf import did_you_mean
from .exceptions import InvalidOption

MIN_PRIORITY = -100
MAX_PRIORITY = 100
MAX_IDENTIFIER = 200
# "lane:", a Type, "/" and a collection.
MAX_SUBJECT = 2 * MAX_IDENTIFIER + 8
EXISTING = ("raise", "return", "redrive")
_DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How an Instance is enqueued; :meth:`TaskType.using` changes them.

    Whatever the time, they are in range: to make others raises InvalidOption.
    ``run_after`` and ``start_before`` are datetimes, or timedeltas from now. ``existing`` says
    what to do if the identifier is taken: "raise", "return" the existing
    Instance, or "redrive" it if it has FAILED.
    """

    priority: int = 0
    collection: str = ""
    run_after: datetime | timedelta | None = None
    start_before: datetime | timedelta | None = None
    identifier: str | None = None
    existing: str = "raise"
    created_by: str = ""

    def __post_init__(self):
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

    def using(self, **changes):
        """Return other options. Raises InvalidOption, also for an unknown name."""
        names = [field.name for field in fields(self)]
        for name in changes:
            if name not in names:
                raise InvalidOption(f"using() has no option {name!r}.{did_you_mean(name, names)}")
        return replace(self, **changes)

    def checked(self, now):
        """Return the same with both times in UTC. Raises InvalidOption.

        ``now()`` is the database's clock, which a timedelta counts from.
        """
        if self.run_after is None and self.start_before is None:
            return self
        due = instant("run_after", self.run_after, now)
        start_before = instant("start_before", self.start_before, now)
        if due is not None and start_before is not None and start_before <= due:
            raise InvalidOption(
                f"start_before ({start_before}) must be later than run_after ({due})."
            )
        if start_before is not None and start_before <= now():
            raise InvalidOption(f"start_before ({start_before}) has passed.")
        return replace(self, run_after=due, start_before=start_before)

    def _check_priority(self):
        priority = self.priority
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise InvalidOption(f"priority={priority!r}: must be a whole number.")
        if not MIN_PRIORITY <= priority <= MAX_PRIORITY:
            raise InvalidOption(
                f"priority={priority}: must be from {MIN_PRIORITY} to {MAX_PRIORITY}, higher first."
            )


def check_text(name, value, *, empty=True):
    """Refuse what is not text of one printable line. Raises InvalidOption."""
    if not isinstance(value, str):
        raise InvalidOption(f"{name}={value!r}: must be text.")
    if not value and not empty:
        raise InvalidOption(f"{name} must not be empty.")
    if len(value) > MAX_IDENTIFIER:
        raise InvalidOption(f"{name} has {len(value)} characters, {MAX_IDENTIFIER} are allowed.")
    if "\x00" in value or not value.isprintable():
        raise InvalidOption(f"{name}={value!r}: must be printable text on one line.")


def instant(name, value, now=None):
    """Return a point in time in UTC; with ``now`` it may be a timedelta from it.

    Raises InvalidOption.
    """
    if value is None:
        return None
    try:
        if now is not None and isinstance(value, timedelta):
            value = now() + value
        if not isinstance(value, datetime):
            raise InvalidOption(f"{name}={value!r}: must be a datetime, or a timedelta from now.")
        if timezone.is_naive(value):
            if project.USE_TZ:
                raise InvalidOption(
                    f"{name}={value!r} has no time zone, and USE_TZ is on: "
                    "use django.utils.timezone.now() or make_aware()."
                )
            value = timezone.make_aware(value)
        value = value.astimezone(UTC)
        # So that it can be read back as local time, wherever that is.
        _ = value - _DAY, value + _DAY
    except OverflowError:
        shown = value.isoformat() if isinstance(value, datetime) else repr(value)
        raise InvalidOption(f"{name}={shown} is beyond what the calendar holds.") from None
    return value
