"""The parameters of requests: the page of a list, and the filters of the list of jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import F, Q
from django.http import QueryDict
from django.utils.dateparse import parse_datetime

from ..api.problems import problem_with_errors
from ..api.schema import LARGEST_LIMIT
from ..conf import settings
from ..models import Type
from ..reports import overview
from ..states import NOT_RUNNING
from ..text import did_you_mean, shorten
from ..web.problems import Problem
from . import documents
from .documents import STATUSES
from .processes import find

# How many items a page has if the client does not say it: the default of the standard.
DEFAULT_LIMIT = 10
# A number in a request with more digits is refused.
_MOST_DIGITS = 9
_INVALID = Problem(status=400, name="invalid-parameter", title="A parameter is not possible")


def words(params: QueryDict, name: str) -> list[str]:
    """Return the words of a parameter that may be repeated, or have several joined by commas."""
    return [word for text in params.getlist(name) for word in text.split(",") if word]


def page_of(params: QueryDict) -> tuple[int, str | None]:
    """Return how many items a page has, and the key after which it begins. Raises ProblemError."""
    text = params.get("limit")
    if text is None:
        return DEFAULT_LIMIT, params.get("after")
    number = whole_number(text)
    if not number:
        error = ("limit", f"{shorten(text)!r} must be a number from 1 on.")
        raise problem_with_errors(_INVALID, [error])
    return min(number, LARGEST_LIMIT), params.get("after")


def whole_number(text: str) -> int | None:
    """Return the number that a text of digits is, or None; a very large one is one of 9 digits."""
    if not text.isdecimal() or not text.isascii():
        return None
    return int(text) if len(text) <= _MOST_DIGITS else 10**_MOST_DIGITS - 1


class JobsQuery:
    """The parameters of the list of jobs. Raises a ProblemError that names all invalid ones."""

    def __init__(self, params: QueryDict) -> None:
        self._errors: list[tuple[str, str]] = []
        known = ("type", "processID", "status", "datetime", "minDuration", "maxDuration")
        for name in params:
            if name not in (*known, "limit", "after", "f"):
                text = f"There is no parameter {shorten(name)!r}.{did_you_mean(name, known)}"
                self._errors.append((name, text))
        self.types = words(params, "type")
        self.processes = words(params, "processID")
        self.statuses = words(params, "status")
        for status in self.statuses:
            if status not in STATUSES:
                text = f"{shorten(status)!r} must be one of: {', '.join(STATUSES)}."
                self._errors.append(("status", text + did_you_mean(status, STATUSES)))
        self.after_time, self.before_time = self._interval(params.get("datetime"))
        self.shortest = self._seconds(params, "minDuration")
        self.longest = self._seconds(params, "maxDuration")
        self.limit, self.after = page_of(params)
        if self._errors:
            raise problem_with_errors(_INVALID, self._errors)

    def select(self, rows: Any) -> Any:
        if self.types and "process" not in self.types:
            return rows.none()
        if self.processes:
            offered = [each for each in self.processes if find(each) is not None]
            types = Type.objects.using(settings.DATABASE).filter(identifier__in=offered)
            rows = rows.filter(type__in=list(types.values_list("pk", flat=True)))
        if self.statuses and set(self.statuses) != set(STATUSES):
            rows = documents.with_status(rows, self.statuses)
        if self.after_time or self.before_time:
            rows = rows.filter(rows.created_between(self.after_time, self.before_time))
        for seconds, compared in ((self.shortest, "gte"), (self.longest, "lte")):
            if seconds is not None:
                ran = Q(started__isnull=False) & ~Q(reason__in=NOT_RUNNING)
                ended = Q(**{f"finished__{compared}": F("started") + seconds})
                since = overview.now() - seconds
                lives = Q(
                    finished=None, **{f"started__{'lte' if compared == 'gte' else 'gte'}": since}
                )
                rows = rows.searched(ran & (ended | lives))
        return rows

    def _interval(self, text: str | None) -> tuple[datetime | None, datetime | None]:
        if not text:
            return None, None
        first, slash, last = text.partition("/")
        times = [self._time(each) for each in (first, last if slash else first)]
        if None not in times and times[0] > times[1]:  # type: ignore[operator]
            self._errors.append(("datetime", "The interval ends before it begins."))
        return times[0], times[1]

    def _time(self, text: str) -> datetime | None:
        if text in ("", ".."):
            return None
        try:
            time = parse_datetime(text)
        except ValueError:
            time = None
        if time is None:
            error = f"{shorten(text)!r} must be a time such as 2030-01-31T18:00:00Z."
            self._errors.append(("datetime", error))
            return None
        try:
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        except OverflowError:  # at the ends of the calendar, where hours do not matter
            return time.replace(tzinfo=UTC)

    def _seconds(self, params: QueryDict, name: str) -> timedelta | None:
        text = params.get(name)
        if text is None:
            return None
        number = whole_number(text)
        if number is None:
            self._errors.append((name, f"{shorten(text)!r} must be a number of seconds."))
            return None
        return timedelta(seconds=number)
