"""Tests of :mod:`atp.timing.every`."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atp.exceptions import InvalidSchedule
from atp.timing.every import EPOCH, LONGEST, Every

SECOND = timedelta(seconds=1)
NOW = datetime(2026, 3, 27, 12, 7, tzinfo=UTC)
TIMES = st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))


@st.composite
def intervals(draw):
    seconds = draw(st.integers(1, LONGEST // SECOND))
    offset = draw(st.integers(0, seconds - 1))
    return Every(seconds * SECOND, offset * SECOND)


@given(intervals(), TIMES)
def test_slots_are_multiples_of_the_interval_since_the_epoch(every, time):
    slot = every.after(time)
    assert time < slot <= time + every.interval
    assert (slot - EPOCH - every.offset) % every.interval == timedelta()


@given(intervals(), TIMES)
def test_forwards_and_backwards_meet_the_same_slots(every, time):
    later, earlier = every.after(time), every.before(time)
    assert earlier < time < later
    assert later - earlier in (every.interval, 2 * every.interval)
    assert (later - earlier == 2 * every.interval) == (every.after(earlier) == time)
    assert every.after(every.before(later)) == later
    assert every.before(every.after(earlier)) == earlier


@given(intervals(), TIMES, st.integers(0, 20))
def test_slots_are_what_newest_finds_from_the_other_end(every, time, count):
    slots = every.slots(time, time + count * every.interval, 100)
    assert len(slots) == count
    assert every.newest(time, time + count * every.interval, 100) == slots[::-1]


def test_hours_are_full_hours_in_utc():
    assert Every(timedelta(hours=1)).after(NOW) == datetime(2026, 3, 27, 13, tzinfo=UTC)
    shifted = Every(timedelta(hours=1), timedelta(minutes=10))
    assert shifted.after(NOW) == datetime(2026, 3, 27, 12, 10, tzinfo=UTC)
    assert shifted.before(NOW) == datetime(2026, 3, 27, 11, 10, tzinfo=UTC)


def test_no_change_of_a_clock_moves_them():
    runs = Every(timedelta(minutes=30), timezone="Europe/Vienna").upcoming(
        4, datetime(2026, 10, 25, 0, 15, tzinfo=UTC)
    )
    assert [f"{run.slot:%H:%M} {run.local:%H:%M}" for run in runs] == [
        "00:30 02:30",
        "01:00 02:00",
        "01:30 02:30",
        "02:00 03:00",
    ]
    assert runs[2].remark == "the clock goes back: 02:30 comes twice, this is the second time"
    assert runs[3].remark == ""


@pytest.mark.parametrize(
    ("interval", "offset", "words"),
    [
        ({"minutes": 15}, {}, "every 15 minutes"),
        ({"hours": 1}, {}, "every hour"),
        ({"seconds": 1}, {}, "every second"),
        ({"minutes": 90}, {}, "every 1 hour and 30 minutes"),
        ({"days": 1, "hours": 2, "seconds": 1}, {}, "every 1 day, 2 hours and 1 second"),
        ({"days": 7}, {"hours": 3}, "every 7 days, shifted by 3 hours"),
    ],
)
def test_words(interval, offset, words):
    assert Every(timedelta(**interval), timedelta(**offset)).words() == words


@pytest.mark.parametrize(
    "interval",
    [
        timedelta(),
        -SECOND,
        SECOND / 2,
        SECOND * 1.5,
        LONGEST + SECOND,
        timedelta.max,
        60,
        "15m",
        None,
        True,
    ],
)
def test_an_interval_that_is_none(interval):
    with pytest.raises(InvalidSchedule, match="whole seconds, from one second") as caught:
        Every(interval)
    assert caught.value.parameter == "every"


@pytest.mark.parametrize("offset", [-SECOND, timedelta(hours=1), SECOND / 2, 5, None])
def test_an_offset_that_is_none(offset):
    with pytest.raises(InvalidSchedule, match="from 0 to less than the interval") as caught:
        Every(timedelta(hours=1), offset)
    assert caught.value.parameter == "offset"


def test_shortest_and_longest():
    assert Every(SECOND).after(NOW) == NOW + SECOND
    assert Every(LONGEST).after(NOW) == EPOCH + 6 * LONGEST


def test_a_time_zone_that_is_none():
    with pytest.raises(InvalidSchedule, match="Did you mean 'Europe/Vienna'"):
        Every(SECOND, timezone="Europe/Wienna")


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="has no time zone"):
        Every(SECOND).after(datetime(2026, 1, 1))
