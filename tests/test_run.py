"""Tests of :mod:`tests.run`: what it selects and how it counts."""

import pytest

from .run import (
    WORKERS,
    Leg,
    Outcome,
    _beside,
    _legs,
    _needs_browser,
    _outcome,
    _report,
    _together,
    _workers,
)

REPORT = (
    '<testsuites><testsuite tests="{tests}" failures="{failures}" errors="{errors}" '
    'skipped="{skipped}"/></testsuites>'
)


@pytest.fixture
def report(tmp_path):
    """Return a function that writes what pytest would."""

    def write(tests=0, failures=0, errors=0, skipped=0):
        path = tmp_path / "report.xml"
        counts = {"tests": tests, "failures": failures, "errors": errors, "skipped": skipped}
        path.write_text(REPORT.format(**counts))
        return path

    return write


def test_it_counts(report):
    found = _outcome(report(tests=10, failures=1, errors=1, skipped=3), 1)
    assert (found.passed, found.failed, found.skipped) == (5, 2, 3)
    assert str(found) == "5 passed, 2 failed, 3 skipped"


FAILED = """<testsuites><testsuite tests="2" failures="1" errors="1" skipped="0">
<testcase classname="tests.test_some" name="test_of_it[1]">
<failure message="AssertionError: no&#10;assert 1 == 2">def test_of_it():
&gt;       assert 1 == 2
E       assert 1 == 2

tests/test_some.py:7: AssertionError</failure></testcase>
<testcase classname="" name="tests.test_other"><error message="collection failure">ImportError
</error></testcase></testsuite></testsuites>"""


def test_what_failed_is_said_again_at_the_end_with_its_reason(tmp_path, capsys):
    """Who reads only the last lines of a log finds the test and where it failed."""
    path = tmp_path / "report.xml"
    path.write_text(FAILED)
    found = _outcome(path, 1)
    assert _report([Leg("sqlite", "SQLite", ())], [found]) == 1
    *told, first, second, _, last = capsys.readouterr().out.splitlines()
    assert "SQLite: FAILED tests.test_some::test_of_it[1]" in told
    assert "    AssertionError: no" in told
    assert "    tests/test_some.py:7: AssertionError" in told
    assert [first, second] == [
        "SQLite: FAILED tests.test_some::test_of_it[1]: AssertionError: no",
        "SQLite: FAILED tests.test_other: collection failure",
    ]
    assert last == "0 passed, 2 failed"


@pytest.mark.parametrize("status", [1, 2, 3, -9])
def test_a_run_that_broke_off_has_failed(report, tmp_path, status):
    assert _outcome(report(tests=5), status).failed == 1
    assert _outcome(tmp_path / "none.xml", status).failed == 1


@pytest.mark.parametrize(
    ("outcomes", "status", "last"),
    [
        ([Outcome(passed=2), Outcome(passed=3)], 0, "5 passed, 0 failed"),
        ([Outcome(passed=2), Outcome(passed=3, skipped=1)], 0, "5 passed, 0 failed, 1 skipped"),
        ([Outcome(passed=2), Outcome(failed=1)], 1, "2 passed, 1 failed"),
        ([Outcome(), Outcome()], 1, "0 passed, 0 failed"),
        ([Outcome(skipped=2), Outcome()], 1, "0 passed, 0 failed, 2 skipped"),
    ],
)
def test_the_last_line_and_the_status(capsys, outcomes, status, last):
    assert _report(_legs(None, ["tests/test_run.py"]), outcomes) == status
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_the_oldest_postgresql_runs_the_stores_contract_only(monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    kinds = {leg.kind: leg.args for leg in _legs(None, ["-x"])}
    assert kinds == {
        "sqlite": ("-x",),
        "postgres": ("-x",),
        "postgres16": ("-x", "tests/store"),
    }
    assert [leg.kind for leg in _legs(None, ["tests/test_run.py"])] == ["sqlite", "postgres"]
    assert _legs(None, ["tests/store/test_claim.py", "-x"])[2].args == (
        "-x",
        "tests/store/test_claim.py",
    )
    ignoring = ["--ignore", "tests/store/test_claim.py"]
    assert _legs(None, ignoring)[2].args == (*ignoring, "tests/store")
    assert [leg.kind for leg in _legs(["postgres16"], [])] == ["postgres16"]


def test_the_daemons_tests_are_run_beside_the_others(monkeypatch):
    """Each is run once on each database, and what is chosen is not taken apart."""
    monkeypatch.delenv("DATABASE_URL", raising=False)
    legs = _legs(None, ["-x"], apart=True)
    assert [(leg.name, leg.args) for leg in legs] == [
        ("sqlite", ("-x", "--ignore", "tests/daemon")),
        ("sqlite-daemon", ("-x", "tests/daemon")),
        ("postgres", ("-x", "--ignore", "tests/daemon")),
        ("postgres-daemon", ("-x", "tests/daemon")),
        ("postgres16", ("-x", "tests/store")),
    ]
    chosen = ["tests/daemon/test_worker.py"]
    assert [leg.name for leg in _legs(None, chosen, apart=True)] == ["sqlite", "postgres"]
    assert [leg.name for leg in _legs(["sqlite"], [], apart=True)] == ["sqlite", "sqlite-daemon"]
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere/else")
    assert [leg.name for leg in _legs(None, [], apart=True)] == ["sqlite", "postgres"]


def test_each_database_leaves_to_the_other_what_need_not_be_shown_twice(monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert [(leg.kind, leg.args) for leg in _beside(_legs(None, []))] == [
        ("sqlite", ("--beside=postgres",)),
        ("postgres", ("--beside=sqlite",)),
        ("postgres16", ("--beside=sqlite", "tests/store")),
    ]
    alone = _legs(["sqlite"], [])
    assert _beside(alone) == alone


def test_a_quick_run_starts_no_server_and_is_not_taken_apart(monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    [leg] = _legs(None, ["-x"], apart=True, quick=True)
    assert (leg.name, leg.args) == ("sqlite", ("--quick", "-x"))
    assert [leg.name for leg in _workers(leg, quick=True)] == ["sqlite-1", "sqlite-2"]
    [leg] = _legs(["postgres"], [], apart=True, quick=True)
    assert leg.name == "postgres"


def test_processes_that_share_a_leg_are_counted_as_one(monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setitem(WORKERS, "postgres-daemon", 2)
    monkeypatch.setitem(WORKERS, "sqlite", 1)
    sqlite, *_, daemon, _ = _legs(None, [], apart=True)
    first, second = _workers(daemon)
    assert [first.name, second.name] == ["postgres-daemon-1", "postgres-daemon-2"]
    assert first.args == second.args
    assert first.args[0].startswith("--share=")
    assert _workers(sqlite) == [sqlite]
    outcomes = [Outcome(passed=5), Outcome(2, 1, failures=["one"]), Outcome(3, 1, 1)]
    legs, together = _together([sqlite, first, second], outcomes)
    assert legs == [sqlite, first]
    assert together == [Outcome(passed=5), Outcome(5, 2, 1, failures=["one"])]


def test_a_database_that_is_named_takes_the_place_of_both(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere/else")
    assert [leg.kind for leg in _legs(None, [])] == ["sqlite", "postgres"]


@pytest.mark.parametrize(
    ("args", "needed"),
    [
        ((), True),
        (("-x", "-k", "pages"), True),
        (("tests",), True),
        (("tests/browser/test_chromium.py::test_root_installs_one",), True),
        (("tests/test_run.py", "tests/browser"), True),
        (("tests/test_run.py", "--ignore", "tests/browser"), False),
        (("tests/store", "tests/daemon"), False),
    ],
)
def test_a_browser_is_installed_only_for_tests_that_need_one(args, needed):
    assert _needs_browser(Leg("sqlite", "SQLite", args)) is needed
