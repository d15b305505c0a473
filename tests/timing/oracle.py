"""Debian's cron, minute by minute: slow, simple, and independent of :mod:`atp.schedules`.

It watches the wall clock of a zone from one minute to the next. An expression whose minute or
hour starts with ``*`` runs when the clock shows a matching time. Any other expression has fixed
times: each runs when the clock reaches or skips it, but not when the clock shows it again.
"""

from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

MINUTE = timedelta(minutes=1)
# Their clocks are changed in different ways.
ZONES = (
    "Africa/Cairo",  # at midnight, the gap is the first hour of a Friday
    "Africa/Casablanca",  # for Ramadan, whose dates move
    "America/Havana",  # at midnight and at one
    "America/New_York",
    "America/Nuuk",  # the gap is the last hour of a Saturday
    "America/Santiago",  # at midnight, southern hemisphere
    "America/St_Johns",  # UTC-03:30
    "Antarctica/Troll",  # by two hours
    "Asia/Beirut",  # at midnight
    "Atlantic/Azores",  # at midnight and at one, the gap is the first hour of a Sunday
    "Australia/Lord_Howe",  # by half an hour, UTC+10:30
    "Europe/Dublin",  # standard time is in summer
    "Europe/Vienna",
    "Pacific/Chatham",  # UTC+12:45, at 02:45
)
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


class Watched:
    """The wall clock of a zone during a time span: the time that it shows at each minute."""

    def __init__(self, zone, since, until):
        self.zone, self.since, self.until = zone, since, until

    @cached_property
    def minutes(self):
        """Triples of the UTC time, the shown time, and the times that were reached or skipped."""
        zone, time, found = ZoneInfo(self.zone), self.since, []
        latest = time.astimezone(zone).replace(tzinfo=None) - MINUTE
        while time < self.until:
            shown = time.astimezone(zone).replace(tzinfo=None)
            new = []
            while latest < shown:
                latest += MINUTE
                new.append(latest)
            found.append((time, shown, new))
            time += MINUTE
        return found

    def slots(self, expression):
        matches = Pattern(expression)
        if matches.is_fixed:
            return [time for time, _, new in self.minutes if any(map(matches, new))]
        return [time for time, shown, _ in self.minutes if matches(shown)]


class Pattern:
    """The wall clock times that match an expression."""

    def __init__(self, expression):
        fields = expression.split()
        self.is_fixed = fields[0][0] != "*" and fields[1][0] != "*"
        self.minutes = members(fields[0], 0, 59)
        self.hours = members(fields[1], 0, 23)
        self.is_last_day = fields[2] == "L"
        self.days = set() if self.is_last_day else members(fields[2], 1, 31)
        self.months = members(fields[3], 1, 12)
        self.weekdays = {day % 7 for day in members(fields[4], 0, 7)}
        self.needs_both = fields[2][0] == "*" or fields[4][0] == "*"

    def __call__(self, time):
        return time.minute in self.minutes and time.hour in self.hours and self.is_on(time.date())

    def is_on(self, date):
        tomorrow = date + timedelta(days=1)
        by_day = tomorrow.day == 1 if self.is_last_day else date.day in self.days
        by_weekday = date.isoweekday() % 7 in self.weekdays
        both = by_day and by_weekday if self.needs_both else by_day or by_weekday
        return both and date.month in self.months


def members(field, low, high):
    found = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            first, last = low, high
        else:
            ends = [DAYS.index(end) if end in DAYS else int(end) for end in span.split("-")]
            first, last = ends[0], ends[-1]
        found.update(range(first, last + 1, int(step or 1)))
    return found


@cache
def transitions(zone, first_year, last_year):
    """Return the times at which the clock of a zone changes, to the minute."""
    zone, hour = ZoneInfo(zone), timedelta(hours=1)
    time, found = datetime(first_year, 1, 1, tzinfo=UTC), []
    offset = time.astimezone(zone).utcoffset()
    while time.year <= last_year:
        time += hour
        if time.astimezone(zone).utcoffset() != offset:
            change = time - hour
            while change.astimezone(zone).utcoffset() == offset:
                change += MINUTE
            found.append(change)
            offset = time.astimezone(zone).utcoffset()
    return found


def a_field(low, high, *others):
    """Generate a field of a cron expression; ``others`` are values that are not numbers."""
    numbers = st.integers(low, high)
    ranges = st.tuples(numbers, numbers).map(sorted).map(lambda ends: f"{ends[0]}-{ends[1]}")
    spans = st.one_of(st.just("*"), st.just(f"{low}-{high}"), ranges, numbers.map(str))
    steps = st.tuples(spans, st.integers(1, high)).map(lambda part: f"{part[0]}/{part[1]}")
    part = st.one_of(spans, steps, *([st.sampled_from(others)] if others else []))
    return st.one_of(st.just("*"), st.lists(part, min_size=1, max_size=3).map(",".join))
