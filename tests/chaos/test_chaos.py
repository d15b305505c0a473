"""A short run of the chaos suite, on the kind of database that these tests are on."""

import os
import subprocess
import sys

import pytest

from tests import environment

KIND = "sqlite" if environment.kind() == "sqlite" else "postgres"


@pytest.mark.timeout(240)
def test_every_promise_is_kept_under_fire(tmp_path):
    """Daemons and their database are hit, each way once (G1 to G6, G10, G11)."""
    # On PostgreSQL it has a server of its own, which it kills.
    own = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    command = ["-m", "tests.chaos", "--short", "--seed=1", f"--database={KIND}"]
    done = subprocess.run(
        [sys.executable, *command, "--folder", environment.folder()],
        cwd=environment.ROOT,
        env=own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stdout
