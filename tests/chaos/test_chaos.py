"""Short runs of the chaos suite, on the kind of database that these tests are on.

A usual run has the first one on PostgreSQL; a deeper one has all of them, on both.
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


@pytest.mark.timeout(WITHIN + 40)
def test_every_promise_is_kept_under_fire():
    """Daemons and their database are hit, each way once (G1 to G6, G10, G11)."""
    run("--short")


@pytest.mark.long
@pytest.mark.timeout(WITHIN + 40)
@pytest.mark.parametrize("what", ["schedules", "steps=15", "tailers=15", "graphs", "hooks"])
def test_a_scenario_keeps_its_promise_under_fire(what):
    """Slots are decided once (G16), steps are kept and graphs go on (G17), sources are read (G18).

    Each end has its hooks, once, and a receiver that was away gets every webhook (G1, G6).
    """
    if what == "schedules" and shutil.which("gcc") is None:
        pytest.skip("the clocks are shifted by a C library")
    run(f"--{what}", "--minutes=0.2")


def run(*options):
    """Run the suite with these options; fail with what it has told if a promise was broken."""
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
    """Return what was told, with each broken promise and the story of a breach before all."""
    lines = told.splitlines()
    at = [number for number, line in enumerate(lines) if line.startswith("BROKEN")]
    return "\n".join([*(line for number in at for line in lines[number : number + STORY]), told])
