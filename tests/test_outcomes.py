"""Tests of :mod:`tests.outcomes` and :mod:`tests.results`: what a run says in its end."""

import json

import pytest

from . import outcomes, results
from .outcomes import MOST_UNSTEADY, Outcome, of_leg
from .results import Result


def some(passed=0, failed=0, skipped=0):
    """Return so many Results."""
    counts = {"passed": passed, "failed": failed, "skipped": skipped}
    return [
        Result(id=f"tests/test_some.py::test_{outcome}[{n}]", outcome=outcome, why="because\nso")
        for outcome, count in counts.items()
        for n in range(count)
    ]


@pytest.mark.parametrize("status", [1, 2, 3, -9])
def test_a_run_that_broke_off_has_failed(status):
    """Even if each test of which it knows has passed."""
    assert of_leg(some(passed=5), status).counts() == (5, 1, 0)


@pytest.mark.parametrize(
    ("found", "status", "last"),
    [
        ([some(2), some(3)], 0, "5 passed, 0 failed"),
        ([some(2), some(3, 0, 1)], 0, "5 passed, 0 failed, 1 skipped"),
        ([some(2), some(0, 1)], 1, "2 passed, 1 failed"),
        ([some(), some()], 1, "0 passed, 0 failed"),
        ([some(0, 0, 2), some()], 1, "0 passed, 0 failed, 2 skipped"),
    ],
)
def test_the_last_line_and_the_status(capsys, found, status, last):
    pairs = [(title, Outcome(each)) for title, each in zip("ab", found, strict=True)]
    assert outcomes.report(pairs) == status
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_what_failed_is_said_again_at_the_end_with_its_reason(capsys):
    """Who reads only the last lines of a log finds the test and where it failed."""
    assert outcomes.report([("SQLite", Outcome(some(failed=1)))]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "SQLite: FAILED tests/test_some.py::test_failed[0]" in lines
    assert "    so" in lines
    assert lines[-3] == "SQLite: FAILED tests/test_some.py::test_failed[0]: because"


def test_what_passes_at_a_second_look_is_unsteady(capsys):
    first = Outcome(some(passed=2, failed=2))
    one, other = first.failures
    second = [Result(id=one.id, outcome="passed"), Result(id=other.id, outcome="failed")]
    seen = first.looked_again(second)
    assert (seen.unsteady, seen.failures) == ([one], [other])
    assert seen.counts() == (3, 1, 0)
    assert outcomes.report([("SQLite", seen)]) == 1
    assert f"SQLite: UNSTEADY {one.id}: because" in capsys.readouterr().out


@pytest.mark.parametrize("outcome", ["skipped", "failed", None])
def test_what_does_not_pass_at_a_second_look_has_failed(outcome):
    first = Outcome(some(failed=1))
    second = [Result(id=each.id, outcome=outcome) for each in first.failures if outcome]
    assert first.looked_again(second).counts() == (0, 1, 0)


@pytest.mark.parametrize(("count", "status"), [(MOST_UNSTEADY, 0), (MOST_UNSTEADY + 1, 1)])
def test_many_unsteady_tests_fail_a_run(capsys, count, status):
    first = Outcome(some(passed=2, failed=count))
    seen = first.looked_again([Result(id=each.id, outcome="passed") for each in first.failures])
    assert outcomes.report([("SQLite", seen)]) == status
    failed = count if status else 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"{2 + count - failed} passed, {failed} failed"


def test_a_test_that_ended_its_process_has_failed(tmp_path):
    path = tmp_path / "results"
    ended = {"id": "a", "outcome": "passed"}
    path.write_text("\n".join(map(json.dumps, [{"begun": "a"}, ended, {"begun": "b"}])))
    first, second = results.read(path)
    assert (first.outcome, second.id, second.outcome) == ("passed", "b", "failed")
    assert "process ended" in second.why
    assert results.read(tmp_path / "none") == []
