"""Retry-After as services send it: numbers, dates, and what makes no sense."""

from datetime import UTC, datetime, timedelta

import pytest

from atp import Throttled, Unavailable
from atp.protection.retry_after import LONGEST, read

NOW = datetime(2030, 1, 31, 18, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (7, 7.0),
        (timedelta(minutes=2), 120.0),
        (NOW + timedelta(seconds=9), 9.0),
        ("Thu, 31 Jan 2030 18:01:00 GMT", 60.0),
        ("0", 0.0),
    ],
)
def test_it_is_seconds_or_a_date(value, seconds):
    assert read(value, NOW) == (seconds, "")


@pytest.mark.parametrize("value", ["-5", -5, -(10**309), "Thu, 31 Jan 2030 17:00:00 GMT"])
def test_what_has_passed_is_now_and_told(value):
    after, told = read(value, NOW)
    assert after == 0.0
    assert "has passed" in told


@pytest.mark.parametrize(
    "value",
    [
        31_536_000,
        "Fri, 31 Jan 2031 18:00:00 GMT",
        "inf",
        10**309,
        pytest.param(10**5000, id="5001 digits"),
    ],
)
def test_a_year_is_cut_to_an_hour_and_told(value):
    after, told = read(value, NOW)
    assert after == LONGEST
    assert "is cut to 3600 s" in told


@pytest.mark.parametrize("value", ["soon", "nan", True, [5], "Thu, 99 Foo 2030", "9" * 400 + "x"])
def test_what_cannot_be_read_says_nothing_and_is_told(value):
    """G13: it comes from somebody else, and raises nothing."""
    after, told = read(value, NOW)
    assert after is None
    assert "cannot be read" in told
    assert len(told) < 120


@pytest.mark.parametrize("value", [None, ""])
def test_none_is_none(value):
    assert read(value, NOW) == (None, "")


def test_the_exceptions_keep_what_was_asked_and_tell_what_was_cut():
    raised = Throttled("429", after="99999999")
    assert raised.asked == LONGEST
    assert "429" in str(raised)
    assert "is cut" in str(raised)
    assert Unavailable("503", after="10").asked == 10.0
    assert Throttled().after == Throttled.LEAST
