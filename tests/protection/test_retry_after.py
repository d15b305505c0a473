"""Retry-After as services send it: numbers, dates, and what makes no sense."""

from datetime import UTC, datetime, timedelta

from atp import Throttled, Unavailable
from atp.exceptions import LONGEST_RETRY_AFTER, read_retry_after

NOW = datetime(2030, 1, 31, 18, tzinfo=UTC)


def test_it_is_seconds_or_a_date():
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


def test_what_makes_no_sense_is_told():
    """G13: it comes from somebody else, and raises nothing."""
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


def test_the_exceptions_keep_what_was_asked_and_tell_what_was_cut():
    raised = Throttled("429", after="99999999")
    assert raised.asked == LONGEST_RETRY_AFTER
    assert "429" in str(raised)
    assert "is cut" in str(raised)
    assert Unavailable("503", after="10").asked == 10.0
    assert Throttled().after == Throttled.LEAST
