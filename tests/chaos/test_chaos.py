"""A short run of the chaos suite, on the kind of database that these tests are on."""

import os
import subprocess
import sys

import pytest

from tests import environment

KIND = "sqlite" if environment.kind() == "sqlite" else "postgres"
# It takes some 25 s where nothing else is at work.
WITHIN = 200


@pytest.mark.timeout(WITHIN + 40)
def test_every_promise_is_kept_under_fire():
    """Daemons and their database are hit, each way once (G1 to G6, G10, G11)."""
    # On PostgreSQL it has a server of its own, which it kills.
    own = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", "--short", "--seed=1", f"--database={KIND}"],
        cwd=environment.ROOT,
        env=own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        try:
            told, _ = run.communicate(timeout=WITHIN)
        except subprocess.TimeoutExpired:
            run.terminate()  # so that it ends what it has started
            told, _ = run.communicate()
    assert run.returncode == 0, told
