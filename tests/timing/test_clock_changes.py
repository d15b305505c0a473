"""Cron where clocks are changed: compared with Debian's rules, applied minute by minute.

The oracle is :mod:`tests.timing.oracle`, which shares no code with :mod:`atp.timing`.
"""

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from atp.timing.cron import Cron

from .oracle import MINUTE, Watched, transitions
from .zones import ZONES

FIXED = (
    "30 2 * * *",
    "0 0 * * *",
    "15,45 0-3 * * *",
    "30 23 * * *",
    "0 1 * * SUN",
    "5 0 L * SAT",
)
FOLLOWING = (
    "*/15 * * * *",
    "30 * * * *",
    "*/20 2 * * *",
    "*/20 0 * * FRI,SUN",
    "10 */2 * * *",
    "*/7 1-2 1-7 * SAT,SUN",
)
AROUND = timedelta(hours=27)
# Minutes from a change at which is asked what comes next and what was last.
ASKED = (-90, -61, -60, -35, -30, -10, -1, 0, 1, 10, 25, 30, 45, 59, 60, 61, 80, 120, 150)


@pytest.fixture(scope="module", params=ZONES)
def changes(request):
    """The clock of a zone around each of its changes, 2026 to 2030."""
    return [
        (time, Watched(request.param, time - AROUND, time + AROUND))
        for time in transitions(request.param, 2026, 2030)
    ]


@pytest.mark.parametrize("expression", FIXED + FOLLOWING)
def test_each_change_of_a_clock(changes, expression):
    for change, watched in changes:
        cron = Cron(expression, watched.zone)
        slots = watched.slots(expression)
        between = (watched.since - MINUTE, watched.until - MINUTE, 10_000)
        assert cron.slots(*between) == slots
        assert cron.newest(*between) == slots[::-1]
        for minutes in ASKED:
            time = change + minutes * MINUTE
            position = bisect_right(slots, time)
            if position < len(slots):
                assert cron.after(time) == slots[position], time
            else:
                assert cron.after(time) >= watched.until
            position = bisect_left(slots, time)
            if position:
                assert cron.before(time) == slots[position - 1], time
            else:
                assert cron.before(time) < watched.since


def test_clocks_are_changed_often_enough():
    """So this is shown also when some of these countries change their clocks no more."""
    assert sum(len(transitions(zone, 2026, 2030)) for zone in ZONES) >= 100


def wall(text, zone):
    """Read "2026-04-05 01:45+1100" and check that the zone has this offset then."""
    time = datetime.strptime(text, "%Y-%m-%d %H:%M%z")
    assert time.astimezone(ZoneInfo(zone)).utcoffset() == time.utcoffset()
    return time.astimezone(UTC)


# The clock of Lord Howe goes back from 02:00 to 01:30 and forward from 02:00 to 02:30.
LORD_HOWE = [
    ("*/20 2 * * *", "2026-04-04 23:00+1100", "2026-04-05 02:00+1030"),
    ("*/20 2 * * *", "2026-04-05 01:59+1100", "2026-04-05 02:00+1030"),
    ("30 * * * *", "2026-04-05 01:30+1100", "2026-04-05 01:30+1030"),
    ("30 * * * *", "2026-04-05 01:30+1030", "2026-04-05 02:30+1030"),
    ("10 */2 * * *", "2026-04-05 00:10+1100", "2026-04-05 02:10+1030"),
    ("*/15 * * * *", "2026-04-05 01:45+1100", "2026-04-05 01:30+1030"),
    ("30 * * * *", "2026-10-04 01:30+1030", "2026-10-04 02:30+1100"),
    ("*/20 2 * * *", "2026-10-04 01:00+1030", "2026-10-04 02:40+1100"),
    ("10 */2 * * *", "2026-10-04 00:10+1030", "2026-10-04 04:10+1100"),
    ("*/15 * * * *", "2026-10-04 01:45+1030", "2026-10-04 02:30+1100"),
]


@pytest.mark.parametrize(("expression", "time", "slot"), LORD_HOWE)
def test_a_change_by_half_an_hour(expression, time, slot):
    zone = "Australia/Lord_Howe"
    cron, time, slot = Cron(expression, zone), wall(time, zone), wall(slot, zone)
    assert cron.after(time) == slot
    assert cron.before(slot) <= time


@pytest.mark.parametrize("expression", ["*/20 2 * * *", "10 */2 * * *", "*/7 1-2 * * SAT,SUN"])
def test_backwards_where_the_offset_is_no_whole_hour(expression):
    """cronsim walks backwards for ever here, when it is asked about the zone."""
    cron = Cron(expression, "Pacific/Chatham")
    time = wall("2026-04-05 03:15+1245", "Pacific/Chatham")
    assert wall("2026-04-04 22:00+1345", "Pacific/Chatham") < cron.before(time) < time


@pytest.mark.parametrize("asked", ["01:59+0200", "02:10+0200", "02:29+0200"])
def test_a_fixed_time_that_comes_twice_runs_the_first_time(asked):
    time = wall(f"2026-10-25 {asked}", "Europe/Vienna")
    cron = Cron("30 2 * * *", "Europe/Vienna")
    assert cron.after(time) == wall("2026-10-25 02:30+0200", "Europe/Vienna")


@pytest.mark.parametrize("asked", ["02:30+0200", "02:10+0100", "02:30+0100", "02:50+0100"])
def test_it_does_not_run_the_second_time(asked):
    time = wall(f"2026-10-25 {asked}", "Europe/Vienna")
    cron = Cron("30 2 * * *", "Europe/Vienna")
    assert cron.after(time) == wall("2026-10-26 02:30+0100", "Europe/Vienna")


def test_a_time_that_is_left_out_runs_at_the_end_of_the_gap():
    cron = Cron("0,30 2 * * *", "Europe/Vienna")
    end = wall("2026-03-29 03:00+0200", "Europe/Vienna")
    assert cron.after(wall("2026-03-29 01:59+0100", "Europe/Vienna")) == end
    assert cron.after(end) == wall("2026-03-30 02:00+0200", "Europe/Vienna")
    assert cron.before(end) == wall("2026-03-28 02:30+0100", "Europe/Vienna")


def test_a_day_that_is_left_out_runs_at_its_end():
    """Samoa went over the date line: there was no 30 December 2011."""
    cron = Cron("30 12 * * *", "Pacific/Apia")
    end = wall("2011-12-31 00:00+1400", "Pacific/Apia")
    assert cron.slots(end - timedelta(days=1), end + timedelta(days=1), 10) == [
        wall("2011-12-29 12:30-1000", "Pacific/Apia"),
        end,
        wall("2011-12-31 12:30+1400", "Pacific/Apia"),
    ]
