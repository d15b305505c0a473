"""Tests of :mod:`tests.legs`: which tests a run takes, on which database."""

import pytest

from . import legs
from .legs import Leg


@pytest.fixture(autouse=True)
def _no_named_database(monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)


def args_of(*args, **options):
    return {leg.name: leg.args for leg in legs.planned(args, **options)}


def test_only_a_run_of_all_has_the_oldest_postgresql_and_only_the_stores_contract_on_it():
    assert args_of("-x", everything=True) == {
        "sqlite": ("-x",),
        "postgres": ("-x",),
        "postgres16": ("-x", "tests/store"),
    }
    chosen = "tests/store/test_claim.py"
    assert args_of(chosen, "-x", everything=True)["postgres16"] == ("-x", chosen)
    ignoring = ("--ignore", chosen)
    assert args_of(*ignoring, everything=True)["postgres16"] == (*ignoring, "tests/store")
    assert list(args_of("tests/test_legs.py", everything=True)) == ["sqlite", "postgres"]
    assert list(args_of()) == ["sqlite", "postgres"]
    assert list(args_of(only=["postgres16"])) == ["postgres16"]


def test_the_daemons_tests_are_run_beside_the_others(monkeypatch):
    """Each is run once on each database, and what is chosen is not taken apart."""
    monkeypatch.setattr(legs, "WORKERS", dict.fromkeys(legs.WORKERS, 1))
    assert args_of("-x", everything=True, at_once=True) == {
        "sqlite": ("-x", "--ignore", "tests/daemon"),
        "sqlite-daemon": ("-x", "tests/daemon"),
        "postgres": ("-x", "--ignore", "tests/daemon"),
        "postgres-daemon": ("-x", "tests/daemon"),
        "postgres16": ("-x", "tests/store"),
    }
    assert list(args_of("tests/daemon/test_worker.py", at_once=True)) == ["sqlite", "postgres"]
    assert list(args_of(only=["sqlite"], at_once=True)) == ["sqlite", "sqlite-daemon"]
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere/else")
    assert list(args_of(at_once=True)) == ["sqlite", "postgres"]


def test_each_database_leaves_to_the_other_what_need_not_be_shown_twice():
    assert args_of() == {
        "sqlite": ("--beside=postgres", "--short"),
        "postgres": ("--beside=sqlite", "--short"),
    }
    assert args_of(only=["sqlite"]) == {"sqlite": ("--short",)}


def test_a_test_that_is_named_is_run_however_long_it_takes():
    assert args_of("tests/test_legs.py", only=["sqlite"]) == {"sqlite": ("tests/test_legs.py",)}


def test_a_quick_run_starts_no_server():
    assert list(args_of(quick=True, at_once=True)) == ["sqlite-1", "sqlite-2"]
    assert args_of("-x", quick=True) == {"sqlite": ("--short", "--quick", "-x")}
    assert list(args_of(quick=True, only=["postgres"])) == ["postgres"]


def test_processes_that_share_a_leg_have_the_same_arguments(monkeypatch):
    monkeypatch.setitem(legs.WORKERS, "sqlite", 2)
    leg = Leg("sqlite", "SQLite", ("-x",))
    first, second = legs.workers(leg)
    assert [first.name, second.name] == ["sqlite-1", "sqlite-2"]
    assert first.args == second.args
    assert first.args[0].startswith("--share=")
    monkeypatch.setitem(legs.WORKERS, "sqlite", 1)
    assert legs.workers(leg) == [leg]


def test_a_database_that_is_named_takes_the_place_of_all(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://somewhere/else")
    assert list(args_of(everything=True)) == ["sqlite", "postgres"]


@pytest.mark.parametrize(
    ("args", "needed"),
    [
        ((), True),
        (("-x", "-k", "pages"), True),
        (("tests",), True),
        (("tests/browser/test_chromium.py::test_root_installs_one",), True),
        (("tests/test_legs.py", "tests/browser"), True),
        (("tests/test_legs.py", "--ignore", "tests/browser"), False),
        (("tests/store", "tests/daemon"), False),
    ],
)
def test_a_browser_is_installed_only_for_tests_that_need_one(args, needed):
    assert Leg("sqlite", "SQLite", args).needs_browser is needed
