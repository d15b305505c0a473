"""Which differences between two failures put them into different error groups."""

import types
from pathlib import Path

import pytest

from atp import Fatal
from tests.app import tasks_failing

from .causes import caught, failed_by, of_loss, plain

TYPE = "failing.cause"


def groups(module, numbers):
    found = (failed_by(TYPE, caught(module.fail, n % module.CAUSES, n)) for n in numbers)
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


def test_seven_causes_with_differing_numbers_form_seven_groups():
    """Lines that were inserted into the source do not change them."""
    found = groups(tasks_failing, range(700))
    assert len(found) == tasks_failing.CAUSES
    assert groups(with_lines_above(), range(70, 140)) == found


def test_an_error_of_another_type_or_with_another_cause_has_another_group():
    """A cycle of causes does not hang."""
    error = caught(tasks_failing.fail, 3, 1)
    own, other = failed_by(TYPE, error), failed_by("tests.add", error)
    assert other.group != own.group
    assert other.fingerprint == own.fingerprint
    error.__cause__ = None
    assert failed_by(TYPE, error).group != own.group
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert failed_by(TYPE, first).exception == "builtins.ValueError"


def test_an_explicit_fingerprint_overrides_the_computed_one():
    errors = [Fatal("here", fingerprint="no-dem"), caught(tasks_failing.fail, 4, 9)]
    [group] = {failed_by(TYPE, error).group for error in errors}
    assert failed_by(TYPE, Fatal("here", fingerprint="other")).group != group
    with pytest.raises(ValueError, match=r"fingerprint=7.*must be text"):
        Fatal("here", fingerprint=7)


ALIKE = [
    ("took 12.5 s of 3e4", "took 1 s of 7"),
    ("no 018f3c2a-9c1d-7000-8000-00000000000a", "no 018f3c2a-9c1d-7abc-8000-000000000fff"),
    ("at 2026-01-02T03:04:05Z", "at 2025-12-31 23:59:59.5+01:00"),
    ("key 'a' or \"b\"", "key 'cd' or \"ef\""),
    ("of ann@example.org", "of bob.b@example.com"),
    ("GET https://a.example/x?y=1", "GET http://b.example/"),
    ("object at 0x7f3a", "object at 0xdeadbeef"),
    ("commit 7f3adeadbeef00", "commit 00ff00ff00ff1"),
]


def test_varying_parts_of_messages_are_replaced_but_words_are_not():
    for one, other in ALIKE:
        assert plain(one) == plain(other)
    for one, other in (("no file", "no folder"), ("don't", "can't")):
        assert plain(one) != plain(other)


def test_errors_outside_the_application_are_grouped_by_message():
    """An exception whose text cannot be made has a group too."""

    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    errors = [ValueError("no tile 7"), ValueError("no tile 8"), ValueError("no scene 8")]
    assert len({failed_by(TYPE, error).group for error in errors}) == 2
    assert failed_by(TYPE, Mute()).title == "Mute"
    # Losses are grouped by their kind.
    for cause, title in (
        ("time-out", "killed after time-out"),
        ("memory", "out of memory"),
        ("SIGKILL", "worker died: SIGKILL"),
        ("", "daemon lost"),
    ):
        assert of_loss(TYPE, cause).title == title
