"""Tests of :mod:`atp.timing.cron`."""

from datetime import UTC, datetime, timedelta, timezone
from functools import cache, partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atp.exceptions import ATPError, InvalidSchedule
from atp.timing.cron import Cron

from .oracle import MINUTE, transitions
from .zones import ZONES

NOW = datetime(2026, 3, 27, 12, tzinfo=UTC)


def a_field(low, high, *others):
    numbers = st.integers(low, high)
    ranges = st.tuples(numbers, numbers).map(sorted)
    part = st.one_of(
        numbers.map(str),
        ranges.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(ranges, st.integers(1, high)).map(lambda r: f"{r[0][0]}-{r[0][1]}/{r[1]}"),
        st.integers(1, high).map(lambda step: f"*/{step}"),
        st.sampled_from(["*", *others]),
    )
    return st.one_of(st.just("*"), st.lists(part, min_size=1, max_size=3).map(",".join))


EXPRESSIONS = st.tuples(
    a_field(0, 59),
    a_field(0, 23),
    a_field(1, 31, "L", "LW"),
    a_field(1, 12, "JAN", "MAR-OCT"),
    a_field(0, 7, "MON-FRI", "SUN", "1#2", "5L"),
).map(" ".join)
DATES = st.datetimes(datetime(2026, 1, 1), datetime(2030, 12, 31), timezones=st.just(UTC))
changes_of = cache(partial(transitions, first_year=2026, last_year=2030))


@st.composite
def crons(draw):
    try:
        return Cron(draw(EXPRESSIONS), draw(st.sampled_from(ZONES)))
    except InvalidSchedule as error:
        problem = str(error)
    # The fields are possible, the dates may not be.
    assert "no date has" in problem or "never comes" in problem
    return Cron("30 2 * * *", "Europe/Vienna")


@st.composite
def crons_and_times(draw):
    """A Cron and any time, half of the times near a change of its clock."""
    cron = draw(crons())
    near = st.sampled_from(changes_of(cron.timezone) or [NOW]).flatmap(
        lambda change: st.integers(-300, 300).map(lambda number: change + number * MINUTE)
    )
    return cron, draw(near | DATES)


@given(crons_and_times())
def test_forwards_and_backwards_meet_the_same_slots(given):
    cron, time = given
    later, earlier = cron.after(time), cron.before(time)
    assert earlier < time < later
    assert cron.after(earlier) in (time, later)
    assert cron.before(later) in (time, earlier)
    assert cron.after(cron.before(later)) == later
    assert cron.before(cron.after(earlier)) == earlier
    assert later.tzinfo is earlier.tzinfo is UTC


@given(crons_and_times(), st.integers(0, 20))
def test_slots_are_what_newest_finds_from_the_other_end(given, count):
    cron, time = given
    slots = cron.slots(time, datetime(2200, 1, 1, tzinfo=UTC), count)
    assert len(slots) == count
    assert all(time < slot for slot in slots)
    if slots:
        assert slots[0] == cron.after(time)
        assert cron.newest(time, slots[-1], count + 1) == slots[::-1]
        assert cron.newest(time, slots[-1], 3) == slots[::-1][:3]
        assert [cron.after(slot) for slot in slots[:-1]] == slots[1:]


@given(crons())
def test_each_expression_has_words(cron):
    assert cron.words().endswith(f", {cron.timezone}")


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("30 2 * * *", "at 02:30 every day, Europe/Vienna"),
        (" @daily ", "at 00:00 every day, Europe/Vienna"),
        ("@Hourly", "at the start of every hour, Europe/Vienna"),
        ("0 9 * * mon-fri", "at 09:00 on Monday through Friday, Europe/Vienna"),
        ("0 9 21 * *", "at 09:00 on the 21st day of every month, Europe/Vienna"),
        ("0 9 11 * *", "at 09:00 on the 11th day of every month, Europe/Vienna"),
    ],
)
def test_words(expression, words):
    assert Cron(expression, "Europe/Vienna").words() == words


def test_times_of_any_zone_are_taken_and_slots_are_in_utc():
    here = NOW.astimezone(timezone(timedelta(hours=5)))
    cron = Cron("30 2 * * *", "Europe/Vienna")
    assert cron.after(here) == cron.after(NOW) == datetime(2026, 3, 28, 1, 30, tzinfo=UTC)


def test_a_part_of_a_second_counts():
    cron, slot = Cron("0 * * * *"), datetime(2026, 3, 27, 12, tzinfo=UTC)
    little = timedelta(microseconds=1)
    assert cron.after(slot - little) == slot
    assert cron.before(slot + little) == slot
    assert cron.newest(slot - little, slot, 5) == [slot]
    assert cron.newest(slot - little, slot - little, 5) == []


def test_slots_end_at_the_bound_or_at_most():
    cron = Cron("0 * * * *")
    assert cron.slots(NOW, NOW + timedelta(hours=2), 10) == [
        NOW + timedelta(hours=1),
        NOW + timedelta(hours=2),
    ]
    assert cron.slots(NOW, NOW + timedelta(days=400), 3)[-1] == NOW + timedelta(hours=3)
    assert cron.slots(NOW, NOW, 3) == cron.newest(NOW, NOW, 3) == []


def test_a_slot_that_comes_once_in_40_years():
    cron = Cron("0 0 29 2 */7")
    assert cron.after(NOW) == datetime(2032, 2, 29, tzinfo=UTC)
    assert cron.after(datetime(2088, 3, 1, tzinfo=UTC)).year == 2128
    assert cron.before(datetime(2128, 1, 1, tzinfo=UTC)).year == 2088


def remarks(expression, zone, time, count):
    runs = Cron(expression, zone).upcoming(count, datetime.fromisoformat(time))
    return [(f"{run.local:%d %H:%M}", run.remark) for run in runs]


def test_upcoming_says_what_does_not_exist():
    assert remarks("30 2 * * *", "Europe/Vienna", "2026-03-27T12:00Z", 3) == [
        ("28 02:30", ""),
        ("29 03:00", "the clock goes forward: 02:30 does not exist, runs at 03:00"),
        ("30 02:30", ""),
    ]
    assert remarks("0 3 * * *", "Europe/Vienna", "2026-03-28T12:00Z", 1) == [("29 03:00", "")]
    assert remarks("*/15 * * * *", "Europe/Vienna", "2026-03-29T00:45Z", 1) == [("29 03:00", "")]


def test_upcoming_says_what_comes_twice():
    back = "the clock goes back: 02:30 comes twice, this is the"
    assert remarks("30 2 * * *", "Europe/Vienna", "2026-10-24T12:00Z", 2) == [
        ("25 02:30", f"{back} first time"),
        ("26 02:30", ""),
    ]
    assert remarks("*/30 2 * * *", "Europe/Vienna", "2026-10-25T00:15Z", 3)[::2] == [
        ("25 02:30", f"{back} first time"),
        ("25 02:30", f"{back} second time"),
    ]


def test_upcoming_has_the_slot_in_utc_too():
    [run] = Cron("30 2 * * *", "Asia/Kolkata").upcoming(1, NOW)
    assert run.slot == run.local == datetime(2026, 3, 27, 21, tzinfo=UTC)
    assert (run.slot.tzinfo, str(run.local.tzinfo)) == (UTC, "Asia/Kolkata")


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Europe/Viena", "Did you mean 'Europe/Vienna'?"),
        ("vienna", "Did you mean 'Europe/Vienna'?"),
        ("localtime", ""),
        ("right/Europe/Vienna", ""),
        ("../passwd", ""),
        ("", ""),
        ("x" * 10_000, ""),
        ("Europe/\0", ""),
        (None, ""),
        (["UTC"], ""),
    ],
)
def test_a_time_zone_that_is_none(zone, hint):
    with pytest.raises(InvalidSchedule, match="no time zone has this name") as caught:
        Cron("30 2 * * *", zone)
    assert hint in str(caught.value)
    assert caught.value.parameter == "timezone"
    assert len(str(caught.value)) < 200


def test_a_host_without_time_zones_says_what_to_install(monkeypatch):
    monkeypatch.setattr("atp.timing.zones.names", frozenset)
    with pytest.raises(InvalidSchedule, match="install the package tzdata"):
        Cron("30 2 * * *", "Europe/Vienna")


def test_what_a_clock_always_leaves_out_is_refused():
    with pytest.raises(InvalidSchedule, match="never comes in Europe/Vienna"):
        Cron("*/20 2 * 3 0L", "Europe/Vienna")
    assert Cron("20 2 * 3 0L", "Europe/Vienna").after(NOW) == datetime(2026, 3, 29, 1, tzinfo=UTC)


@pytest.mark.parametrize("method", ["after", "before"])
def test_a_time_without_a_zone_is_refused(method):
    with pytest.raises(ValueError, match="has no time zone"):
        getattr(Cron("30 2 * * *"), method)(datetime(2026, 1, 1))


def test_the_error_is_a_value_error():
    assert issubclass(InvalidSchedule, (ATPError, ValueError))
