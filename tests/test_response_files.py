"""Files of an attempt that do not fit where they are stored."""

import contextlib
import resource
from array import array
from datetime import datetime, tzinfo

import pytest

from atp import Output
from atp.authoring.context import storage_path
from atp.daemon.worker.response import respond
from atp.exceptions import NotSerializable
from atp.models import Response, Task
from atp.operations.registry import registry

from .app.tasks import echo
from .app.tasks_daemon import unkept
from .samples import claimed


@contextlib.contextmanager
def no_file_longer_than(count):
    """Have the kernel refuse what goes beyond, as a full disk does: some of it is there by then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def stored(folder):
    return [path.name for path in folder.rglob("*") if path.is_file()]


def test_a_response_that_does_not_fit_leaves_no_file(media):
    """Else each attempt would leave one that nothing names."""
    task = claimed(1, "tests.echo")
    with no_file_longer_than(50_000), pytest.raises(OSError, match="File too large"):
        respond(b"x" * 200_000, registry.get("tests.echo"), task)
    assert stored(media) == []
    assert respond(b"x" * 200_000, registry.get("tests.echo"), task).size == 200_000
    assert stored(media) == ["1-response"]


def test_a_published_file_that_does_not_fit_leaves_none_and_removes_no_other(media, context):
    """A name that is taken gets a suffix, and what has that one is removed."""
    for before in ([], ["3-large"]):
        if before:
            context.publish(b"small", name="large")
        with no_file_longer_than(50_000), pytest.raises(OSError, match="File too large"):
            context.publish(b"x" * 200_000, name="large")
        assert stored(media) == before


def test_the_response_of_a_lost_attempt_is_removed(media, db):
    """No row names it: it would outlive the Instance. What was published under its name stays."""
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
        respond(b"y" * 200_000, type, first._replace(attempt=2, lost=1, restarts=1))
        assert sorted(stored(media)) == left


def test_a_large_response_that_nobody_would_read_is_not_stored(media, db):
    made = unkept.enqueue()
    given = claimed(made.pk, "daemon.unkept")
    assert respond(b"x" * 200_000, unkept, given) is None
    Task.objects.filter(pk=made.pk).update(waits=0)
    assert respond(b"x" * 200_000, unkept, given).size == 200_000
    assert len(stored(media)) == 1


def test_a_value_that_cannot_be_written_is_not_serializable():
    """G13: each retry would do the work again, so the attempt ends as FATAL."""
    for value in (
        *(Output("\ud800"), memoryview(array("i", [1, 2])), Output(memoryview(b"abcd")[::2])),
        datetime(2030, 1, 1, tzinfo=tzinfo()),
    ):
        with pytest.raises(NotSerializable):
            respond(value, registry.get("tests.echo"), claimed(1, "tests.echo"))
