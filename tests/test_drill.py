"""The incident drill as a program: ``python -m tests.drill --json``."""

import json
import os
import subprocess
import sys

import pytest
import requests

from . import environment

DRILL = ("--json", "--port=0", "--rows=500", "--incident=9")
# Another drill, with its own server and files, is not to take those of this test run.
OF_RUN = ("DATABASE_URL", "ATP_TEST_DIR")


@pytest.fixture
def drill():
    """A drill with one incident."""
    own = {name: value for name, value in os.environ.items() if name not in OF_RUN}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.drill", *DRILL],
        cwd=environment.ROOT,
        env=own,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        # So that it ends what it has started.
        process.terminate()


def next_line(output):
    """Return the next JSON line of a drill; it fails if the drill has ended."""
    line = output.readline()
    assert line, "the drill has ended"
    return json.loads(line)


@pytest.mark.long
def test_drill_begins_an_incident_that_the_pages_show(drill):
    """A forgotten hold: the overview says who holds what, and why."""
    begun = next_line(drill.stdout)
    assert next_line(drill.stdout)["incident"] == 9
    with requests.Session() as session:
        login = session.get(begun["address"]).url
        form = {"username": begun["user"], "password": begun["password"]}
        page = session.post(login, form | {"csrfmiddlewaretoken": session.cookies["csrftoken"]})
    assert page.status_code == 200
    assert "until the new mail server runs" in page.text
    drill.stdin.write("next\n")
    drill.stdin.flush()
    assert next_line(drill.stdout)["mended"] is False
    assert drill.wait() == 0
