"""Tests of :mod:`atp.context`: what a handler is given, and how it speaks."""

import io
import logging
import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.core.files.storage import default_storage

from atp.codec import Payload
from atp.context import Context, LogCapture, Output, describe, shorten, storage_path
from atp.exceptions import Interrupted
from atp.store.base import Claimed


@pytest.fixture
def said():
    """What the handler has reported, as a list of tuples."""
    return []


@pytest.fixture
def context(said, tmp_path):
    claimed = Claimed(
        instance=5,
        uuid=uuid4(),
        type="tests.echo",
        attempt=3,
        inputs=Payload("json", "{}"),
        identifier="a",
        collection="esa",
        priority=7,
        timeout=None,
        max_retries=0,
        retries=0,
        backoff=timedelta(0),
        backoff_max=timedelta(0),
        lost=0,
        time=datetime.now(UTC),
    )
    context = Context(
        claimed,
        report=lambda *report: said.append(report),
        interruption=lambda: context.reason,
        scratch_root=tmp_path,
    )
    context.reason = None
    return context


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

    def test_a_fraction_that_is_no_number_is_unknown_or_refused(self, context, said):
        """No database takes it as a fraction from 0 to 1."""
        try:
            context.progress(float("nan"))
        except ValueError:
            return
        context.flush()
        assert all(0 <= report[1] <= 1 for report in said)


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
        assert [report[2] for report in said[:3]] == ["0", "1", "2"]
        assert len(said) == 4
        assert said[3][1] == logging.WARNING
        assert "more than 3 messages" in said[3][2]

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


class TestScratch:
    def test_it_is_a_directory_of_the_attempts_own(self, context, tmp_path):
        assert context.scratch is context.scratch
        (context.scratch / "a").write_text("x")
        assert context.scratch.parent == tmp_path
        assert context.scratch.stat().st_mode & 0o777 == 0o700
        context.remove_scratch()
        assert list(tmp_path.iterdir()) == []

    def test_none_is_made_where_none_is_used(self, context, tmp_path):
        context.remove_scratch()
        assert list(tmp_path.iterdir()) == []


class TestPublish:
    """Result files go into Django's storage, and are described."""

    @pytest.mark.parametrize("kind", ["path", "text path", "bytes", "file", "stream"])
    def test_every_kind_of_file(self, context, said, media, tmp_path, kind):
        path = tmp_path / "a.png"
        path.write_bytes(b"\x89PNG")
        with path.open("rb") as opened:
            given, name = {
                "path": (path, None),
                "text path": (str(path), None),
                "bytes": (b"\x89PNG", "a.png"),
                "file": (opened, None),
                "stream": (io.BytesIO(b"\x89PNG"), "a.png"),
            }[kind]
            description = context.publish(given, name)
        assert description == {
            "name": "a.png",
            "path": storage_path(context.uuid, 3, "a.png"),
            "content_type": "image/png",
            "size": 4,
            "attempt": 3,
        }
        assert said == [("file", description)]
        with default_storage.open(description["path"]) as stored:
            assert stored.read() == b"\x89PNG"

    def test_an_attempt_does_not_overwrite_another(self, context, media):
        first, second = context.publish(b"1", "a"), context.publish(b"2", "a")
        assert first["path"] != second["path"]
        assert first["name"] == second["name"] == "a"

    @pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", "ä b?.png"])
    def test_a_name_does_not_lead_out_of_the_instances_folder(self, context, media, name):
        """G14."""
        path = context.publish(b"x", name)["path"]
        assert path.startswith(f"atp/{context.uuid}/3-")
        assert ".." not in path.split("/")
        assert path.count("/") == 2

    @pytest.mark.parametrize("name", [None, ""])
    def test_what_has_no_name_needs_one(self, context, media, name):
        with pytest.raises(ValueError, match="name"):
            context.publish(b"x", name)
        with pytest.raises(ValueError, match="name"):
            context.publish(io.BytesIO(b"x"), name)

    def test_a_content_type(self, context, media):
        assert context.publish(b"x", "a")["content_type"] == "application/octet-stream"
        assert context.publish(b"x", "a", content_type="x/y")["content_type"] == "x/y"


class TestOutput:
    @pytest.mark.parametrize(
        ("content", "content_type"),
        [("text", ""), (b"x", "image/png"), ("<p>", "text/html; charset=utf-8")],
    )
    def test_text_and_bytes(self, content, content_type):
        assert Output(content, content_type).content == content

    @pytest.mark.parametrize("content", [None, 5, {"a": 1}])
    def test_nothing_else(self, content):
        with pytest.raises(TypeError, match="text or bytes"):
            Output(content)

    @pytest.mark.parametrize(
        "content_type", ["png", "image/", "/png", "a b/c", "text/html\nx", "ä/b"]
    )
    def test_a_content_type_that_is_none(self, content_type):
        with pytest.raises(ValueError, match="is not a content type"):
            Output("x", content_type)

    def test_a_content_type_does_not_smuggle_a_header(self):
        """G14: it is sent to browsers as it is."""
        with pytest.raises(ValueError, match="is not a content type"):
            Output("x", "text/html; charset=utf-8\r\nSet-Cookie: a=b")
        with pytest.raises(ValueError, match="is not a content type"):
            Output("x", "text/html; " + "x" * 200)  # longer than its column
