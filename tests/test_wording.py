"""Tests of :mod:`atp.words.wording`: times and errors in words."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from atp.authoring import context
from atp.authoring.log_text import describe
from atp.daemon.worker import execution
from atp.middleware import onion
from atp.rows import querysets
from atp.words import wording

NOW = datetime(2026, 10, 25, tzinfo=UTC)


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return describe(caught)


def test_a_time_that_comes_twice_says_which_it_is():
    with timezone.override(ZoneInfo("Europe/Vienna")):
        assert wording.moment(datetime(2026, 10, 25, 0, 30, tzinfo=UTC)).endswith("02:30:00 CEST")
        assert wording.moment(datetime(2026, 10, 25, 1, 30, tzinfo=UTC)).endswith("02:30:00 CET")
        assert wording.moment(datetime(2026, 10, 25, 2, 30, tzinfo=UTC)).endswith("03:30:00")


def test_the_headline_of_a_traceback_is_its_exception():
    assert (
        wording.headline(raised(ValueError("bins must be\npositive"))) == "ValueError: bins must be"
    )


def test_the_headline_of_a_group_is_the_whole():
    group = ExceptionGroup("many", [ValueError("one"), KeyError("two")])
    assert wording.headline(raised(group)) == "ExceptionGroup: many (2 sub-exceptions)"


def test_a_traceback_that_was_told_before_is_known_by_its_claim():
    """What ATP adds behind it, as that no retry is left, is no difference."""
    trace = f"{raised(KeyError(7))}".rstrip("\n")
    other = trace.replace("KeyError: 7", "KeyError: 77")
    told = [(trace, 1), (trace, 2), (other, 3), (f"{trace} (retries used up: 2 of 2)", 4)]
    assert wording.repetitions(told) == [None, 1, None, 1]


def test_a_sentence_is_told_each_time():
    assert wording.repetitions([("busy", 1), ("busy", 2)]) == [None, None]


def test_the_headline_of_a_sentence_is_its_first_line():
    assert wording.headline("daemon vm:1 was lost\nmore") == "daemon vm:1 was lost"


@pytest.mark.parametrize(
    "file",
    [
        "/site-packages/atp/daemon/execution.py",  # as logs of earlier versions have it
        "/site-packages/atp/queue.py",
        execution.__file__,
        context.__file__,
        querysets.__file__,
        onion.__file__,
        "/site-packages/atp/backend/declaring.py",
    ],
)
def test_frames_of_atp_are_left_out(file):
    told = (
        "Traceback (most recent call last):\n"
        f'  File "{file}", line 9, in run\n    call()\n'
        '  File "/project/tasks.py", line 3, in f\n    g()\n'
        "KeyError: 7"
    )
    assert wording.without_own_frames(told) == (
        "Traceback (most recent call last):\n"
        '  File "/project/tasks.py", line 3, in f\n    g()\n'
        "KeyError: 7"
    )


def test_frames_of_atp_are_left_out_of_a_group_of_exceptions():
    own = f'  File "{execution.__file__}", line 9, in run\n    call()\n    ~~~~^^\n'
    project = '  File "/project/tasks.py", line 3, in f\n    g()\n'
    told = "".join(
        f"{line}\n" if line.startswith("  +") else f"  | {line}\n"
        for line in (
            "  + Exception Group Traceback (most recent call last):",
            *f"{own}{project}".splitlines(),
            "ExceptionGroup: two (1 sub-exception)",
            "  +-+---------------- 1 ----------------",
        )
    )
    found = wording.without_own_frames(
        f"{told}    | Traceback (most recent call last):\n    | {own}"
    )
    assert execution.__file__ not in found.rpartition("Traceback")[0]
    assert "".join(f"  | {line}\n" for line in project.splitlines()) in found
    assert "ExceptionGroup: two" in found


def test_no_exception_of_a_chain_is_left_out_with_the_frames_of_atp():
    own = f'  File "{execution.__file__}", line 9, in run\n    call()\n'
    header, between = "Traceback (most recent call last):\n", "\nDuring handling …:\n\n"
    told = f"{header}{own}KeyError: 7\n{between}{header}{own}ValueError: two lines\n    of text\n"
    found = wording.without_own_frames(told)
    assert found == told.replace(own, "")


def test_ago_never_names_the_future():
    assert wording.ago(NOW - timedelta(seconds=5), NOW) == "5 s ago"
    assert wording.ago(NOW + timedelta(milliseconds=68), NOW) == "just now"


def test_due_says_whether_the_moment_has_passed():
    assert wording.due(NOW + timedelta(seconds=5), NOW) == "in 5 s"
    assert wording.due(NOW - timedelta(milliseconds=38), NOW) == "due for 38 ms"
