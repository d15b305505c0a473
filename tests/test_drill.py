"""The incident drill as a program: ``python -m tests.drill --json``."""

import http.cookiejar
import json
import os
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import IO, Any

import pytest

from . import environment

DRILL = ("--json", "--port=0", "--rows=500", "--incident=9")
# Another drill, with its own server and files, is not to take those of this test run.
OF_RUN = ("DATABASE_URL", "ATP_TEST_DIR")


@pytest.fixture
def drill() -> Iterator[subprocess.Popen[str]]:
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


def next_line(output: IO[str] | None) -> dict[str, Any]:
    """Return the next JSON line of a drill; it fails if the drill has ended."""
    assert output is not None
    line = output.readline()
    assert line, "the drill has ended"
    return json.loads(line)


@pytest.mark.long
def test_drill_begins_an_incident_that_the_pages_show(drill: subprocess.Popen[str]) -> None:
    """A forgotten hold: the overview says who holds what, and why."""
    assert drill.stdin is not None
    begun = next_line(drill.stdout)
    assert next_line(drill.stdout)["incident"] == 9
    jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    opener = urllib.request.build_opener(jar)
    login = opener.open(f"{begun['address']}").url
    [token] = [cookie.value for cookie in jar.cookiejar if cookie.name == "csrftoken"]
    form = {"username": begun["user"], "password": begun["password"]}
    data = urllib.parse.urlencode(form | {"csrfmiddlewaretoken": token}).encode()
    with opener.open(login, data) as answer:
        assert answer.status == 200
        page = answer.read().decode()
    assert "until the new mail server runs" in page
    drill.stdin.write("next\n")
    drill.stdin.flush()
    assert next_line(drill.stdout)["mended"] is False
    assert drill.wait() == 0
