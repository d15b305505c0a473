"""Tests of a handler's context: progress, log messages, and requests to end the attempt."""

import logging
import re
import time

import pytest

from atp.authoring.context import LogCapture
from atp.authoring.logs import shorten
from atp.exceptions import Interrupted


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock that limits how often progress is sent."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    return Clock


def test_progress_sends_a_fraction_and_a_message(context, said, clock):
    for given, fraction, message in (
        ((0.25,), 0.25, ""),
        ((1, 4), 0.25, "1 of 4"),
        ((0, 0), 0.0, "0 of 0"),
        ((5, 4), 1.0, "5 of 4"),
        ((-1,), 0.0, ""),
        ((1, 4, "tile"), 0.25, "tile"),
        # No database accepts NaN as a fraction from 0 to 1.
        ((float("nan"), None, "who knows"), None, "who knows"),
    ):
        clock.now += 1
        context.progress(*given)
        assert said[-1] == ("progress", fraction, message)
    for message in ("x" * 500 + "\x00", "a\x00b", "a\ud800b"):
        clock.now += 1
        context.progress(0.5, message=message)
        assert len(said[-1][2].encode()) <= 200  # it fits its column in every database
        assert "\x00" not in said[-1][2]


def test_progress_is_sent_ten_times_a_second_at_most_and_once_more_at_the_end(context, said, clock):
    for done in range(1000):
        clock.now += 0.001
        context.progress(done, 1000)
    assert 9 <= len(said) <= 11
    clock.now += 1
    before = len(said)
    for done in (1, 2, 3):
        context.progress(done, 4)
    assert len(said) == before + 1
    context.flush()
    context.flush()
    assert said[before + 1 :] == [("progress", 0.75, "3 of 4")]


def test_method_log_accepts_any_value_and_check_raises_when_the_attempt_must_end(context, said):
    context.check()
    context.reason = "release"
    with pytest.raises(Interrupted):
        context.check()
    assert not issubclass(Interrupted, Exception)
    context.reason = None
    for level in (logging.WARNING, "WARNING", "warning"):
        context.log("hello", level)
        assert said[-1] == ("log", logging.WARNING, "hello")
    context.log({"a": 1})
    assert said[-1] == ("log", logging.INFO, "{'a': 1}")
    context.log("a\x00\ud800")
    said[-1][2].encode()
    assert "\x00" not in said[-1][2]


def test_flood_of_messages_is_cut_to_the_first_and_the_newest(context, said, settings):
    settings.ATP = {"MAX_LOG_RECORDS": 10}
    for number in range(10_000):
        context.log(number)
    context.end()
    sent = [report[2] for report in said if report[0] == "log"]
    assert len(sent) < 2000
    assert sent[:2] == ["0", "1"]
    assert sent[-8:] == [str(number) for number in range(9992, 10_000)]
    assert said[-1] == ("left_out", 9990)


def test_long_message_is_shortened_in_the_middle(context, said, settings):
    """Shortening never makes a message longer."""
    settings.ATP = {"MAX_LOG_MESSAGE": 200}
    context.log("a" * 1000 + "b" * 1000)
    text = said[0][2]
    assert len(text) <= 200
    assert re.fullmatch("aaa.*1840 characters.*bbb", text, re.S)
    for limit in (1, 10, 40, 41, 42, 100):
        settings.ATP = {"MAX_LOG_MESSAGE": limit}
        assert shorten("x" * limit) == "x" * limit
        assert len(shorten("x" * 5000)) <= max(limit, 45)


class TestCapture:
    """Messages of Python's logging are captured while a handler runs."""

    @pytest.fixture
    def logger(self, context):
        logger = logging.getLogger("shop.tests")
        logger.setLevel(logging.DEBUG)
        capture = LogCapture(context)
        logger.addHandler(capture)
        yield logger
        logger.removeHandler(capture)

    def test_log_records_of_the_handler_become_messages(self, logger, said, monkeypatch):
        """A record that cannot be formatted does not raise in the handler."""
        logger.debug("below the level of the settings")
        logger.warning("%s of %s", 1, 2)
        assert said == [("log", logging.WARNING, "shop.tests: 1 of 2")]
        try:
            _ = 1 / 0
        except ZeroDivisionError:
            logger.exception("broken")
        assert "ZeroDivisionError" in said[1][2]
        monkeypatch.setattr(logging, "raiseExceptions", False)
        logger.info("%d", "x")
        assert len(said) == 2
        logger.info("goes on")
        assert len(said) == 3

    def test_logging_while_a_message_is_reported_causes_no_recursion(self, context, logger, said):
        def report(*args):
            logger.error("inside")
            said.append(args)

        context._report = report
        logger.error("outside")
        assert [report[2] for report in said] == ["shop.tests: outside"]
