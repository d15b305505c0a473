"""Files of an attempt that do not fit where they are stored."""

import contextlib
import resource
from array import array
from datetime import datetime, tzinfo

import pytest
from django.core.files.storage import storages

from atp import Output
from atp.authoring.storage import storage_path
from atp.daemon.worker.response import respond
from atp.exceptions import NotSerializable
from atp.models import Response, Task
from atp.verbs.registry import registry

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


def test_a_published_file_that_does_not_fit_leaves_none(media, context):
    with no_file_longer_than(50_000), pytest.raises(OSError, match="File too large"):
        context.publish(b"x" * 200_000, name="large")
    assert stored(media) == []


def test_what_another_attempt_has_stored_is_left(media, context):
    """A name that is taken gets a suffix, and what has that one is removed, no other."""
    path = storage_path(context.uuid, context.attempt, "large")
    context.publish(b"small", name="large")
    with no_file_longer_than(50_000), pytest.raises(OSError, match="File too large"):
        context.publish(b"x" * 200_000, name="large")
    assert stored(media) == ["3-large"]
    assert storages["default"].exists(path)


def test_the_response_of_a_lost_attempt_is_removed(media, db):
    """No row names it: it would outlive the Instance."""
    first = claimed(1, "tests.echo")
    respond(b"x" * 200_000, registry.get("tests.echo"), first)
    second = first._replace(attempt=2, lost=1, restarts=1)
    respond(b"y" * 200_000, registry.get("tests.echo"), second)
    assert stored(media) == ["2-response"]


def test_a_file_that_was_published_under_its_name_stays(media, db):
    made = echo.enqueue()
    first = claimed(made.pk, "tests.echo")
    respond(b"x" * 200_000, registry.get("tests.echo"), first)
    files = [{"name": "response", "path": storage_path(first.uuid, 1, "response")}]
    Response.objects.create(instance=made, content_type="", size=0, files=files)
    second = first._replace(attempt=2, lost=1, restarts=1)
    respond(b"y" * 200_000, registry.get("tests.echo"), second)
    assert sorted(stored(media)) == ["1-response", "2-response"]


def test_a_large_response_that_nobody_would_read_is_not_stored(media, db):
    made = unkept.enqueue()
    given = claimed(made.pk, "daemon.unkept")
    assert respond(b"x" * 200_000, unkept, given) is None
    Task.objects.filter(pk=made.pk).update(waits=0)
    assert respond(b"x" * 200_000, unkept, given).size == 200_000
    assert len(stored(media)) == 1


@pytest.mark.parametrize(
    ("content_type", "value"),
    [
        ("text/csv; charset=iso-8859-1", "Zürich"),
        ("text/csv", "Zürich".encode("latin-1")),
        ("text/csv; charset=none", "Zürich".encode("latin-1")),
    ],
)
def test_text_of_another_charset(content_type, value):
    body = "Zürich".encode("latin-1")
    assert Response(content_type=content_type, data=body, size=len(body)).value == value


@pytest.mark.parametrize(
    "value",
    [
        *(Output("\ud800"), memoryview(array("i", [1, 2])), Output(memoryview(b"abcd")[::2])),
        datetime(2030, 1, 1, tzinfo=tzinfo()),
    ],
)
def test_a_value_that_cannot_be_written_is_not_serializable(value):
    """G13: each retry would do the work again, so the attempt ends as FATAL."""
    with pytest.raises(NotSerializable):
        respond(value, registry.get("tests.echo"), claimed(1, "tests.echo"))
