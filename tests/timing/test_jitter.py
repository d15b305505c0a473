"""Tests of :mod:`atp.timing.jitter`."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atp.exceptions import InvalidSchedule
from atp.timing.jitter import jitter

SLOT = datetime(2026, 11, 20, 1, 30, tzinfo=UTC)


@given(st.text(st.characters(codec="utf-8")), st.floats(0, 315_360_000))
def test_it_is_from_0_to_the_bound(identifier, seconds):
    found = jitter(identifier, SLOT, seconds)
    assert timedelta() <= found <= timedelta(seconds=seconds)


def test_it_is_the_same_wherever_it_is_computed():
    assert jitter("nightly-alps", SLOT, 60) == timedelta(seconds=29, microseconds=998797)
    local = SLOT.astimezone(ZoneInfo("Europe/Vienna"))
    assert jitter("nightly-alps", local, 60) == jitter("nightly-alps", SLOT, 60)


def test_it_differs_by_schedule_and_by_slot():
    found = {jitter(f"schedule-{number}", SLOT, 60) for number in range(100)}
    found |= {jitter("schedule", SLOT + timedelta(hours=n), 60) for n in range(100)}
    assert len(found) == 200


def test_it_spreads_over_the_whole_bound():
    found = [jitter(f"schedule-{number}", SLOT, 60).total_seconds() for number in range(1000)]
    tenths = {int(seconds // 6) for seconds in found}
    assert tenths == set(range(10))


def test_none_is_none():
    assert jitter("nightly-alps", SLOT, 0) == timedelta()


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e12, "60", None])
def test_a_bound_that_is_none(seconds):
    with pytest.raises(InvalidSchedule, match="must be from 0 to") as caught:
        jitter("nightly-alps", SLOT, seconds)
    assert caught.value.parameter == "jitter"


def test_a_slot_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="has no time zone"):
        jitter("nightly-alps", datetime(2026, 1, 1), 60)
