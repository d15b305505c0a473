"""Compute rates and durations of Types from the daemons' counts."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

from django.db.models import Max, QuerySet, Sum

from ..conf import settings
from ..models import BUCKETS, FAILURE_COLUMNS, HISTOGRAMS, LogRecord, Span, Statistic, Uncounted
from ..store import get_store
from ..store.counts import Cell, Counts

MINUTE = timedelta(minutes=1)
# The number of LogRecords that are recounted in one query.
PIECE = 20_000


def start_rate(type: str, *, seconds: float = 300, now: datetime | None = None) -> float:
    """Return how many attempts of a Type have recently started per second.

    The rate covers the current minute and the complete minutes that begin within ``seconds`` before
    ``now``; ``now`` is by default the database's time. From 60 seconds on, at least one complete
    minute is covered. Returns 0.0 if no attempt started or the Type is unknown.
    """
    return _rate_of_columns(type, ("started",), seconds, now)


def end_rate(type: str, *, seconds: float = 300, now: datetime | None = None) -> float:
    """Return how many Instances of a Type have recently FINISHED or FAILED per second.

    An attempt that is followed by a retry does not count. The rate covers the same minutes as
    :func:`start_rate`.
    """
    return _rate_of_columns(type, ("finished", *FAILURE_COLUMNS), seconds, now)


def quantiles(
    type: str,
    figure: Literal["run", "wait"],
    at: Sequence[float] = (0.5, 0.95, 0.99),
    *,
    seconds: float = 3600,
    now: datetime | None = None,
) -> tuple[float, ...] | None:
    """Return quantiles of a Type's run times, or of its waiting times, in seconds.

    ``figure`` is "run" for the time from the start of an attempt to its end, or "wait" for the time
    from the due time to the start. ``at`` contains the quantiles to return, and ``seconds`` is the
    length of the period before ``now``. Each result is accurate within a factor of two, because
    times are counted in buckets. Returns None if no time was counted. Raises ValueError for another
    figure, or for a quantile outside 0 to 1.
    """
    if figure not in HISTOGRAMS:
        raise ValueError(f"figure is {figure!r}; it must be one of: {', '.join(HISTOGRAMS)}")
    if not all(0 <= each <= 1 for each in at):
        raise ValueError(f"at is {at!r}; a quantile must be from 0 to 1")
    return quantiles_of(histogram(type, figure, seconds=seconds, now=now), at)


def quantiles_of(
    counts: list[int], at: Sequence[float] = (0.5, 0.95, 0.99)
) -> tuple[float, ...] | None:
    """Return quantiles in seconds, from the number of times in each bucket; None if all are 0."""
    if not any(counts):
        return None
    return tuple(_quantile(counts, each) for each in at)


def histogram(
    type: str,
    figure: Literal["run", "wait"],
    *,
    seconds: float = 3600,
    now: datetime | None = None,
) -> list[int]:
    """Return how many of a Type's run times or waiting times fall into each bucket."""
    counts = [0] * BUCKETS
    rows = _rows_since((now or get_store().now()) - timedelta(seconds=seconds), type)
    for one in rows.values_list(figure, flat=True):
        for place, number in enumerate(one):
            counts[place] += number
    return counts


def sums(*, type: str | None = None, since: datetime | None = None) -> dict[str, Cell]:
    """Return the sums of all counts since a time, or of all time, by identifier of the Type."""
    found = _rows() if since is None else _rows_since(since)
    return _add_by_type(found if type is None else found.filter(type=type))


def recounted() -> dict[str, Cell]:
    """Recount everything from the whole log, and return the same kind of dict as :func:`sums`.

    The result lacks removed Instances and all waiting times.
    """
    records = LogRecord.objects.using(settings.DATABASE)
    last = records.aggregate(last=Max("pk"))["last"] or 0
    counts = Counts()
    for start in range(0, last, PIECE):
        piece = records.filter(pk__gt=start, pk__lte=min(start + PIECE, last))
        counts.merge(get_store().statistics.counted(piece))
    return _add_by_type(counts.rows())


def owed() -> int:
    """Return the maximum number of LogRecords of ended daemons that are still to be counted."""
    rows = Uncounted.objects.using(settings.DATABASE)
    return sum(until - after for after, until in rows.values_list("after", "until"))


def _add_by_type(rows: Iterable[Statistic]) -> dict[str, Cell]:
    added: dict[str, Cell] = defaultdict(Cell)
    for row in rows:
        added[row.type].add(row)
    return dict(sorted(added.items()))


def _rate_of_columns(
    type: str, columns: Sequence[str], seconds: float, now: datetime | None
) -> float:
    now = now or get_store().now()
    begins = now - timedelta(seconds=seconds)
    since = _start_of_minute(begins)
    # Count at least one whole minute: daemons may not have written all of the current one yet.
    if since < begins and now - since >= 2 * MINUTE:
        since += MINUTE
    added = _rows_since(since, type).aggregate(**{f"sum_{name}": Sum(name) for name in columns})
    return sum(map(float, filter(None, added.values()))) / max((now - since).total_seconds(), 1.0)


def _quantile(counts: list[int], at: float) -> float:
    """Return the quantile ``at``, as if the times in each bucket were evenly distributed."""
    rank, before = at * sum(counts), 0
    for place, number in enumerate(counts):
        if number and before + number >= rank:
            low = 0.0 if place == 0 else 2.0 ** (place - 1)
            high = 2.0**place
            return (low + (high - low) * max(rank - before, 0.0) / number) / 1000
        before += number
    raise AssertionError("a quantile is beyond all counted times")


def _start_of_minute(time: datetime) -> datetime:
    return time.replace(second=0, microsecond=0)


def _rows() -> QuerySet[Statistic]:
    return Statistic.objects.using(settings.DATABASE)


def _rows_since(since: datetime, type: str | None = None) -> QuerySet[Statistic]:
    rows = _rows().filter(span__in=(Span.MINUTE, Span.HOUR), start__gte=since)
    return rows if type is None else rows.filter(type=type)
