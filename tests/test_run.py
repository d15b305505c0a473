"""A run of the tests: which it takes on which database, and what it says in the end."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from . import environment, legs, outcomes, results, selection, stuck
from .helpers import wait_for
from .outcomes import MOST_UNSTEADY, Outcome, of_leg
from .results import Result
from .selection import NoProcesses, Sharing

CHOSEN = "tests/store/test_claim.py"


def args_of(*args, **options):
    return {leg.name: leg.args for leg in legs.planned(args, **options)}


def test_legs(monkeypatch):
    """Each is run once on each database, and what is named on the command line stays whole."""
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
    assert list(args_of("tests/daemon/test_worker.py", at_once=True)) == ["sqlite", "postgres"]
    assert args_of("-x", quick=True) == {"sqlite": ("--short", "--quick", "-x")}
    first, second = legs.planned([], quick=True, at_once=True)
    assert (first.name, second.name) == ("sqlite-1", "sqlite-2")
    assert first.args == second.args
    assert first.args[0].startswith("--share=")
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere/else")
    assert list(args_of(at_once=True)) == ["sqlite", "postgres"]


class Item:
    """What is asked of a test of pytest."""

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
    # The first of a module, what may depend on the database, and what is marked.
    Item("tests/test_queue.py", fixtures=["db"], line=5),
    Item("tests/store/test_listener.py", marks=["skipif"]),
    Item("tests/store/test_choice.py", names=["connection"]),
    Item("tests/web/test_a.py", fixtures=["db"], marks=["each_database"], line=20),
]


def test_each_test_is_run_on_one_database_or_on_both(monkeypatch):
    others = [UNIT, PAGE, PURE_PAGE, LONG, BESIDE_MARKED, SLOW, PAGE_FIRST]
    for kind, given, left, why in (
        ("sqlite", {}, [], ""),
        (
            "sqlite",
            {"beside": "postgres"},
            [BY_MARK, PAUSE_ON, PAUSE_FIRST],
            "left to the run on postgres",
        ),
        ("postgres", {"beside": "sqlite"}, others, "left to the run on sqlite"),
        ("sqlite", {"short": True}, [LONG], "left to a run with --all, as they take long"),
        (
            "sqlite",
            {"quick": True},
            [DAEMON, SLOW],
            "left out, as they are slow or start processes",
        ),
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


def test_a_test_of_a_quick_run_that_starts_a_process_is_skipped():
    watched = NoProcesses().pytest_runtest_call(UNIT)
    next(watched)
    with pytest.raises(pytest.skip.Exception):
        sys.audit("subprocess.Popen", "true", [], None, None)
    watched.close()
    sys.audit("subprocess.Popen", "true", [], None, None)


@pytest.mark.parametrize(("scope", "units"), [("function", 2), ("module", 1), ("package", 1)])
def test_what_is_shared_is_taken_once(tmp_path, scope, units):
    """Tests that need a fixture of their module are all taken by one process."""
    items = [Item(PAGES, name, scope=scope) for name in ("test_a", "test_b")]
    one, other = Sharing(tmp_path / "taken"), Sharing(tmp_path / "taken")
    assert one._takes(items[0])
    assert not other._takes(items[0])
    assert other._takes(items[1]) == (units == 2)
    assert one._takes(items[1]) == (units == 1)


def test_slow_tests_and_those_with_a_shared_fixture_come_first(tmp_path):
    shares = Item(PAGES, scope="module")
    items = [UNIT, SLOW, PAGE, shares]
    assert sorted(items, key=Sharing(tmp_path)._is_late) == [SLOW, shares, UNIT, PAGE]


def some(passed=0, failed=0, skipped=0):
    """Return so many Results."""
    counts = {"passed": passed, "failed": failed, "skipped": skipped}
    return [
        Result(id=f"tests/test_some.py::test_{outcome}[{n}]", outcome=outcome, why="because\nso")
        for outcome, count in counts.items()
        for n in range(count)
    ]


def test_the_last_lines_and_the_status(capsys):
    """Who reads only the last lines of a log finds what failed, with its reason."""
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
    # One that broke off has failed, even if each test of which it knows has passed.
    for status in (1, 2, 3, -9):
        assert of_leg(some(passed=5), status).counts() == (5, 1, 0)


@pytest.mark.parametrize(("count", "status"), [(MOST_UNSTEADY, 0), (MOST_UNSTEADY + 1, 1)])
def test_what_passes_at_a_second_look_is_unsteady_and_many_fail_a_run(capsys, count, status):
    first = Outcome(some(passed=2, failed=count))
    seen = first.looked_again([Result(id=each.id, outcome="passed") for each in first.failures])
    assert (len(seen.unsteady), seen.failures) == (count, [])
    assert outcomes.report([("SQLite", seen)]) == status
    failed = count if status else 0
    lines = capsys.readouterr().out.splitlines()
    assert f"SQLite: UNSTEADY {first.failures[0].id}: because" in lines
    assert lines[-1] == f"{2 + count - failed} passed, {failed} failed"


def test_a_test_that_ended_its_process_has_failed(tmp_path):
    path = tmp_path / "results"
    ended = {"id": "a", "outcome": "passed"}
    path.write_text("\n".join(map(json.dumps, [{"begun": "a"}, ended, {"begun": "b"}])))
    first, second = results.read(path)
    assert (first.outcome, second.id, second.outcome) == ("passed", "b", "failed")
    assert "process ended" in second.why
    assert results.read(tmp_path / "none") == []


def run(tmp_path, chosen, *options):
    """Return the exit status and the lines of a run of tests of :mod:`tests.unsteady`."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("ATP_TEST_")}
    own = own | {"ATP_TEST_UNSTEADY": str(tmp_path / "seen")}
    own.pop("DATABASE_URL", None)
    command = [sys.executable, "-m", "tests.run", "--only", "sqlite", "tests/unsteady.py", *options]
    ended = subprocess.run(
        [*command, "-k", chosen], cwd=environment.ROOT, env=own, capture_output=True, text=True
    )
    return ended.returncode, ended.stdout.splitlines()


def test_what_fails_the_first_time_only_is_named_and_what_fails_each_time_fails_the_run(tmp_path):
    status, lines = run(tmp_path, "passes or once or always")
    assert (status, lines[-1]) == (1, "2 passed, 1 failed")
    assert "SQLite: FAILED tests/unsteady.py::test_it_fails_always" in lines
    [named] = [line for line in lines if "SQLite: UNSTEADY" in line]
    assert named.startswith("SQLite: UNSTEADY tests/unsteady.py::test_it_fails_once: ")
    assert "the first time" in named


@pytest.mark.long
def test_each_test_begins_at_a_moment(tmp_path):
    status, lines = run(tmp_path, "year", "--at=2031-12-31T23:59:59.5")
    assert (status, lines[-1]) == (0, "1 passed, 0 failed")


def test_a_run_that_takes_long_says_where_everything_stands(capfd):
    """The stacks of its processes, also of one that does not answer."""
    code = "import time\ndef stands_still():\n    time.sleep(600)\nstands_still()"

    def is_told():
        stuck.tell()
        return "stands_still" in capfd.readouterr().out

    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            wait_for(is_told, what="the stack of its process")
        finally:
            process.kill()
