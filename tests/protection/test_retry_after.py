"""Retry-After as services send it: seconds, dates and invalid values."""

from datetime import UTC, datetime, timedelta

from atp import Throttled, Unavailable
from atp.exceptions import LONGEST_RETRY_AFTER, read_retry_after

NOW = datetime(2030, 1, 31, 18, tzinfo=UTC)


def test_retry_after_accepts_seconds_and_dates():
    for value, seconds in (
        ("120", 120.0),
        (7, 7.0),
        (timedelta(minutes=2), 120.0),
        (NOW + timedelta(seconds=9), 9.0),
        ("Thu, 31 Jan 2030 18:01:00 GMT", 60.0),
        ("0", 0.0),
        (None, None),
        ("", None),
    ):
        assert read_retry_after(value, NOW) == (seconds, "")


def test_invalid_retry_after_values_are_reported_without_an_error():
    """The value comes from another service, so it must not raise an error (G13)."""
    passed = "-5", -5, -(10**309), "Thu, 31 Jan 2030 17:00:00 GMT"
    years = 31_536_000, "Fri, 31 Jan 2031 18:00:00 GMT", "inf", 10**309, 10**5000
    odd = "soon", "nan", True, [5], "Thu, 99 Foo 2030", "9" * 400 + "x"
    for values, wanted, words in (
        (passed, 0.0, "has passed"),
        (years, LONGEST_RETRY_AFTER, "is cut to 3600 s"),
        (odd, None, "cannot be read"),
    ):
        for value in values:
            after, told = read_retry_after(value, NOW)
            assert after == wanted
            assert words in told
            assert len(told) < 120


def test_the_exceptions_throttled_and_unavailable_store_the_requested_delay():
    raised = Throttled("429", after="99999999")
    assert raised.asked == LONGEST_RETRY_AFTER
    assert "429" in str(raised)
    assert "is cut" in str(raised)
    assert Unavailable("503", after="10").asked == 10.0
    assert Throttled().after == Throttled.LEAST
