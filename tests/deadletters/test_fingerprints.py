"""Fingerprints: what differs between failures of one cause, and what does not."""

import types
from pathlib import Path

import pytest

from atp import Fatal
from atp.daemon.worker.fingerprints import failed
from atp.store.failures import of_loss, plain
from tests.app import tasks_failing

TYPE = "failing.cause"


def caught(call, *args):
    try:
        call(*args)
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def groups(module, numbers):
    found = (failed(TYPE, caught(module.fail, n % module.CAUSES, n)) for n in numbers)
    return {each.group for each in found}


def with_lines_above():
    """The module of the handlers, with lines inserted above each function."""
    source = Path(tasks_failing.__file__).read_text()
    module = types.ModuleType(tasks_failing.__name__)
    module.__package__ = "tests.app"
    moved = source.replace("\n\n\ndef ", "\n\n\n# More.\nMORE = 1\n\n\ndef ")
    moved = moved.replace("@task_type", "#@task_type")
    assert moved != source
    exec(compile(moved, tasks_failing.__file__, "exec"), vars(module))
    return module


def test_seven_causes_with_differing_numbers_are_seven_groups():
    assert len(groups(tasks_failing, range(700))) == tasks_failing.CAUSES


def test_lines_that_are_inserted_above_change_nothing():
    assert groups(with_lines_above(), range(70, 140)) == groups(tasks_failing, range(70))


def test_the_type_is_part_of_the_group():
    error = caught(tasks_failing.fail, 0, 1)
    assert failed("tests.add", error).group != failed(TYPE, error).group
    assert failed("tests.add", error).fingerprint == failed(TYPE, error).fingerprint


def test_the_cause_of_an_exception_counts():
    with_cause = caught(tasks_failing.fail, 3, 1)
    without = caught(tasks_failing.fail, 3, 1)
    without.__cause__ = None
    assert failed(TYPE, with_cause).group != failed(TYPE, without).group


def test_a_circle_of_causes_ends():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert failed(TYPE, first).exception == "builtins.ValueError"


def test_a_given_fingerprint_wins():
    errors = [Fatal("here", fingerprint="no-dem"), caught(tasks_failing.fail, 4, 9)]
    assert len({failed(TYPE, error).group for error in errors}) == 1
    assert failed(TYPE, Fatal("here", fingerprint="other")).group not in {
        failed(TYPE, error).group for error in errors
    }


def test_a_fingerprint_is_text():
    with pytest.raises(ValueError, match=r"fingerprint=7.*must be text"):
        Fatal("here", fingerprint=7)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("took 12.5 s of 3e4", "took 1 s of 7"),
        ("no 018f3c2a-9c1d-7000-8000-00000000000a", "no 018f3c2a-9c1d-7abc-8000-000000000fff"),
        ("at 2026-01-02T03:04:05Z", "at 2025-12-31 23:59:59.5+01:00"),
        ("key 'a' or \"b\"", "key 'cd' or \"ef\""),
        ("of ann@example.org", "of bob.b@example.com"),
        ("GET https://a.example/x?y=1", "GET http://b.example/"),
        ("object at 0x7f3a", "object at 0xdeadbeef"),
        ("commit 7f3adeadbeef00", "commit 00ff00ff00ff1"),
    ],
)
def test_what_differs_in_messages_is_replaced(one, other):
    assert plain(one) == plain(other)


@pytest.mark.parametrize(("one", "other"), [("no file", "no folder"), ("don't", "can't")])
def test_words_are_not_replaced(one, other):
    assert plain(one) != plain(other)


def test_without_functions_of_the_application_the_message_counts():
    errors = [ValueError("no tile 7"), ValueError("no tile 8"), ValueError("no scene 8")]
    assert len({failed(TYPE, error).group for error in errors}) == 2


def test_an_exception_that_cannot_be_written_has_a_group():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert failed(TYPE, Mute()).title == "Mute"


@pytest.mark.parametrize(
    ("cause", "title"),
    [
        ("time-out", "killed after time-out"),
        ("memory", "out of memory"),
        ("SIGKILL", "worker died: SIGKILL"),
        ("", "daemon lost"),
    ],
)
def test_losses_have_a_group_for_each_kind(cause, title):
    assert of_loss(TYPE, cause).title == title
