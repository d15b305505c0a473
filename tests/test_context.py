"""Tests of a handler's context: progress, log messages, requests to end the attempt, files."""

import contextlib
import gzip
import io
import logging
import os
import re
import resource
import tempfile
import time
from array import array
from datetime import datetime, tzinfo
from types import SimpleNamespace

import pytest
from django.core.files.storage import default_storage

from atp.authoring.context import LogCapture, Output, storage_path
from atp.authoring.logs import shorten
from atp.daemon.worker.execution import respond
from atp.exceptions import Interrupted, NotSerializable, TooLarge
from atp.models import Response, Task
from atp.operations.registry import registry

from .app.tasks import echo
from .app.tasks_daemon import unkept
from .helpers import NOBODY
from .samples import claimed


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock that limits how often progress is sent."""

    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


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


def test_scratch_is_a_private_directory_of_the_attempt(context, tmp_path):
    context.remove_scratch()
    assert list(tmp_path.iterdir()) == []
    assert context.scratch is context.scratch
    (context.scratch / "a").write_text("x")
    assert context.scratch.parent == tmp_path
    assert context.scratch.stat().st_mode & 0o777 == 0o700
    context.remove_scratch()
    assert list(tmp_path.iterdir()) == []


class TestScratchThatWasTidiedUp:
    """A cleanup of temporary files removed a scratch folder, and another user has created one."""

    @pytest.fixture
    def top(self, tmp_path, settings):
        settings.ATP = {"SCRATCH_DIR": str(tmp_path / "top")}
        (tmp_path / "top").mkdir(mode=0o700)
        return tmp_path / "top"

    @pytest.fixture
    def own(self, context, top):
        """Return the context of an attempt whose scratch directory is in a folder of worker 0."""
        context._scratch_root = top / "atp-scratch-abc" / "worker-0"
        return context

    @pytest.mark.parametrize(
        ("level", "how"),
        [
            *(("atp-scratch-abc", how) for how in ("link", 0o707, "of another")),
            *(("atp-scratch-abc/worker-0", how) for how in ("link", 0o770, "file")),
        ],
    )
    def test_scratch_path_that_does_not_belong_to_this_user_alone_is_not_used(
        self, own, said, top, tmp_path, level, how
    ):
        folder = top / level
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        if how == "link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            folder.symlink_to(tmp_path / "elsewhere")
        elif how == "file":
            folder.touch()
        else:
            folder.mkdir()
            folder.chmod(0o755 if how == "of another" else how)
        if how == "of another":
            if os.geteuid() != 0:
                pytest.skip("only root can give a folder to somebody else")
            os.chown(folder, NOBODY, NOBODY)
        before = {each for each in tmp_path.rglob("*") if folder in each.parents}
        scratch = own.scratch
        (scratch / "file").write_text("mine")
        assert folder not in scratch.resolve().parents
        assert tmp_path / "elsewhere" not in scratch.resolve().parents
        assert scratch.parent.parent == top
        assert scratch.parent.stat().st_mode & 0o777 == 0o700
        assert {each for each in tmp_path.rglob("*") if folder in each.parents} == before
        own.say_all()
        assert "is not this user's alone" in str(said)
        own.remove_scratch()
        assert not scratch.parent.exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
    def test_scratch_root_that_another_user_owns_is_not_used(self, own, top, tmp_path):
        tmp_path.chmod(0o1777)
        os.chown(top, NOBODY, NOBODY)
        assert top not in own.scratch.parents
        assert list(top.iterdir()) == []
        own.remove_scratch()
        assert list(tmp_path.iterdir()) == [top]


class TestPublish:
    """``publish`` stores a result file in Django's storage and returns its description."""

    def test_publish_accepts_paths_bytes_and_open_files(self, context, said, media, tmp_path):
        path = tmp_path / "a.png"
        path.write_bytes(b"\x89PNG")
        with path.open("rb") as opened:
            for given, name in (
                *((path, None), (str(path), None), (b"\x89PNG", "a.png"), (opened, None)),
                (io.BytesIO(b"\x89PNG"), "a.png"),
            ):
                told = context.publish(given, name)
                facts = {"name": "a.png", "content_type": "image/png", "size": 4, "attempt": 3}
                assert told == {**facts, "path": told["path"]}
                assert said[-1] == ("file", told)
                with default_storage.open(told["path"]) as stored:
                    assert stored.read() == b"\x89PNG"
        assert said[0][1]["path"] == storage_path(context.uuid, 3, "a.png")
        # No file is overwritten.
        assert len({each["path"] for _, each in said}) == 5

    def test_publish_reports_the_size_of_the_stored_file(self, context, media, tmp_path):
        unflushed = tempfile.TemporaryFile()
        unflushed.write(b"x" * 100)
        (tmp_path / "a.gz").write_bytes(gzip.compress(b"x" * 10_000))
        end, begin = os.pipe()
        os.write(begin, b"abc")
        os.close(begin)
        for opened in (unflushed, gzip.open(tmp_path / "a.gz"), os.fdopen(end, "rb")):
            with opened:
                told = context.publish(opened, "a.bin")
            with default_storage.open(told["path"]) as stored:
                assert told["size"] == len(stored.read()) > 0

    def test_publish_needs_a_name_and_stays_in_the_folder_of_the_instance(
        self, context, media, settings
    ):
        """G14: a name cannot lead to a path outside that folder. G5: the number is limited."""
        for content, name in ((b"x", None), (b"x", ""), (io.BytesIO(b"x"), None)):
            with pytest.raises(ValueError, match="name"):
                context.publish(content, name)
        for name in ("../../etc/passwd", "/etc/passwd", "a/../../b", "ä b?.png"):
            path = context.publish(b"x", name)["path"]
            assert path.startswith(f"atp/{context.uuid}/3-")
            assert ".." not in path.split("/")
            assert path.count("/") == 2
        settings.ATP = {**settings.ATP, "MAX_FILES": 5}
        context.publish(b"x", "a")
        with pytest.raises(TooLarge, match="5 files"):
            context.publish(b"x", "a")


def test_output_accepts_text_or_bytes_with_a_valid_content_type(context, media):
    """G14: a browser gets the content type unchanged. The text must also fit its column."""
    for content in ("text", b"x"):
        assert Output(content, "text/html; charset=utf-8").content == content
    with pytest.raises(TypeError, match="text or bytes"):
        Output({"a": 1})
    for content_type in (
        *("png", "image/", "/png", "a b/c", "ä/b", "text/html\nx", "text/html; a=b\rc"),
        *("text/html; a=b\r\nSet-Cookie: c=d", "text/html; " + "x" * 200),
    ):
        with pytest.raises(ValueError, match="is not a content type"):
            Output("x", content_type)
        with pytest.raises(ValueError, match="is not a content type"):
            context.publish(b"x", "a", content_type=content_type)


@contextlib.contextmanager
def no_file_longer_than(count):
    """Let the kernel refuse a write beyond ``count`` bytes, like a disk that becomes full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def stored(folder):
    return [path.name for path in folder.rglob("*") if path.is_file()]


def test_response_or_published_file_that_does_not_fit_on_the_disk_is_removed(media, context):
    """Otherwise each attempt would leave a file that no row names.

    If the name is taken, the new file gets a suffix, and only the new file is removed.
    """
    for before in ([], ["3-large"]):
        if before:
            context.publish(b"small", name="large")
        with no_file_longer_than(50_000):
            context.publish(b"x" * 200_000, name="large")
        assert stored(media) == before
    task = claimed(1, "tests.echo")
    with no_file_longer_than(50_000):
        respond(b"x" * 200_000, registry.get("tests.echo"), task)
    assert stored(media) == before
    assert respond(b"x" * 200_000, registry.get("tests.echo"), task).size == 200_000
    assert sorted(stored(media)) == ["1-response", *before]


def test_response_file_of_a_lost_attempt_is_removed(media, db):
    """Otherwise the file would outlive the Instance. A published file of the same name is kept."""
    made, type = echo.enqueue(), registry.get("tests.echo")
    for is_published, left in (
        (False, ["2-response"]),
        (True, ["1-response", "2-response", "2-response"]),
    ):
        first = claimed(made.pk, "tests.echo")
        respond(b"x" * 200_000, type, first)
        if is_published:
            files = [{"name": "response", "path": storage_path(first.uuid, 1, "response")}]
            Response.objects.create(instance=made, content_type="", size=0, files=files)
        again = claimed(made.pk, "tests.echo", lost=1, number=2, uuid_text=first.uuid_text)
        respond(b"y" * 200_000, type, again)
        assert sorted(stored(media)) == left


def test_large_response_is_not_stored_if_nobody_can_read_it(media, db):
    made = unkept.enqueue()
    given = claimed(made.pk, "daemon.unkept")
    assert respond(b"x" * 200_000, unkept, given) is None
    Task.objects.filter(pk=made.pk).update(waits=0)
    assert respond(b"x" * 200_000, unkept, given).size == 200_000
    assert len(stored(media)) == 1


def test_response_value_that_cannot_be_stored_raises_not_serializable():
    """G13: the attempt ends as FATAL, because each retry would only repeat the work."""
    for value in (
        *(Output("\ud800"), memoryview(array("i", [1, 2])), Output(memoryview(b"abcd")[::2])),
        datetime(2030, 1, 1, tzinfo=tzinfo()),
    ):
        with pytest.raises(NotSerializable):
            respond(value, registry.get("tests.echo"), claimed(1, "tests.echo"))
