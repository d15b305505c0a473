"""Tests of :mod:`tests.run` as a whole: a second look at what failed."""

import os
import subprocess
import sys

from . import environment, stuck
from .helpers import wait_for


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


def test_what_fails_the_first_time_only_is_named_and_fails_no_run(tmp_path):
    status, lines = run(tmp_path, "passes or once")
    assert (status, lines[-1]) == (0, "2 passed, 0 failed")
    [named] = [line for line in lines if "SQLite: UNSTEADY" in line]
    assert named.startswith("SQLite: UNSTEADY tests/unsteady.py::test_it_fails_once: ")
    assert "the first time" in named


def test_what_fails_each_time_fails_the_run(tmp_path):
    status, lines = run(tmp_path, "passes or always")
    assert (status, lines[-1]) == (1, "1 passed, 1 failed")
    assert "SQLite: FAILED tests/unsteady.py::test_it_fails_always" in lines


def test_each_test_begins_at_a_moment(tmp_path):
    status, lines = run(tmp_path, "year", "--at=2031-12-31T23:59:59.5")
    assert (status, lines[-1]) == (0, "1 passed, 0 failed")


def test_a_run_that_takes_long_says_where_everything_stands(capfd):
    """The stacks of its processes, also of one that does not answer."""
    code = "import time\ndef stands_still():\n    time.sleep(600)\nstands_still()"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            wait_for(lambda: _told(capfd, "stands_still"), what="the stack of its process")
        finally:
            process.kill()


def _told(capfd, name):
    stuck.tell()
    return name in capfd.readouterr().out
