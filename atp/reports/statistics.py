"""Compute rates, durations, the use of workers and their history from the daemons' counts."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from django.db.models import Max, Q, QuerySet, Sum

from ..conf import settings
from ..models import (
    ALL_TYPES,
    BUCKETS,
    EPOCH,
    FAILURE_COLUMNS,
    HISTOGRAMS,
    LogRecord,
    Span,
    Statistic,
    Uncounted,
    Usage,
    failure_column,
)
from ..states import DEAD_LETTER
from ..store import get_store
from ..store.counts import Cell, Counts

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
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
    return _add_by_type(row for row in counts.rows() if row.type != ALL_TYPES)


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
    """Select the rows of single Types."""
    return Statistic.objects.using(settings.DATABASE).exclude(type=ALL_TYPES)


def _rows_since(since: datetime, type: str | None = None) -> QuerySet[Statistic]:
    rows = _rows().filter(span__in=(Span.MINUTE, Span.HOUR), start__gte=since)
    return rows if type is None else rows.filter(type=type)


# The history of the counts, for charts.

# The spans of time that a chart can show, by their names.
SPANS = {
    "1h": HOUR,
    "6h": 6 * HOUR,
    "24h": 24 * HOUR,
    "7d": 7 * 24 * HOUR,
}
# A chart has at most this many points. Each covers the shortest of these times that is possible.
MOST_POINTS = 288
_STEPS = (MINUTE, 2 * MINUTE, 5 * MINUTE, HOUR)
_COLUMNS = ("started", "finished", "retried", "lost", *FAILURE_COLUMNS)
_DEAD_COLUMNS = tuple(failure_column(reason) for reason in DEAD_LETTER)


@dataclass(frozen=True, kw_only=True)
class Point:
    """The events in one period of a :class:`Series`, which begins at ``begin``.

    ``seconds`` is the length of the period. The period still goes on if ``is_partial`` is True.
    ``failed`` counts the Instances that became dead letters. ``dropped`` counts those that FAILED
    on purpose or as a consequence: cancelled, dropped, missed, or behind another node. ``retried``
    and ``lost`` count attempts. The quantiles of waiting and run times are in seconds, or None if
    no time was counted; see :func:`quantiles`.
    """

    begin: datetime
    seconds: float
    is_partial: bool
    started: int
    finished: int
    failed: int
    dropped: int
    retried: int
    lost: int
    wait_p50: float | None
    wait_p95: float | None
    run_p50: float | None
    run_p95: float | None
    run_p99: float | None


@dataclass(frozen=True, kw_only=True)
class Series:
    """The history of one Type, or of all Types if ``type`` is None.

    ``points`` are successive periods of the length ``step``, the oldest first.
    """

    type: str | None
    step: timedelta
    points: tuple[Point, ...]


def series(type: str | None, span: timedelta, now: datetime | None = None) -> Series:
    """Return the history of a Type, or of all Types for None, in one query.

    It covers ``span`` up to the end of the period that contains ``now``; ``now`` is by default the
    database's time. Periods begin at whole multiples of their length in UTC. Counts that the
    database keeps by hours are spread evenly over shorter periods. An unknown Type has points
    without events. Raises ValueError if ``span`` is shorter than a minute or longer than
    MOST_POINTS hours.
    """
    step = step_of(span)
    now = now or get_store().now()
    number = span // step
    begin = EPOCH + ((now - EPOCH) // step + 1 - number) * step
    cells = [Cell() for _ in range(number)]
    rows = Statistic.objects.using(settings.DATABASE).filter(
        Q(span=Span.MINUTE, start__gte=begin) | Q(span=Span.HOUR, start__gt=begin - HOUR),
        type=ALL_TYPES if type is None else type,
        start__lt=begin + number * step,
    )
    for length, start, *counted in rows.values_list("span", "start", *HISTOGRAMS, *_COLUMNS):
        parts = max(timedelta(seconds=length) // step, 1)
        for part, at in enumerate(range((start - begin) // step, number)[:parts]):
            if at >= 0:
                _add_counts(cells[at], counted, part, parts)
    points = (_point(cell, begin + at * step, step, now) for at, cell in enumerate(cells))
    return Series(type=type, step=step, points=tuple(points))


def step_of(span: timedelta) -> timedelta:
    """Return the length of a point of a history that covers ``span``. Raises ValueError."""
    if not MINUTE <= span <= MOST_POINTS * HOUR:
        raise ValueError(f"span is {span}; it must be from a minute to {MOST_POINTS} hours")
    return next(step for step in _STEPS if span <= MOST_POINTS * step)


def _add_counts(cell: Cell, counted: Sequence[Any], part: int, parts: int) -> None:
    """Add one of ``parts`` equal parts of a row's histograms and numbers, in their order here."""
    wait, run, *numbers = counted
    if parts > 1:
        wait, run, numbers = (_share(each, part, parts) for each in (wait, run, numbers))
    for own, histogram in ((cell.wait, wait), (cell.run, run)):
        for place, number in enumerate(histogram):
            own[place] += number
    for name, number in zip(_COLUMNS, numbers, strict=True):
        cell.counts[name] += number


def _share(numbers: Iterable[int], part: int, parts: int) -> list[int]:
    """Return one of ``parts`` shares, which are as equal as possible and add up to the numbers."""
    return [number * (part + 1) // parts - number * part // parts for number in numbers]


def _point(cell: Cell, begin: datetime, step: timedelta, now: datetime) -> Point:
    counts = cell.counts
    failed = sum(counts[name] for name in _DEAD_COLUMNS)
    wait = quantiles_of(cell.wait, (0.5, 0.95)) or (None, None)
    run = quantiles_of(cell.run) or (None, None, None)
    return Point(
        begin=begin,
        seconds=step.total_seconds(),
        is_partial=begin + step > now,
        started=counts["started"],
        finished=counts["finished"],
        failed=failed,
        dropped=sum(counts[name] for name in FAILURE_COLUMNS) - failed,
        retried=counts["retried"],
        lost=counts["lost"],
        wait_p50=wait[0],
        wait_p95=wait[1],
        run_p50=run[0],
        run_p95=run[1],
        run_p99=run[2],
    )


# The last hour of several Types, for a table.

# A rate is that of these last whole minutes.
_RATE_OVER = 5


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The Instances that FINISHED, and those that became dead letters, in one period."""

    begin: datetime
    seconds: float
    finished: int
    failed: int


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The last hour of a Type.

    ``per_minute`` is the number of Instances that ended per minute, within the last five minutes.
    ``failed`` is the number of dead letters of the hour, and ``share`` their share of all that
    ended, or None if nothing ended. ``wait_p95`` and ``run_p95`` are in seconds, or None; see
    :func:`quantiles`. ``minutes`` contains the ends in each minute, the oldest first.
    """

    per_minute: float
    failed: int
    share: float | None
    wait_p95: float | None
    run_p95: float | None
    minutes: tuple[Ends, ...]


def figures(types: Iterable[str], now: datetime | None = None) -> dict[str, Figures]:
    """Return the Figures of Types, by identifier, in one query."""
    now = now or get_store().now()
    begin = _start_of_minute(now) - HOUR + MINUTE
    number = HOUR // MINUTE
    cells = {type: [Cell() for _ in range(number)] for type in types}
    rows = Statistic.objects.using(settings.DATABASE).filter(
        span=Span.MINUTE, start__gte=begin, type__in=list(cells)
    )
    for type, start, *counted in rows.values_list("type", "start", *HISTOGRAMS, *_COLUMNS):
        at = (start - begin) // MINUTE
        if at < number:
            _add_counts(cells[type][at], counted, 0, 1)
    return {type: _figures(own, begin) for type, own in cells.items()}


def _figures(cells: Sequence[Cell], begin: datetime) -> Figures:
    minutes, whole = [], Cell()
    for at, cell in enumerate(cells):
        whole.add(cell)
        failed = sum(cell.counts[name] for name in _DEAD_COLUMNS)
        minutes.append(
            Ends(
                begin=begin + at * MINUTE,
                seconds=MINUTE.total_seconds(),
                finished=cell.counts["finished"],
                failed=failed,
            )
        )
    ended = [minute.finished + minute.failed for minute in minutes]
    failed = sum(minute.failed for minute in minutes)
    [wait_p95] = quantiles_of(whole.wait, [0.95]) or [None]
    [run_p95] = quantiles_of(whole.run, [0.95]) or [None]
    return Figures(
        # The minute that still goes on is left out.
        per_minute=sum(ended[-_RATE_OVER - 1 : -1]) / _RATE_OVER,
        failed=failed,
        share=failed / sum(ended) if any(ended) else None,
        wait_p95=wait_p95,
        run_p95=run_p95,
        minutes=tuple(minutes),
    )


# How busy the workers of daemons were, and its history, from the rows of Usage

# A daemon's last minute is at most so many minutes old: it adds the row at its next renewal.
_LAST_MINUTES = 3


@dataclass(frozen=True, kw_only=True)
class UsagePoint:
    """What the workers of one daemon, or of all, did in one period, which begins at ``begin``.

    ``seconds`` is the length of the period. The period still goes on if ``is_partial`` is True.
    ``capacity`` and ``busy`` are in seconds of workers: all, and those in which attempts ran.
    ``ended`` counts attempts that ended. ``memory`` is the most memory of the workers of one
    daemon, in bytes, or 0 if it is unknown; see :class:`atp.models.Usage`.
    """

    begin: datetime
    seconds: float
    is_partial: bool
    capacity: float
    busy: float
    ended: int
    memory: int

    @property
    def value(self) -> float | None:
        """The busy part of the capacity, from 0 to 1; None without capacity."""
        return _utilisation(self.busy, self.capacity)


def usage(
    span: timedelta, now: datetime | None = None, *, daemon: UUID | None = None
) -> Sequence[UsagePoint]:
    """Return the history of a daemon's workers, or of all daemons' workers, in one query.

    The points are successive periods, the oldest first. They have the lengths and begins of the
    points of :func:`series`, and cover ``span`` up to the end of the period that
    contains ``now``; ``now`` is by default the database's time. What the database keeps by hours is
    in the point in which the hour begins. Raises ValueError if ``span`` is shorter than a minute or
    too long for a chart.
    """
    step = step_of(span)
    now = now or get_store().now()
    number = span // step
    begin = EPOCH + ((now - EPOCH) // step + 1 - number) * step
    rows = Usage.objects.using(settings.DATABASE).filter(
        span__in=(Span.MINUTE, Span.HOUR), start__gte=begin, start__lt=begin + number * step
    )
    if daemon is not None:
        rows = rows.filter(daemon=daemon)
    sums = [[0, 0, 0, 0] for _ in range(number)]
    for start, *found in rows.values_list("start").annotate(
        Sum("capacity_us"), Sum("busy_us"), Sum("ended"), Max("memory")
    ):
        *added, most = sums[(start - begin) // step]
        *counts, memory = found
        both = zip(added, counts, strict=True)
        sums[(start - begin) // step] = [*(a + b for a, b in both), max(most, memory)]
    return [
        UsagePoint(
            begin=begin + at * step,
            seconds=step.total_seconds(),
            is_partial=begin + (at + 1) * step > now,
            capacity=capacity / 1e6,
            busy=busy / 1e6,
            ended=ended,
            memory=memory,
        )
        for at, (capacity, busy, ended, memory) in enumerate(sums)
    ]


def utilisation_now(now: datetime) -> dict[UUID, float]:
    """Return the busy part of each daemon's workers, from 0 to 1, by the daemon's uuid.

    It is that of the daemon's last complete minute. A daemon that has not written such a minute
    within the last three minutes before ``now`` is left out. It is one query.
    """
    minute = now.replace(second=0, microsecond=0)
    rows = Usage.objects.using(settings.DATABASE).filter(
        span=Span.MINUTE, start__gte=minute - _LAST_MINUTES * MINUTE, start__lt=minute
    )
    sums = rows.values("daemon", "start").annotate(capacity=Sum("capacity_us"), busy=Sum("busy_us"))
    found = {}
    for row in sums.order_by("start"):
        part = _utilisation(row["busy"], row["capacity"])
        if part is not None:
            found[row["daemon"]] = part
    return found


def _utilisation(busy: float, capacity: float) -> float | None:
    # An attempt that ended in one period may be counted in the next one, some milliseconds later.
    return min(busy / capacity, 1.0) if capacity else None
