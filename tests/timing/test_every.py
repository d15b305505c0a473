"""The slots of schedules with a fixed interval, and their jitter."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atp.exceptions import InvalidSchedule
from atp.schedules.timing import EPOCH, LONGEST_INTERVAL, Every, jitter

SECOND = timedelta(seconds=1)
SLOT = datetime(2026, 11, 20, 1, 30, tzinfo=UTC)
TIMES = st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))


@st.composite
def intervals(draw):
    seconds = draw(st.integers(1, LONGEST_INTERVAL // SECOND))
    offset = draw(st.integers(0, seconds - 1))
    return Every(seconds * SECOND, offset * SECOND)


@given(intervals(), TIMES, st.integers(0, 20))
def test_slots_are_multiples_of_the_interval_since_the_epoch(every, time, count):
    later, earlier = every.after(time), every.before(time)
    assert earlier < time < later <= time + every.interval
    assert (later - EPOCH - every.offset) % every.interval == timedelta()
    assert every.after(earlier) == (time if later - earlier > every.interval else later)
    assert every.before(every.after(earlier)) == earlier
    slots = every.slots(time, time + count * every.interval, 100)
    assert len(slots) == count
    assert every.newest(time, time + count * every.interval, 100) == slots[::-1]


def test_clock_changes_do_not_move_slots():
    """Slots of half hours are full and half hours in UTC."""
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


def test_the_description_names_the_interval_and_the_offset():
    for interval, offset, words in (
        ({"minutes": 15}, {}, "every 15 minutes"),
        ({"hours": 1}, {}, "every hour"),
        ({"days": 1, "hours": 2, "seconds": 1}, {}, "every 1 day, 2 hours and 1 second"),
        ({"days": 7}, {"hours": 3}, "every 7 days, shifted by 3 hours"),
    ):
        assert Every(timedelta(**interval), timedelta(**offset)).words() == words


def test_an_invalid_interval_offset_or_jitter_is_rejected():
    odd = SECOND * 1.5, LONGEST_INTERVAL + SECOND
    for interval in (timedelta(), -SECOND, *odd, 60, "15m", None, True):
        with pytest.raises(InvalidSchedule, match="whole seconds, from one second") as caught:
            Every(interval)
        assert caught.value.parameter == "every"
    for offset in (-SECOND, timedelta(hours=1), SECOND / 2, 5, None):
        with pytest.raises(InvalidSchedule, match="from 0 to less than the interval") as caught:
            Every(timedelta(hours=1), offset)
        assert caught.value.parameter == "offset"
    with pytest.raises(InvalidSchedule, match="Did you mean 'Europe/Vienna'"):
        Every(SECOND, timezone="Europe/Wienna")
    for seconds in (-1, float("nan"), float("inf"), 1e12, "60", None):
        with pytest.raises(InvalidSchedule, match="must be from 0 to") as caught:
            jitter("nightly-alps", SLOT, seconds)
        assert caught.value.parameter == "jitter"
    with pytest.raises(ValueError, match="has no time zone"):
        jitter("nightly-alps", datetime(2026, 1, 1), 60)


@given(st.text(st.characters(codec="utf-8")), st.floats(0, 315_360_000))
def test_jitter_is_from_0_to_its_bound(identifier, seconds):
    found = jitter(identifier, SLOT, seconds)
    assert timedelta() <= found <= timedelta(seconds=seconds)


def test_jitter_is_deterministic_and_differs_by_schedule_and_slot():
    assert jitter("nightly-alps", SLOT, 60) == timedelta(seconds=29, microseconds=998797)
    assert jitter("nightly-alps", SLOT, 0) == timedelta()
    local = SLOT.astimezone(ZoneInfo("Europe/Vienna"))
    assert jitter("nightly-alps", local, 60) == jitter("nightly-alps", SLOT, 60)
    found = [jitter(f"schedule-{number}", SLOT, 60) for number in range(1000)]
    found += [jitter("schedule", SLOT + timedelta(hours=n), 60) for n in range(100)]
    assert len(set(found)) == 1100
    assert {int(each.total_seconds() // 6) for each in found[:1000]} == set(range(10))
