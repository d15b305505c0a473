"""Tests of :mod:`atp.authoring.context`: what a handler is given, and how it speaks."""

import logging
import time

import pytest

from atp.authoring.log_capture import LogCapture
from atp.authoring.log_text import describe, shorten
from atp.exceptions import Interrupted


@pytest.fixture
def clock(monkeypatch):
    """The clock that progress goes by."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    return Clock


def test_it_says_what_it_works_on(context):
    assert (context.type, context.identifier, context.collection) == ("tests.echo", "a", "esa")
    assert (context.priority, context.attempt) == (7, 3)


class TestProgress:
    @pytest.mark.parametrize(
        ("given", "fraction", "message"),
        [
            ((0.25,), 0.25, ""),
            ((1, 4), 0.25, "1 of 4"),
            ((0, 0), 0.0, "0 of 0"),
            ((5, 4), 1.0, "5 of 4"),
            ((-1,), 0.0, ""),
            ((1, 4, "tile"), 0.25, "tile"),
        ],
    )
    def test_fraction_and_message(self, context, said, given, fraction, message):
        context.progress(*given)
        assert said == [("progress", fraction, message)]

    def test_it_is_sent_ten_times_a_second_at_most(self, context, said, clock):
        for done in range(1000):
            clock.now += 0.001
            context.progress(done, 1000)
        assert 9 <= len(said) <= 11

    def test_what_was_held_back_is_sent_in_the_end(self, context, said, clock):
        context.progress(1, 4)
        context.progress(2, 4)
        context.progress(3, 4)
        assert len(said) == 1
        context.flush()
        context.flush()
        assert said[1:] == [("progress", 0.75, "3 of 4")]

    def test_a_message_fits_its_column(self, context, said):
        context.progress(0.5, message="x" * 500 + "\x00")
        assert len(said[0][2]) == 200

    @pytest.mark.parametrize("message", ["a\x00b", "a\ud800b"])
    def test_a_message_fits_every_database(self, context, said, message):
        context.progress(0.5, message=message)
        said[0][2].encode()
        assert "\x00" not in said[0][2]

    def test_a_fraction_that_is_no_number_is_unknown(self, context, said):
        """No database takes it as a fraction from 0 to 1."""
        context.progress(float("nan"), message="who knows")
        assert said == [("progress", None, "who knows")]


class TestLog:
    @pytest.mark.parametrize("level", [logging.WARNING, "WARNING", "warning"])
    def test_level(self, context, said, level):
        context.log("hello", level)
        assert said == [("log", logging.WARNING, "hello")]

    def test_anything_can_be_logged(self, context, said):
        context.log({"a": 1})
        context.log("a\x00\ud800")
        assert said[0] == ("log", logging.INFO, "{'a': 1}")
        said[1][2].encode()
        assert "\x00" not in said[1][2]

    def test_the_number_of_messages_is_limited(self, context, said, settings):
        settings.ATP = {"MAX_LOG_RECORDS": 3}
        for number in range(10):
            context.log(number)
        context.end()
        assert [report[2] for report in said if report[0] == "log"][:3] == ["0", "1", "2"]
        assert said[-1] == ("left_out", 7)

    def test_of_a_flood_the_newest_messages_are_sent(self, context, said, settings):
        settings.ATP = {"MAX_LOG_RECORDS": 10}
        for number in range(10_000):
            context.log(number)
        context.end()
        sent = [report[2] for report in said if report[0] == "log"]
        assert len(sent) < 2000
        assert sent[-8:] == [str(number) for number in range(9992, 10_000)]
        assert said[-1] == ("left_out", 9990)

    def test_a_long_message_is_cut_in_the_middle(self, context, said, settings):
        settings.ATP = {"MAX_LOG_MESSAGE": 200}
        context.log("a" * 1000 + "b" * 1000)
        text = said[0][2]
        assert len(text) <= 200
        assert text.startswith("aaa")
        assert text.endswith("bbb")
        assert "1840 characters" in text


@pytest.mark.parametrize("limit", [1, 10, 40, 41, 42, 100])
def test_shorten_never_makes_longer_what_is_long(settings, limit):
    settings.ATP = {"MAX_LOG_MESSAGE": limit}
    assert shorten("x" * limit) == "x" * limit
    assert len(shorten("x" * 5000)) <= max(limit, 45)


def test_describe_has_the_traceback():
    try:
        _ = 1 / 0
    except ZeroDivisionError as error:
        told = describe(error)
    assert told.startswith("Traceback")
    assert told.endswith("ZeroDivisionError: division by zero")
    assert "test_context.py" in told


class TestCapture:
    """The handler's standard logging is captured, too."""

    @pytest.fixture
    def logger(self, context):
        logger = logging.getLogger("shop.tests")
        logger.setLevel(logging.DEBUG)
        capture = LogCapture(context)
        logger.addHandler(capture)
        yield logger
        logger.removeHandler(capture)

    def test_records_are_messages(self, logger, said):
        logger.warning("%s of %s", 1, 2)
        assert said == [("log", logging.WARNING, "shop.tests: 1 of 2")]

    def test_below_the_level_of_the_settings_nothing_is_kept(self, logger, said):
        logger.debug("no")
        assert said == []

    def test_a_traceback_is_kept(self, logger, said):
        try:
            _ = 1 / 0
        except ZeroDivisionError:
            logger.exception("broken")
        assert "ZeroDivisionError" in said[0][2]

    def test_a_message_that_does_not_format_is_no_error_of_the_handler(
        self, logger, said, monkeypatch
    ):
        monkeypatch.setattr(logging, "raiseExceptions", False)
        logger.info("%d", "x")
        assert said == []
        logger.info("goes on")
        assert len(said) == 1

    def test_atps_own_records_are_left_out(self, context, said):
        record = logging.LogRecord("atp.store", logging.ERROR, "", 0, "own", (), None)
        LogCapture(context).handle(record)
        assert said == []

    def test_what_is_logged_while_reporting_does_not_go_round(self, context, logger, said):
        def report(*args):
            logger.error("inside")
            said.append(args)

        context._report = report
        logger.error("outside")
        assert [report[2] for report in said] == ["shop.tests: outside"]


def test_check_raises_when_the_attempt_has_to_end(context):
    context.check()
    context.reason = "release"
    with pytest.raises(Interrupted):
        context.check()
    assert not issubclass(Interrupted, Exception)
