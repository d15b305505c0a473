"""Tests of the charts: from numbers to bars, lines, axes and tables, and to SVG."""

import html
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from django.core.exceptions import BadRequest
from django.http import QueryDict
from django.template import engines
from django.utils import timezone, translation

from atp.pages import charts
from atp.pages.charts import Mark, Ratio
from atp.reports import statistics
from atp.reports.statistics import SPANS, Point, Series
from atp.states import Event, Reason

from ..store.world import HOUR, ONE, SECOND, TWO

BEGIN = datetime(2026, 5, 4, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EMPTY = Point(
    begin=BEGIN,
    seconds=60.0,
    is_partial=False,
    **dict.fromkeys(("started", "finished", "failed", "dropped", "retried", "lost"), 0),
    **dict.fromkeys(("wait_p50", "wait_p95", "run_p50", "run_p95", "run_p99")),
)


def series(*changes, begin=BEGIN, step=MINUTE):
    """Return a Series with a point for each dict of values."""
    seconds = step.total_seconds()
    points = (
        replace(EMPTY, begin=begin + number * step, seconds=seconds, **values)
        for number, values in enumerate(changes)
    )
    return Series(type=None, step=step, points=tuple(points))


def written(*drawings):
    """Return the HTML of charts."""
    template = engines["django"].from_string(
        "{% load atp %}{% for each in drawings %}{% chart each %}{% endfor %}"
    )
    return template.render({"drawings": drawings})


def table_of(page):
    """Return the rows of the only table in HTML: the numbers of each period by name."""
    names = re.findall(r'<th class="number">(\w+)</th>', page)
    rows = re.findall(r"<tr><td><time .*?</tr>", page)
    cells = (re.findall(r'<td class="number">([^<]*)</td>', row) for row in rows)
    return [dict(zip(names, row, strict=True)) for row in cells]


def layer_of(chart, name):
    [layer] = [layer for layer in chart.layers if layer.measure.name == name]
    return layer


def share(place):
    return float(place.removesuffix("%")) / 100


@pytest.mark.each_database
def test_numbers_in_the_table_are_those_of_the_log(world):
    """The log, counted once more, has them too."""
    host = world.host()
    world.enqueue(4)
    world.enqueue(type=TWO)
    [cancelled] = world.enqueue(type=TWO)
    world.as_anyone(Event.FAIL, cancelled, reason=Reason.CANCELLED)
    ends = [(Event.FINISH, {})] * 3
    ends += [(Event.RETRY, {"delay": HOUR}), (Event.FAIL, {"reason": Reason.ERROR})]
    for case, (event, details) in zip(host.claim(), ends, strict=True):
        known = {"time": world.store.now(), "who": f"{host.row} worker 1"}
        host.move(case, Event.START, **known)
        host.move(case, event, **known, **details)
    host.lose_lease()
    world.store.daemons.sweep()
    while world.store.statistics.pay():
        pass
    found = statistics.series(None, SPANS["1h"])
    rows = table_of(written(charts.throughput_chart(found)))
    assert len(rows) == 60
    totals = {name: sum(int(row[name]) for row in rows) for name in rows[0]}
    assert totals == {"finished": 3, "failed": 1, "retried": 1, "dropped": 1}
    log = statistics.recounted()
    assert log.keys() == {ONE, TWO}
    columns = {"failed": "failed_error", "dropped": "failed_cancelled"}
    for name, total in totals.items():
        assert total == sum(cell.counts[columns.get(name, name)] for cell in log.values()), name
    assert any(row["p95"] for row in table_of(written(charts.running_chart(found))))


def test_span_is_one_of_four():
    assert charts.span_of(QueryDict("")) == "1h"
    assert charts.span_of(QueryDict("span=7d")) == "7d"
    with pytest.raises(BadRequest, match="'2h' must be one of: 1h, 6h, 24h, 7d"):
        charts.span_of(QueryDict("span=2h"))


def test_linear_axis_has_three_to_five_round_labels():
    for most in (0, 1e-4, 0.05, 0.3, 1, 7, 10, 41, 120, 9999, 1e12, 1e100):
        scale = charts.linear_scale(most)
        assert 3 <= len({scale.words(tick) for tick in scale.ticks}) == len(scale.ticks) <= 5, most
        assert (scale.ticks[0], scale.ticks[-1] >= most) == (0, True)
        assert [scale.place(value) for value in (-1, 0, scale.ticks[-1], 1e200)] == [0, 0, 1, 1]


def test_logarithmic_axis_has_three_to_five_round_labels_and_equal_heights_for_equal_factors():
    units = {"ms", "s", "min", "h", "d", "24h"}
    for values in ([], [0.0], [0.02], [0.02, 3.0], [0.0001, 1e9], [60.0, 60.0], [1e9]):
        scale = charts.log_scale(values)
        assert 3 <= len(scale.ticks) <= 5, values
        assert [*scale.ticks] == sorted(set(scale.ticks))
        assert {re.sub(r"^10*|0* ", "", scale.words(tick)) for tick in scale.ticks} <= units
        assert all(0 <= scale.place(value) <= 1 for value in values)
    scale = charts.log_scale([0.001, 9.0])
    assert [scale.words(tick) for tick in scale.ticks] == ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]
    assert [round(scale.place(0.01 * 10**n), 3) for n in range(4)] == [0.25, 0.5, 0.75, 1.0]


def test_numbers_of_an_axis_are_short():
    numbers = {0: "0", 0.05: "0.05", 0.5: "0.5", 12.4: "12.4", 120: "120", 1500: "1,500"}
    numbers |= {12_500: "12.5k", 3e6: "3M", 2e9: "2G", 1e12: "1T"}
    assert {number: charts.compact_number(number) for number in numbers} == numbers


def test_bars_are_stacked_and_to_scale():
    """One failure among many can be seen."""
    chart = charts.throughput_chart(series({"finished": 60, "failed": 40}, {"finished": 30}))
    assert [tick.text for tick in chart.ticks] == ["0", "50", "100"]
    first, second = layer_of(chart, "finished").bars
    [failed] = layer_of(chart, "failed").bars
    assert (first.y, first.height) == ("40%", "60%")
    assert (failed.y, failed.height) == ("0%", "40%")
    assert failed.x == first.x
    assert (second.y, second.height) == ("70%", "30%")
    assert share(second.x) - share(first.x) == pytest.approx(0.5)
    chart = charts.throughput_chart(series({"finished": 100_000, "failed": 1}))
    assert share(layer_of(chart, "failed").bars[0].height) == charts.LEAST


def test_bars_are_rates_per_minute_and_titles_have_the_numbers():
    chart = charts.throughput_chart(series({"finished": 1200}, {"retried": 5}, step=5 * MINUTE))
    assert chart.ticks[-1].text == "300"
    assert layer_of(chart, "finished").bars[0].height == "80%"
    with timezone.override("Europe/Vienna"):
        chart = charts.throughput_chart(
            series({"finished": 1200, "failed": 2}, {}, {"is_partial": True}, step=5 * MINUTE)
        )
    assert chart.label == "Ended per minute, from 04:00 to 04:15: at most 240 finished, 0.4 failed"
    assert [column.title for column in chart.columns] == [
        "04:00 to 04:05: 1,200 finished, 2 failed",
        "04:05 to 04:10: 0 finished",
        "04:10 to 04:15, so far: 0 finished",
    ]


def test_line_has_a_gap_where_a_value_is_unknown():
    values = [0.01, 0.1, None, 1.0, None, 10.0, 10.0]
    chart = charts.waiting_chart(series(*({"wait_p50": value} for value in values)))
    line = layer_of(chart, "p50")
    assert line.path == "M71 1000L214 667M500 333M786 0L929 0"
    assert line.dots == (("50%", "33.33%"),)
    assert layer_of(chart, "p95").path == ""
    assert chart.columns[2].title == "02:02 to 02:03: no data"
    assert chart.columns[3].title == "02:03 to 02:04: p50 1 s"
    assert chart.label == "Waiting time, from 02:00 to 02:07: at most p50 10 s"


def test_charts_without_points_or_events_are_drawn():
    nothing = charts.utilisation_chart([])
    assert (nothing.label, nothing.columns) == ("Utilisation: no data", ())
    assert "No data yet." in written(nothing)
    for found in (series({}), series({}, {}, {"is_partial": True})):
        bars, lines = charts.throughput_chart(found), charts.waiting_chart(found)
        assert [tick.text for tick in bars.ticks] == ["0", "0.5", "1"]
        assert bars.label.endswith(": at most 0 finished")
        assert not any(layer.bars for layer in bars.layers)
        assert lines.label.endswith(": no data")
        assert len(table_of(written(lines))) == len(found.points)
    one = layer_of(charts.waiting_chart(series({"wait_p95": 2.0})), "p95")
    assert one.dots == (("50%", "34.95%"),)


def test_utilisation_is_from_0_to_100_percent():
    values = [0.0, 0.5, None, 1.2]
    points = [
        Ratio(begin=BEGIN + number * MINUTE, seconds=60, value=value)
        for number, value in enumerate(values)
    ]
    chart = charts.utilisation_chart(points)
    assert [tick.text for tick in chart.ticks] == ["0%", "25%", "50%", "75%", "100%"]
    assert [bar.height for bar in layer_of(chart, "busy").bars] == ["50%", "100%"]
    assert [row["busy"] for row in table_of(written(chart))] == ["120%", "", "50%", "0%"]
    assert [column.title[16:] for column in chart.columns[:3]] == ["0% busy", "50% busy", "no data"]


def test_earlier_series_is_drawn_behind_on_the_same_axis():
    now = series({"finished": 10}, {"finished": 10})
    before = series({"failed": 40}, {}, begin=BEGIN - 24 * HOUR)
    chart = charts.throughput_chart(now, before=before)
    assert (chart.pale, chart.pale_name) == ("M0 1000V0H500V1000H1000V1000Z", "24 h before")
    assert layer_of(chart, "finished").bars[0].height == "25%"
    earlier = series({"wait_p95": 0.1}, {"wait_p95": 1.0}, begin=BEGIN - 24 * HOUR)
    lines = charts.waiting_chart(now, before=earlier)
    assert (lines.pale, lines.pale_name) == ("M250 500L750 0", "p95, 24 h before")
    assert "p95, 24 h before" in written(lines)
    with pytest.raises(ValueError, match="before has 1 points; it must have 2"):
        charts.waiting_chart(now, before=series({}))


def test_labels_of_the_time_axis_are_round_in_the_current_time_zone():
    with timezone.override("Asia/Kolkata"):
        found = list(charts.time_ticks(BEGIN, BEGIN + HOUR))
        day = list(charts.time_ticks(BEGIN, BEGIN + 24 * HOUR))
    texts = ["07:30", "07:40", "07:50", "08:00", "08:10", "08:20", "08:30"]
    assert [tick.text for tick in found] == texts
    assert (found[0].place, found[3].place, found[-1].place) == ("0%", "50%", "100%")
    assert [tick.is_minor for tick in found] == [True, False, True, False, True, False, True]
    assert [tick.text for tick in day] == ["08:00", "12:00", "16:00", "20:00", "Tue 05", "04:00"]


def test_time_axis_is_right_when_the_clock_changes():
    """Clocks in Vienna change on 29 March and on 25 October 2026."""
    with timezone.override("Europe/Vienna"):
        for (month, day), hours in product([(3, 29), (10, 25)], (1, 6, 24)):
            begin = datetime(2026, month, day, tzinfo=UTC)
            found = list(charts.time_ticks(begin, begin + hours * HOUR))
            places = [share(tick.place) for tick in found]
            assert places == sorted(set(places))
            assert len(found) >= 5
            for tick in found:
                # A place is rounded to a ten-thousandth of the width.
                time = begin + share(tick.place) * hours * HOUR + 5 * SECOND
                local = timezone.localtime(time)
                assert tick.text in (f"{local:%H:%M}", f"{local:%a %d}")


def test_marks_in_one_place_are_joined_and_others_have_links():
    end = BEGIN + HOUR
    marks = [
        Mark(time=BEGIN + 31 * MINUTE, text="later"),
        Mark(time=BEGIN + 30 * MINUTE, text="held", url="/a"),
        Mark(time=end, text="<last>", url="/b"),
        Mark(time=BEGIN - MINUTE, text="before"),
        Mark(time=end + MINUTE, text="after"),
    ]
    joined, last = charts.join_marks(marks, BEGIN, end)
    assert (joined.x, joined.url) == ("50%", "")
    assert joined.title == "2 events:\n02:30 held\n02:31 later"
    assert (last.x, last.url, last.title) == ("100%", "/b", "03:00 <last>")
    page = written(charts.throughput_chart(series(*[{}] * 60), marks))
    assert '<svg class="plot" role="group"' in page
    assert page.count('<a href="/b" aria-label="03:00 &lt;last&gt;">') == 1
    # The list has the link that the joined marks have not.
    assert '<li>02:30 <a href="/a">held</a></li>' in page
    assert "<last>" not in page
    assert 'role="img" aria-label="2 events' in page
    # A chart without links is a picture.
    page = written(charts.throughput_chart(series({}), [Mark(time=BEGIN, text="held")]))
    assert '<svg class="plot" role="img" aria-label="Ended per minute, from 02:00' in page


@pytest.mark.parametrize("language", ["en", "de"])
def test_two_charts_on_a_page_obey_the_content_policy(language, settings):
    """Their ids are unique, and each reference leads to one. A decimal comma would break an SVG."""
    settings.USE_THOUSAND_SEPARATOR = True
    values = ({"finished": n, "failed": 1, "wait_p50": n / 7 or None} for n in range(288))
    found = series(*values)
    before = series(*[{"finished": 5000, "wait_p95": 0.3}] * 288, begin=BEGIN - 24 * HOUR)
    marks = [Mark(time=BEGIN + HOUR, text="held", url="/a")]
    with translation.override(language):
        draw = (charts.throughput_chart, charts.waiting_chart)
        page = written(*(each(found, marks, before) for each in draw))
    assert not re.search(r"\bstyle=|<script|<style|\bon\w+=", page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(ids)
    assert {"chart-throughput-numbers", "chart-waiting-numbers"} <= set(ids)
    for value in re.findall(r' (?:x|y|x1|y1|width|height|cx|cy)="([^"]*)"', page):
        assert re.fullmatch(r"-?\d+(\.\d+)?%?", value), value
    assert len(re.findall(r"<rect [^>]*><title>[^<]+</title></rect>", page)) == 2 * 288


def test_sparkline_shows_failed_above_finished():
    points = series({"finished": 90}, {}, {"finished": 50, "failed": 40}, {"failed": 1}).points
    line = charts.draw_sparkline(points)
    assert line.finished == "M0 20.0v-18.0h1v18.0zM2 20.0v-10.0h1v10.0z"
    assert line.failed == "M2 10.0v-8.0h1v8.0zM3 20.0v-2.0h1v2.0z"
    template = engines["django"].from_string("{% load atp %}{% sparkline points %}")
    page = html.unescape(template.render({"points": points}))
    assert 'viewBox="0 0 4 20"' in page
    assert page.count("From 02:00 to 02:04: 140 finished, 41 failed") == 2
    assert 'aria-label="No data"' in template.render({"points": ()})
