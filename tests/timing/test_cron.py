"""The slots of cron expressions.

Around clock changes they are compared with Debian's rules, which :mod:`tests.timing.oracle`
applies minute by minute without code from :mod:`atp.schedules`.
"""

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atp.exceptions import InvalidSchedule
from atp.schedules.timing import Cron

from .oracle import MINUTE, ZONES, Watched, a_field, transitions

NOW = datetime(2026, 3, 27, 12, tzinfo=UTC)
DRAWN = st.tuples(
    a_field(0, 59),
    a_field(0, 23),
    a_field(1, 31, "L", "LW"),
    a_field(1, 12, "JAN", "MAR-OCT"),
    a_field(0, 7, "MON-FRI", "SUN", "1#2", "5L"),
).map(" ".join)
DATES = st.datetimes(datetime(2026, 1, 1), datetime(2030, 12, 31), timezones=st.just(UTC))
EXPRESSIONS = (
    # fixed times
    "30 2 * * *",
    "0 0 * * *",
    "15,45 0-3 * * *",
    "30 23 * * *",
    "5 0 L * SAT",
    # those that follow the clock
    "*/15 * * * *",
    "30 * * * *",
    "*/20 0 * * FRI,SUN",
    "10 */2 * * *",
    "*/7 1-2 1-7 * SAT,SUN",
)
HOUR = timedelta(hours=1)
AROUND = 27 * HOUR
# Minutes from a change at which is asked what comes next and what was last.
ASKED = (-90, -60, -30, -1, 0, 1, 30, 59, 61, 120)


@st.composite
def crons_and_times(draw):
    """Generate a Cron and a time, which in half of the cases is near a clock change."""
    try:
        cron = Cron(draw(DRAWN), draw(st.sampled_from(ZONES)))
    except InvalidSchedule:  # the fields are possible, the dates may not be
        cron = Cron("30 2 * * *", "Europe/Vienna")
    near = st.sampled_from(transitions(cron.timezone, 2026, 2026) or [NOW]).flatmap(
        lambda change: st.integers(-300, 300).map(lambda number: change + number * MINUTE)
    )
    return cron, draw(near | DATES)


@given(crons_and_times(), st.integers(1, 20))
def test_searching_backward_finds_the_same_slots_as_searching_forward(given, count):
    cron, time = given
    later, earlier = cron.after(time), cron.before(time)
    assert earlier < time < later
    assert cron.after(earlier) in (time, later)
    assert cron.before(later) in (time, earlier)
    assert cron.after(cron.before(later)) == later
    assert cron.before(cron.after(earlier)) == earlier
    assert later.tzinfo is earlier.tzinfo is UTC
    slots = cron.slots(time, datetime(2200, 1, 1, tzinfo=UTC), count)
    assert len(slots) == count
    assert slots[0] == later
    assert cron.newest(time, slots[-1], count + 1) == slots[::-1]
    assert cron.newest(time, slots[-1], 3) == slots[::-1][:3]
    assert [cron.after(slot) for slot in slots[:-1]] == slots[1:]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "years", [(2026, 2026), pytest.param((2027, 2030), marks=pytest.mark.long)]
)
def test_slots_around_each_clock_change_match_the_oracle(zone, years):
    for change in transitions(zone, *years):
        watched = Watched(zone, change - AROUND, change + AROUND)
        between = (watched.since - MINUTE, watched.until - MINUTE, 10_000)
        for expression in EXPRESSIONS:
            cron, slots = Cron(expression, zone), watched.slots(expression)
            assert cron.slots(*between) == slots, expression
            assert cron.newest(*between) == slots[::-1], expression
            for time in (change + minutes * MINUTE for minutes in ASKED):
                later = bisect_right(slots, time)
                assert later == len(slots) or cron.after(time) == slots[later], (expression, time)
                earlier = bisect_left(slots, time) - 1
                assert earlier < 0 or cron.before(time) == slots[earlier], (expression, time)


def test_the_zones_of_the_test_change_their_clocks_often_enough():
    """If countries stop changing their clocks, this test shows that others must be chosen."""
    assert sum(len(transitions(zone, 2026, 2026)) for zone in ZONES) >= 20


def wall(text, zone):
    """Parse a text like "2026-04-05 01:45+1100" and check the offset against the zone."""
    time = datetime.strptime(text, "%Y-%m-%d %H:%M%z")
    assert time.astimezone(ZoneInfo(zone)).utcoffset() == time.utcoffset()
    return time.astimezone(UTC)


def test_slots_follow_a_clock_change_of_half_an_hour():
    """On Lord Howe Island the clock goes back from 02:00 to 01:30, forward from 02:00 to 02:30."""
    zone = "Australia/Lord_Howe"
    for expression, time, slot in (
        ("30 * * * *", "2026-04-05 01:30+1100", "2026-04-05 01:30+1030"),
        ("*/15 * * * *", "2026-04-05 01:45+1100", "2026-04-05 01:30+1030"),
        ("*/20 2 * * *", "2026-10-04 01:00+1030", "2026-10-04 02:40+1100"),
        ("10 */2 * * *", "2026-10-04 00:10+1030", "2026-10-04 04:10+1100"),
    ):
        assert Cron(expression, zone).after(wall(time, zone)) == wall(slot, zone), expression


def test_a_slot_on_a_skipped_day_runs_at_the_end_of_that_day():
    """When Samoa crossed the date line, 30 December 2011 did not exist there."""
    cron = Cron("30 12 * * *", "Pacific/Apia")
    end = wall("2011-12-31 00:00+1400", "Pacific/Apia")
    assert cron.slots(end - timedelta(days=1), end + timedelta(days=1), 10) == [
        wall("2011-12-29 12:30-1000", "Pacific/Apia"),
        end,
        wall("2011-12-31 12:30+1400", "Pacific/Apia"),
    ]


def test_the_description_names_the_times_the_days_and_the_time_zone():
    for expression, words in (
        (" @daily ", "at 00:00 every day"),
        ("0 9 * * mon-fri", "at 09:00 on Monday through Friday"),
        ("0 9 21 * *", "at 09:00 on the 21st day of every month"),
        ("0 9 11 * *", "at 09:00 on the 11th day of every month"),
    ):
        assert Cron(expression, "Europe/Vienna").words() == f"{words}, Europe/Vienna"


def test_slots_stop_at_the_end_time_or_the_maximum_count():
    cron = Cron("0 * * * *")
    assert cron.slots(NOW, NOW + 2 * HOUR, 10) == [NOW + HOUR, NOW + 2 * HOUR]
    assert cron.slots(NOW, NOW + timedelta(days=400), 3)[-1] == NOW + 3 * HOUR
    assert cron.slots(NOW, NOW, 3) == cron.newest(NOW, NOW, 3) == []
    # Microseconds count, and the next slot can be 40 years away.
    little, slot = timedelta(microseconds=1), NOW + HOUR
    assert cron.after(slot - little) == cron.before(slot + little) == slot
    assert cron.newest(slot - little, slot, 5) == [slot]
    assert cron.newest(slot - little, slot - little, 5) == []
    rare = Cron("0 0 29 2 */7")
    assert rare.after(datetime(2088, 3, 1, tzinfo=UTC)).year == 2128
    assert rare.before(datetime(2128, 1, 1, tzinfo=UTC)).year == 2088
    for ask in (cron.after, cron.before):
        with pytest.raises(ValueError, match="has no time zone"):
            ask(datetime(2026, 1, 1))


def test_upcoming_runs_have_a_remark_at_a_skipped_or_repeated_time():
    gap = "the clock goes forward: 02:30 does not exist, runs at 03:00"
    back = "the clock goes back: 02:30 comes twice, this is the"
    for expression, time, runs in (
        ("30 2 * * *", "03-27T12:00Z", [("28 02:30", ""), ("29 03:00", gap), ("30 02:30", "")]),
        ("0 3 * * *", "03-28T12:00Z", [("29 03:00", "")]),
        ("*/15 * * * *", "03-29T00:45Z", [("29 03:00", "")]),
        ("30 2 * * *", "10-24T12:00Z", [("25 02:30", f"{back} first time"), ("26 02:30", "")]),
        ("30 */1 * * *", "10-25T00:15Z", [("25 02:30", f"{back} first time")]),
        ("30 */1 * * *", "10-25T01:15Z", [("25 02:30", f"{back} second time")]),
    ):
        after = datetime.fromisoformat(f"2026-{time}")
        found = Cron(expression, "Europe/Vienna").upcoming(len(runs), after)
        assert [(f"{run.local:%d %H:%M}", run.remark) for run in found] == runs
    # The slot is in UTC.
    [run] = Cron("30 2 * * *", "Asia/Kolkata").upcoming(1, NOW.astimezone(timezone(HOUR)))
    assert run.slot == run.local == datetime(2026, 3, 27, 21, tzinfo=UTC)
    assert (run.slot.tzinfo, str(run.local.tzinfo)) == (UTC, "Asia/Kolkata")


def test_an_unknown_time_zone_is_rejected(monkeypatch):
    hint = "Did you mean 'Europe/Vienna'?"
    others = ("localtime", "../passwd", "", "x" * 10_000, "Europe/\0", None, ["UTC"])
    for zone, words in (("Europe/Viena", hint), ("vienna", hint), *((each, "") for each in others)):
        with pytest.raises(InvalidSchedule, match="no time zone has this name") as caught:
            Cron("30 2 * * *", zone)
        assert words in str(caught.value)
        assert caught.value.parameter == "timezone"
        assert len(str(caught.value)) < 200
    # A host without time zones.
    monkeypatch.setattr("atp.schedules.timing.zone_names", frozenset)
    with pytest.raises(InvalidSchedule, match="install the package tzdata"):
        Cron("30 2 * * *", "Europe/Vienna")


def test_an_expression_that_the_clock_always_skips_is_rejected():
    with pytest.raises(InvalidSchedule, match="never comes in Europe/Vienna"):
        Cron("*/20 2 * 3 0L", "Europe/Vienna")
    assert Cron("20 2 * 3 0L", "Europe/Vienna").after(NOW) == datetime(2026, 3, 29, 1, tzinfo=UTC)
