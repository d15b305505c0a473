"""Short runs of the chaos suite on the database of these tests.

A usual test run includes the first test on PostgreSQL; a deeper run includes all tests on both
databases.
"""

import os
import shutil
import subprocess
import sys

import pytest

from tests import environment

KIND = "sqlite" if environment.kind() == "sqlite" else "postgres"
# It takes some 25 s where nothing else is at work.
WITHIN = 200
# Lines of the first breach of a promise that are told before all else.
STORY = 25


@pytest.mark.slow
@pytest.mark.timeout(WITHIN + 40)
def test_every_promise_is_kept_while_daemons_and_database_are_hit():
    """Each kind of fault hits the daemons or their database once (G1 to G6, G10, G11)."""
    run("--short")


@pytest.mark.long
@pytest.mark.timeout(WITHIN + 40)
@pytest.mark.parametrize("what", ["schedules", "steps=15", "tailers=15", "graphs", "hooks"])
def test_each_scenario_keeps_its_promise_while_processes_are_killed(what):
    """Scenarios cover schedules (G16), steps and graphs (G17), tailers (G18), hooks (G1, G6).

    A scenario of hooks checks that each end has its hooks exactly once, and that a receiver gets
    every webhook after an outage.
    """
    if what == "schedules" and shutil.which("gcc") is None:
        pytest.skip("the clocks are shifted by a C library")
    run(f"--{what}", "--minutes=0.2")


def run(*options):
    """Run the suite with these options; if a promise was broken, fail with the suite's output."""
    # On PostgreSQL it has a server of its own, which it kills.
    own = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", "--seed=1", f"--database={KIND}", *options],
        cwd=environment.ROOT,
        env=own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            told, _ = process.communicate(timeout=WITHIN)
        except subprocess.TimeoutExpired:
            process.terminate()  # so that it ends what it has started
            told, _ = process.communicate()
    assert process.returncode == 0, _broken_first(told)


def _broken_first(told):
    """Return the output, preceded by each broken promise and the story of one breach."""
    lines = told.splitlines()
    at = [number for number, line in enumerate(lines) if line.startswith("BROKEN")]
    return "\n".join([*(line for number in at for line in lines[number : number + STORY]), told])
