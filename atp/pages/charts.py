"""Draw charts of the queue over time: turn numbers into bars, lines, axes and tables.

The functions here neither query the database nor write HTML; ``atp/parts/chart.html`` writes a
drawing as SVG. The SVG is not scaled, so that text and hatches have the same size on a phone as on
a wide screen. Places are therefore percentages of the plot, as text. Only lines are scaled: a path
in SVG cannot have percentages, so it is drawn in a square of UNITS.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from django.core.exceptions import BadRequest
from django.http import QueryDict
from django.utils import timezone

from .. import text
from ..reports.statistics import SPANS, Ends, Point, Series, UsagePoint

# The width and the height of the square in which lines are drawn.
UNITS = 1000
# Marks that are closer than this part of the width are joined into one: their flags would overlap.
NEAR = 0.07
# The least height of a bar that is not 0, so that one failure among thousands can be seen.
LEAST = 0.012
# The part of a column that separates two bars, if a chart has at most this many columns.
_GAP, _MOST_WITH_GAPS = 0.14, 100
_DAY = timedelta(days=1)


def span_of(data: QueryDict) -> str:
    """Return the parameter ``span`` of a query string, a name in SPANS; by default "1h".

    Raises BadRequest for any other value.
    """
    name = data.get("span", "1h")
    if name not in SPANS:
        raise BadRequest(f"The span {name!r} must be one of: {', '.join(SPANS)}.")
    return name


# What a chart is drawn from.


class Period(Protocol):
    """The time of one column of a chart. It has not ended yet if ``is_partial`` is True."""

    @property
    def begin(self) -> datetime: ...
    @property
    def seconds(self) -> float: ...
    @property
    def is_partial(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A part of the whole in one period, from 0 to 1; None if it is unknown."""

    begin: datetime
    seconds: float
    value: float | None
    is_partial: bool = False


@dataclass(frozen=True, kw_only=True)
class Mark:
    """An event that a chart shows as a vertical line; ``url`` is a page about it, or ""."""

    time: datetime
    text: str
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A series of numbers, one for each column.

    ``values`` are drawn, and ``words`` are the numbers in the table; an unknown one is None and "".
    ``phrase`` puts a number into a sentence, such as "{} failed". ``css`` is the class that gives
    the colour. Bars with an ``angle`` are hatched at this angle, in degrees.
    """

    name: str
    phrase: str
    css: str
    values: tuple[float | None, ...]
    words: tuple[str, ...]
    angle: int | None = None


# The drawing.


class Tick(NamedTuple):
    """A label of an axis. A phone does not show the minor ones."""

    place: str
    text: str
    is_minor: bool = False


class Bar(NamedTuple):
    """A bar with its left upper corner and its size."""

    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What is drawn for one Measure: bars, or a line.

    ``dots`` are the places of values without neighbours, which a line cannot show.
    """

    measure: Measure
    bars: tuple[Bar, ...] = ()
    path: str = ""
    dots: tuple[tuple[str, str], ...] = ()


class Column(NamedTuple):
    """The place of one period. ``title`` has its numbers in words."""

    x: str
    width: str
    title: str
    is_partial: bool


class Row(NamedTuple):
    """A row of the table: the begin of a period, in ISO 8601 and in words, and its numbers."""

    begin: str
    clock: str
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One or more Marks in the same place, with the time of each as text."""

    x: str
    marks: tuple[tuple[str, Mark], ...]

    @property
    def title(self) -> str:
        lines = [f"{clock} {mark.text}" for clock, mark in self.marks]
        return lines[0] if len(lines) == 1 else "\n".join([f"{len(lines)} events:", *lines])

    @property
    def url(self) -> str:
        """The page to which all the Marks lead; "" if they lead to different pages, or nowhere."""
        urls = {mark.url for _, mark in self.marks}
        return urls.pop() if len(urls) == 1 else ""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart as the template shows it.

    ``name`` is a part of all ids, so a page can show one chart with this name. ``kind`` is "bars"
    or "lines". ``label`` describes the chart in a sentence. ``each`` is the length of a period in
    words. ``rows`` are the table, the latest period first. ``pale`` is the path of an earlier
    series behind the others, and ``pale_name`` says which it is; both may be "".
    """

    name: str
    kind: str
    title: str
    label: str
    each: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    layers: tuple[Layer, ...]
    ticks: tuple[Tick, ...]
    times: tuple[Tick, ...]
    flags: tuple[Flag, ...]
    pale: str
    pale_name: str

    @property
    def has_links(self) -> bool:
        return any(flag.url for flag in self.flags)


# The charts.


def throughput_chart(
    series: Series, marks: Iterable[Mark] = (), before: Series | None = None
) -> Chart:
    """Draw how many attempts ended per minute, as stacked bars, with ``before`` behind them.

    Heights are rates, so that charts of different spans compare; titles and the table have the
    numbers of events. The last bar grows until its period is over. Raises ValueError if ``before``
    has another number of points.
    """
    points = series.points
    measures = (
        _counted_measure(points, "finished", "finished"),
        _counted_measure(points, "failed", "failed", angle=45),
        _counted_measure(points, "retried", "paused", angle=-45),
        _counted_measure(points, "dropped", "accepted", angle=0),
    )
    earlier = [_ended_per_minute(point) for point in _comparable_points(series, before)]
    scale = linear_scale(max([*map(_ended_per_minute, points), *earlier], default=0.0))
    return chart(
        "throughput",
        "bars",
        "Ended per minute",
        points,
        stack_bars(points, measures, scale),
        scale,
        marks,
        pale=_area(earlier, scale),
        pale_name=_name_before(series, before),
    )


def waiting_chart(
    series: Series, marks: Iterable[Mark] = (), before: Series | None = None
) -> Chart:
    """Draw how long attempts waited from due to start, as lines on a logarithmic axis.

    The p95 of ``before`` is behind them. Raises ValueError if ``before`` has another number of
    points.
    """
    return _duration_chart("waiting", "Waiting time", "wait", ("p50", "p95"), series, marks, before)


def running_chart(
    series: Series, marks: Iterable[Mark] = (), before: Series | None = None
) -> Chart:
    """Draw how long attempts ran, with their p99; otherwise the same as :func:`waiting_chart`."""
    quantiles = ("p50", "p95", "p99")
    return _duration_chart("running", "Run time", "run", quantiles, series, marks, before)


def utilisation_chart(points: Sequence[Ratio | UsagePoint], marks: Iterable[Mark] = ()) -> Chart:
    """Draw a busy part of the whole, such as of all slots, as bars from 0 to 100 %."""
    busy = Measure(
        name="busy",
        phrase="{} busy",
        css="running",
        values=tuple(point.value for point in points),
        words=tuple(text.percent(point.value) for point in points),
    )
    scale = Scale(ticks=(0.0, 0.25, 0.5, 0.75, 1.0), words=text.percent)
    layers = stack_bars(points, (busy,), scale)
    return chart("utilisation", "bars", "Utilisation", points, layers, scale, marks)


def _counted_measure(
    points: Sequence[Point], name: str, css: str, angle: int | None = None
) -> Measure:
    counts = [getattr(point, name) for point in points]
    rates = (60 * count / point.seconds for count, point in zip(counts, points, strict=True))
    return Measure(
        name=name,
        phrase=f"{{}} {name}",
        css=css,
        values=tuple(rates),
        words=tuple(f"{count:,}" for count in counts),
        angle=angle,
    )


def _ended_per_minute(point: Point) -> float:
    ended = point.finished + point.failed + point.retried + point.dropped
    return 60 * ended / point.seconds


def _comparable_points(series: Series, before: Series | None) -> tuple[Point, ...]:
    """Return the points of ``before``, one for each point of the series; () without ``before``."""
    if before is None:
        return ()
    if len(before.points) != len(series.points):
        raise ValueError(
            f"before has {len(before.points)} points; it must have {len(series.points)}"
        )
    return before.points


def _name_before(series: Series, before: Series | None) -> str:
    if before is None:
        return ""
    return f"{text.duration(series.points[0].begin - before.points[0].begin)} before"


_COLOURS = {"p50": "running", "p95": "scheduled", "p99": "paused"}


def _duration_chart(
    name: str,
    title: str,
    figure: str,
    quantiles: Sequence[str],
    series: Series,
    marks: Iterable[Mark],
    before: Series | None,
) -> Chart:
    points = series.points
    measures = [_timed_measure(points, figure, quantile) for quantile in quantiles]
    earlier = [getattr(point, f"{figure}_p95") for point in _comparable_points(series, before)]
    drawn = [*(measure.values for measure in measures), earlier]
    scale = log_scale([value for values in drawn for value in values if value is not None])
    return chart(
        name,
        "lines",
        title,
        points,
        tuple(draw_line(measure, scale) for measure in measures),
        scale,
        marks,
        pale=_path(earlier, scale),
        pale_name="" if before is None else f"p95, {_name_before(series, before)}",
    )


def _timed_measure(points: Sequence[Point], figure: str, quantile: str) -> Measure:
    values = tuple(getattr(point, f"{figure}_{quantile}") for point in points)
    return Measure(
        name=quantile,
        phrase=f"{quantile} {{}}",
        css=_COLOURS[quantile],
        values=values,
        words=tuple("" if value is None else _duration(value) for value in values),
    )


def chart(
    name: str,
    kind: str,
    title: str,
    periods: Sequence[Period],
    layers: tuple[Layer, ...],
    scale: "Scale",
    marks: Iterable[Mark],
    *,
    pale: str = "",
    pale_name: str = "",
) -> Chart:
    """Return a Chart of successive periods of the same length, which may be none."""
    measures = [layer.measure for layer in layers]
    label, each = f"{title}: no data", ""
    columns: list[Column] = []
    rows: list[Row] = []
    times: Iterable[Tick] = ()
    flags: Iterable[Flag] = ()
    if periods:
        begin, end = periods[0].begin, _end(periods[-1])
        with_day = end - begin >= _DAY
        clocks = [_clock(period.begin, with_day) for period in periods]
        peaks = _phrases(measures, [_peak(measure, scale) for measure in measures])
        label = f"{title}, from {clocks[0]} to {_clock(end, with_day)}: "
        label += f"at most {peaks}" if peaks else "no data"
        each = text.duration(timedelta(seconds=periods[0].seconds))
        for number, (period, clock) in enumerate(zip(periods, clocks, strict=True)):
            values = [(measure.values[number], measure.words[number]) for measure in measures]
            columns.append(_column(number, periods, clock, _phrases(measures, values)))
            local = timezone.localtime(period.begin)
            rows.append(Row(local.isoformat(), clock, tuple(word for _, word in values)))
        times = time_ticks(begin, end)
        flags = join_marks(marks, begin, end)
    return Chart(
        name=name,
        kind=kind,
        title=title,
        label=label,
        each=each,
        columns=tuple(columns),
        rows=tuple(reversed(rows)),
        layers=layers,
        ticks=tuple(Tick(_percent(1 - scale.place(at)), scale.words(at)) for at in scale.ticks),
        times=tuple(times),
        flags=tuple(flags),
        pale=pale,
        pale_name=pale_name,
    )


def _column(number: int, periods: Sequence[Period], clock: str, phrases: str) -> Column:
    period = periods[number]
    so_far = ", so far" if period.is_partial else ""
    return Column(
        x=_percent(number / len(periods)),
        width=_percent(1 / len(periods)),
        title=f"{clock} to {_clock(_end(period))}{so_far}: {phrases or 'no data'}",
        is_partial=period.is_partial,
    )


def _phrases(measures: Sequence[Measure], values: Sequence[tuple[float | None, str]]) -> str:
    """Return the values in words: those that are not 0, or else the first one that is known."""
    known = [
        (value, measure.phrase.format(word))
        for measure, (value, word) in zip(measures, values, strict=True)
        if value is not None
    ]
    return ", ".join([phrase for value, phrase in known if value] or [p for _, p in known[:1]])


def _peak(measure: Measure, scale: "Scale") -> tuple[float | None, str]:
    peak = max((value for value in measure.values if value is not None), default=None)
    return peak, "" if peak is None else scale.words(peak)


# Bars and lines.


def stack_bars(
    periods: Sequence[Period], measures: Sequence[Measure], scale: "Scale"
) -> tuple[Layer, ...]:
    """Return a Layer for each Measure, in which each bar stands on the bars of the one before."""
    share = 1 / max(len(periods), 1)
    gap = _GAP * share if len(periods) <= _MOST_WITH_GAPS else 0.0
    tops = [0.0] * len(periods)
    layers = []
    for measure in measures:
        bars = []
        for number, value in enumerate(measure.values):
            if not value:
                continue
            height = max(scale.place(value), LEAST)
            tops[number] += height
            bars.append(
                Bar(
                    x=_percent(number * share + gap / 2),
                    y=_percent(1 - tops[number]),
                    width=_percent(share - gap),
                    height=_percent(height),
                )
            )
        layers.append(Layer(measure=measure, bars=tuple(bars)))
    return tuple(layers)


def draw_line(measure: Measure, scale: "Scale") -> Layer:
    """Return the line through the known values of a Measure, with gaps for the unknown ones."""
    values = measure.values
    dots = [
        (_percent((number + 0.5) / len(values)), _percent(1 - scale.place(value)))
        for number, value in enumerate(values)
        if value is not None and all(near is None for near in _neighbours(values, number))
    ]
    return Layer(measure=measure, path=_path(values, scale), dots=tuple(dots))


def _neighbours(values: Sequence[float | None], number: int) -> Sequence[float | None]:
    return *values[max(number - 1, 0) : number], *values[number + 1 : number + 2]


def _path(values: Sequence[float | None], scale: "Scale") -> str:
    parts = []
    command = "M"
    for number, value in enumerate(values):
        if value is None:
            command = "M"
            continue
        x = (number + 0.5) / len(values) * UNITS
        parts.append(f"{command}{x:.0f} {_height(value, scale)}")
        command = "L"
    return "".join(parts)


def _area(values: Sequence[float], scale: "Scale") -> str:
    """Return the path round the area under a staircase of values."""
    steps = (
        f"V{_height(value, scale)}H{(number + 1) / len(values) * UNITS:.0f}"
        for number, value in enumerate(values)
    )
    return f"M0 {UNITS}{''.join(steps)}V{UNITS}Z" if values else ""


def _height(value: float, scale: "Scale") -> str:
    return f"{(1 - scale.place(value)) * UNITS:.0f}"


# Axes.


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A vertical axis with 3 to 5 labels at ``ticks``, from ``low`` to the last tick.

    ``words`` returns the text of a value. On a logarithmic axis ``low`` is positive.
    """

    ticks: tuple[float, ...]
    words: Callable[[float], str]
    low: float = 0.0

    def place(self, value: float) -> float:
        """Return the height of a value: 0 at the bottom, 1 at the top, and never outside."""
        high = self.ticks[-1]
        value = min(max(value, self.low), high)
        if self.low > 0:
            return math.log(value / self.low) / math.log(high / self.low)
        return value / high


def linear_scale(most: float) -> Scale:
    """Return an axis from 0 to a round number that is at least ``most``, or to 1 for 0."""
    most = most or 1.0
    power = math.floor(math.log10(most / 4))
    # Division by a power of ten that is negative would make 0.3 of 3 * 0.1.
    steps = (digit * 10.0**power if power >= 0 else digit / 10**-power for digit in (1, 2, 5, 10))
    step = next(step for step in steps if most <= 4 * step)
    number = max(math.ceil(most / step), 2)
    return Scale(ticks=tuple(step * each for each in range(number + 1)), words=compact_number)


_LADDER = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 86400.0, 864_000.0, 8_640_000.0)


def log_scale(values: Sequence[float]) -> Scale:
    """Return a logarithmic axis for these numbers of seconds, from 1 ms to 100 days at most."""
    least, most = (min(values), max(values)) if values else (0.01, 10.0)
    first = max(sum(tick <= least for tick in _LADDER) - 1, 0)
    last = min(sum(tick < most for tick in _LADDER), len(_LADDER) - 1)
    while last - first < 2:
        first, last = (first - 1, last) if first else (first, last + 1)
    # The top has a label; of the others, each second one or fewer if there are many.
    every = math.ceil((last - first) / 4)
    ticks = _LADDER[first : last + 1][::-1][::every][::-1]
    return Scale(ticks=ticks, words=_duration, low=_LADDER[first])


def compact_number(value: float) -> str:
    """Return a number in a few characters, such as "0.25", "1,500" or "12.5k"."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(unit, 10_000):
            return f"{round(value / unit, 1):,g}{name}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{float(f'{value:.3g}'):g}"


def _duration(seconds: float) -> str:
    return text.duration(timedelta(seconds=seconds))


# Steps between the labels of a time axis, in minutes.
_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 1440, 2880, 7 * 1440)
_MOST_TIMES = 7


def time_ticks(begin: datetime, end: datetime) -> Iterator[Tick]:
    """Yield the labels of a time axis, at round times of the current time zone."""
    steps = (timedelta(minutes=minutes) for minutes in _TIME_STEPS)
    step = next((step for step in steps if end - begin <= _MOST_TIMES * step), 7 * _DAY)
    shown = timezone.make_naive(begin)
    shown -= (shown - datetime.min) % step
    while (time := timezone.make_aware(shown).astimezone(UTC)) <= end:
        # No clock shows a time that is skipped when the clocks change.
        if time >= begin and timezone.make_naive(time) == shown:
            yield Tick(
                place=_percent((time - begin) / (end - begin)),
                text=f"{shown:%H:%M}" if shown.time() != datetime.min.time() else f"{shown:%a %d}",
                is_minor=bool((shown - datetime.min) // step % 2),
            )
        shown += step


def _clock(time: datetime, with_day: bool = False) -> str:
    local = timezone.localtime(time)
    return f"{local:%a %d %H:%M}" if with_day else f"{local:%H:%M}"


def _end(period: Period | Ends) -> datetime:
    return period.begin + timedelta(seconds=period.seconds)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}".rstrip("0").rstrip(".") + "%"


# Marks.


def join_marks(marks: Iterable[Mark], begin: datetime, end: datetime) -> Iterator[Flag]:
    """Yield a Flag for each place that has marks. Marks at other times are left out."""
    with_day = end - begin >= _DAY
    shown = sorted((mark for mark in marks if begin <= mark.time <= end), key=lambda m: m.time)
    while shown:
        until = shown[0].time + NEAR * (end - begin)
        here = [mark for mark in shown if mark.time <= until]
        shown = shown[len(here) :]
        yield Flag(
            x=_percent((here[0].time - begin) / (end - begin)),
            marks=tuple((_clock(mark.time, with_day), mark) for mark in here),
        )


# Sparklines.


@dataclass(frozen=True, kw_only=True)
class Sparkline:
    """A tiny picture of ends: two paths in a box of ``width`` by SPARKLINE_HEIGHT units."""

    label: str
    width: int
    finished: str
    failed: str


SPARKLINE_HEIGHT = 20


def draw_sparkline(points: Sequence[Point | Ends]) -> Sparkline:
    """Return a Sparkline of successive periods, with the failed above the finished ones."""
    most = max((point.finished + point.failed for point in points), default=0)
    finished, failed = [], []
    for x, point in enumerate(points):
        below = _sparkline_height(point.finished, most)
        above = _sparkline_height(point.failed, most)
        finished.append(_sparkline_bar(x, 0.0, below))
        failed.append(_sparkline_bar(x, below, above))
    label = "No data"
    if points:
        ended = [sum(point.finished for point in points), sum(point.failed for point in points)]
        label = (
            f"From {_clock(points[0].begin)} to {_clock(_end(points[-1]))}: "
            f"{ended[0]:,} finished, {ended[1]:,} failed"
        )
    return Sparkline(
        label=label,
        width=max(len(points), 1),
        finished="".join(finished),
        failed="".join(failed),
    )


def _sparkline_height(count: int, most: int) -> float:
    """Return the height of a bar. A bar that is not 0 can be seen."""
    return max(count / most * (SPARKLINE_HEIGHT - 2), 2.0) if count else 0.0


def _sparkline_bar(x: int, below: float, height: float) -> str:
    if not height:
        return ""
    return f"M{x} {SPARKLINE_HEIGHT - below:.1f}v-{height:.1f}h1v{height:.1f}z"
