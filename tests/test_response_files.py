"""Files of an attempt that do not fit where they are stored."""

import contextlib
import resource

import pytest
from django.core.files.storage import storages

from atp.authoring.storage import storage_path
from atp.daemon.worker.response import respond
from atp.verbs.registry import registry

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
