"""Tests of the test runner: which tests it runs on which database, and its final report."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from . import environment, legs, outcomes, results, selection
from .outcomes import MOST_UNSTEADY, Outcome, of_leg
from .results import Result
from .selection import NoProcesses, Sharing

CHOSEN = "tests/store/test_claim.py"


def args_of(*args, **options):
    return {leg.name: leg.args for leg in legs.planned(args, **options)}


def test_runner_plans_its_pytest_processes_from_the_options(monkeypatch):
    """A list of tests on the command line is not split between several processes."""
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setattr(legs, "WORKERS", dict.fromkeys(legs.WORKERS, 1))
    assert args_of() == {
        "sqlite": ("--beside=postgres", "--short"),
        "postgres": ("--beside=sqlite", "--short"),
    }
    assert args_of(only=["sqlite"]) == {"sqlite": ("--short",)}
    assert args_of(CHOSEN, only=["sqlite"]) == {"sqlite": (CHOSEN,)}
    assert args_of("-x", everything=True, at_once=True) == {
        "sqlite": ("-x", "--ignore", "tests/daemon"),
        "sqlite-daemon": ("-x", "tests/daemon"),
        "postgres": ("-x", "--ignore", "tests/daemon"),
        "postgres-daemon": ("-x", "tests/daemon"),
        "postgres16": ("-x", "tests/store"),
    }
    assert args_of(CHOSEN, "-x", everything=True)["postgres16"] == ("-x", CHOSEN)
    assert args_of("-x", quick=True) == {"sqlite": ("--short", "--quick", "-x")}
    first, second = legs.planned([], quick=True, at_once=True)
    assert (first.name, second.name) == ("sqlite-1", "sqlite-2")
    assert first.args == second.args
    assert first.args[0].startswith("--share=")
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere/else")
    assert list(args_of(at_once=True)) == ["sqlite", "postgres"]


class Item:
    """The attributes of a pytest item that the selection reads."""

    def __init__(self, path, name="test_it", fixtures=(), marks=(), names=(), line=0, scope="x"):
        self.path = environment.ROOT / path
        self.nodeid = f"{path}::{name}"
        self.fixturenames = list(fixtures)
        self.module = SimpleNamespace(**dict.fromkeys(names))
        self.location = path, line, name
        self._marks = marks
        scopes = {"fixture": [SimpleNamespace(scope=scope)]}
        self._fixtureinfo = SimpleNamespace(name2fixturedefs=scopes)

    def get_closest_marker(self, name):
        return name in self._marks or None


PAGES, PAUSES = "tests/views/test_pages.py", "tests/daemon/test_pause.py"
UNIT = Item("tests/test_codec.py")
BY_MARK = Item("tests/test_queue.py", "test_by_mark", marks=["django_db"], line=9)
PAGE = Item(PAGES, "test_second", fixtures=["db"], line=9)
PURE_PAGE = Item(PAGES, "test_pure", line=1)
DAEMON = Item("tests/daemon/test_kills.py", fixtures=["atpd", "transactional_db"])
PAUSE_ON = Item(PAUSES, "test_on", fixtures=["transactional_db"], line=9)
LONG = Item("tests/test_many.py", marks=["long"])
SLOW = Item("tests/test_codec.py", "test_slow", marks=["slow"])
PAGE_FIRST = Item(PAGES, "test_first", fixtures=["db"], line=5)
PAUSE_FIRST = Item(PAUSES, "test_first", fixtures=["transactional_db"], line=5)
BESIDE_MARKED = Item("tests/web/test_a.py", "test_other", fixtures=["db"])
ALL = [
    *(UNIT, BY_MARK, PAGE, PURE_PAGE, DAEMON, LONG, PAUSE_ON, BESIDE_MARKED, SLOW),
    *(PAGE_FIRST, PAUSE_FIRST),
    # The first test of a module, tests that might depend on the database, and marked tests.
    Item("tests/test_queue.py", fixtures=["db"], line=5),
    Item("tests/store/test_listener.py", marks=["skipif"]),
    Item("tests/store/test_choice.py", names=["connection"]),
    Item("tests/web/test_a.py", fixtures=["db"], marks=["each_database"], line=20),
]


def test_selection_runs_each_test_on_one_database_or_on_both(monkeypatch):
    others = [UNIT, PAGE, PURE_PAGE, LONG, BESIDE_MARKED, SLOW, PAGE_FIRST]
    own, is_slow = [BY_MARK, PAUSE_ON, PAUSE_FIRST], "left out, as they are slow or start processes"
    for kind, given, left, why in (
        ("sqlite", {}, [], ""),
        ("sqlite", {"beside": "postgres"}, own, "left to the run on postgres"),
        ("postgres", {"beside": "sqlite"}, others, "left to the run on sqlite"),
        ("sqlite", {"short": True}, [LONG], "left to a run with --all, as they take long"),
        ("sqlite", {"quick": True}, [DAEMON, SLOW], is_slow),
    ):
        monkeypatch.setattr(environment, "kind", lambda kind=kind: kind)
        told, items = [], list(ALL)
        config = SimpleNamespace(
            option=SimpleNamespace(**{"beside": None, "quick": False, "short": False} | given),
            hook=SimpleNamespace(pytest_deselected=lambda items, told=told: told.extend(items)),
        )
        lines = selection.select(config, items)
        assert [item for item in ALL if item not in items] == left
        assert sorted(map(id, items + told)) == sorted(map(id, ALL))
        assert lines == ([f"{len(left)} tests {why}"] if left else [])


def test_quick_run_skips_a_test_that_starts_a_process():
    watched = NoProcesses().pytest_runtest_call(UNIT)
    next(watched)
    with pytest.raises(pytest.skip.Exception):
        sys.audit("subprocess.Popen", "true", [], None, None)
    watched.close()
    sys.audit("subprocess.Popen", "true", [], None, None)


def test_each_shared_test_is_run_by_only_one_process_and_slow_tests_come_first(tmp_path):
    """Tests that use a fixture of their module or package are run by the same process."""
    for scope, units in (("function", 2), ("module", 1), ("package", 1)):
        items = [Item(PAGES, name, scope=scope) for name in ("test_a", "test_b")]
        one, other = Sharing(tmp_path / scope), Sharing(tmp_path / scope)
        assert one._takes(items[0])
        assert not other._takes(items[0])
        assert other._takes(items[1]) == (units == 2)
        assert one._takes(items[1]) == (units == 1)
    shares = Item(PAGES, scope="module")
    items = [UNIT, SLOW, PAGE, shares]
    assert sorted(items, key=Sharing(tmp_path)._is_late) == [SLOW, shares, UNIT, PAGE]


def some(passed=0, failed=0, skipped=0):
    """Return test results with the given numbers of passed, failed and skipped tests."""
    counts = {"passed": passed, "failed": failed, "skipped": skipped}
    return [
        Result(id=f"tests/test_some.py::test_{outcome}[{n}]", outcome=outcome, why="because\nso")
        for outcome, count in counts.items()
        for n in range(count)
    ]


def test_final_report_shows_failures_and_totals_and_sets_the_exit_status(capsys):
    """The last lines of a log name each failed test and its reason."""
    for found, status, last in (
        ([some(2), some(3, 0, 1)], 0, "5 passed, 0 failed, 1 skipped"),
        ([some(2), some(0, 1)], 1, "2 passed, 1 failed"),
        ([some(), some()], 1, "0 passed, 0 failed"),
        ([some(0, 0, 2), some()], 1, "0 passed, 0 failed, 2 skipped"),
    ):
        pairs = [(title, Outcome(each)) for title, each in zip("ab", found, strict=True)]
        assert outcomes.report(pairs) == status
        lines = capsys.readouterr().out.splitlines()
        assert lines[-1] == last
        if "1 failed" in last:
            assert "b: FAILED tests/test_some.py::test_failed[0]" in lines
            assert "    so" in lines
            assert lines[-4] == "b: FAILED tests/test_some.py::test_failed[0]: because"
    # A leg that was aborted has failed, even if each test that it reported has passed.
    for status in (1, 2, 3, -9):
        assert of_leg(some(passed=5), status).counts() == (5, 1, 0)


def test_too_many_flaky_tests_fail_the_run(capsys):
    for count, status in ((MOST_UNSTEADY, 0), (MOST_UNSTEADY + 1, 1)):
        first = Outcome(some(passed=2, failed=count))
        seen = first.looked_again([Result(id=each.id, outcome="passed") for each in first.failures])
        assert outcomes.report([("SQLite", seen)]) == status
        failed = count if status else 0
        last = capsys.readouterr().out.splitlines()[-1]
        assert last == f"{2 + count - failed} passed, {failed} failed"


def test_unfinished_test_is_reported_as_failed_if_its_process_ended(tmp_path):
    path = tmp_path / "results"
    ended = {"id": "a", "outcome": "passed"}
    path.write_text("\n".join(map(json.dumps, [{"begun": "a"}, ended, {"begun": "b"}])))
    first, second = results.read(path)
    assert (first.outcome, second.id, second.outcome) == ("passed", "b", "failed")
    assert "process ended" in second.why
    assert results.read(tmp_path / "none") == []


def run(tmp_path, chosen, *options):
    """Run tests of :mod:`tests.unsteady`; return the exit status and the lines of output."""
    ours = ("ATP_TEST_", "DATABASE_URL")
    own = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    own["ATP_TEST_UNSTEADY"] = str(tmp_path / "seen")
    command = [sys.executable, "-m", "tests.run", "--only", "sqlite", "tests/unsteady.py", *options]
    ended = subprocess.run(
        [*command, "-k", chosen], cwd=environment.ROOT, env=own, capture_output=True, text=True
    )
    return ended.returncode, ended.stdout.splitlines()


@pytest.mark.long
def test_run_names_a_flaky_test_and_fails_if_a_test_always_fails(tmp_path):
    status, lines = run(tmp_path, "passes or once or always")
    assert (status, lines[-1]) == (1, "2 passed, 1 failed")
    assert "SQLite: FAILED tests/unsteady.py::test_it_fails_always" in lines
    [named] = [line for line in lines if "SQLite: UNSTEADY" in line]
    assert named.startswith("SQLite: UNSTEADY tests/unsteady.py::test_it_fails_once: ")
    assert "the first time" in named


@pytest.mark.long
def test_at_option_starts_each_test_at_the_given_time(tmp_path):
    status, lines = run(tmp_path, "year", "--at=2031-12-31T23:59:59.5")
    assert (status, lines[-1]) == (0, "1 passed, 0 failed")
