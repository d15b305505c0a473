"""Runs the examples of docs/api.md and compares their output with the page.

Names and times differ in each run. A uuid on the page stands for the uuid that the run returned
in its place, also in later commands.
"""

import json
import re
import shutil
import subprocess
import time
from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from atp import Graph
from atp.store import get_store
from atp.store.values import CursorMove, Settled
from demo_project.tasks import statistics, survey

from .. import environment
from ..helpers import DEADLINE

PAGE = (environment.ROOT / "docs" / "api.md").read_text()
SERVER = "http://127.0.0.1:8000"
PASSWORD = "of the tests only"
REST = "…"

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# What differs each time, and how it looks.
VOLATILE = (
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00",
    r"page=[A-Za-z0-9_-]+",
    r"\b[\w.-]+:\d+\b(?=$| worker)",  # a daemon's host and pid
    r"worker \d",
)
VOLATILE_KEYS = {"pid", "progress", "host", "oldest_due", "next_page"}
# A daemon may have been quick; what else it has written by then is not compared.
LATER = {
    "ACCEPTED": {"SCHEDULED", "RUNNING", "FINISHED", "FAILED"},
    "running": {"quiet"},
}
WRITTEN_LATER = {"reason", "restarts", "actions"}


def examples():
    """Return pairs of a command and the output that the page shows for it."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            while lines and lines[0].startswith("> "):
                command += "\n" + lines.pop(0).removeprefix("> ")
            found.append((command, "\n".join(lines)))
    return found


def is_reading(command):
    return " -X " not in command and " --json " not in command


class Session:
    """Runs commands one after the other, as in one terminal."""

    def __init__(self, folder, server):
        self._folder, self._server = folder, server
        self._assignments = []
        self._uuids = {}

    def run(self, command):
        """Return the output of a command."""
        for said, real in self._uuids.items():
            command = command.replace(said, real)
        command = command.replace(SERVER, self._server)
        if re.match(r"[A-Z]+=", command):
            self._assignments.append(command)
            return ""
        script = "\n".join([*self._assignments, command])
        done = subprocess.run(
            ["sh", "-c", script],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE + 60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        return done.stdout

    def check(self, command, said):
        """Assert that a command prints the output that the page shows.

        A command that only reads is repeated until its output matches, because a daemon might be
        slow.
        """
        deadline = time.monotonic() + (DEADLINE if is_reading(command) else 0)
        while True:
            printed, known = self.run(command), dict(self._uuids)
            try:
                if said:
                    self.compare(json.loads(said), json.loads(printed), command)
                else:
                    assert printed == ""
                return
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                self._uuids = known

    def compare(self, said, real, at=""):
        """Assert that a JSON value matches the one on the page."""
        if isinstance(said, dict):
            assert isinstance(real, dict), at
            if REST not in said:
                assert said.keys() == real.keys(), at
            is_later = real.get("state") in LATER.get(said.get("state"), ())
            written = WRITTEN_LATER if is_later else set()
            for key in said.keys() - {REST, *VOLATILE_KEYS, *written}:
                self.compare(said[key], real[key], f"{at}.{key}")
        elif isinstance(said, list):
            assert isinstance(real, list), at
            is_open = said[-1:] == [REST]
            wanted = said[:-1] if is_open else said
            assert len(real) >= len(wanted) if is_open else len(real) == len(wanted), at
            for number, (each, other) in enumerate(zip(wanted, real, strict=False)):
                self.compare(each, other, f"{at}[{number}]")
        elif isinstance(said, str):
            assert isinstance(real, str), at
            if real not in LATER.get(said, ()):
                self._compare_text(said, real, at)
        else:
            assert said == real, at

    def _compare_text(self, said, real, at):
        assert self._blurred(said) == self._blurred(real), at
        for name, other in zip(re.findall(UUID, said), re.findall(UUID, real), strict=True):
            assert self._uuids.setdefault(name, other) == other, at

    def _blurred(self, text):
        text = text.replace(self._server, SERVER)
        for pattern in (UUID, *VOLATILE):
            text = re.sub(pattern, "~", text)
        return text


@pytest.fixture
def session(live_server, tmp_path, media, atpd):
    """A shell next to the demo, which has a server, a daemon, a login and some past tasks."""
    User.objects.create_superuser("demo", password=PASSWORD)
    (tmp_path / ".demo").mkdir()
    (tmp_path / ".demo" / "password").write_text(PASSWORD)
    own = {"BACKOFF": 5.0, "BACKOFF_MAX": 3600.0}
    atpd("--type", "terrain.*", "--type", "demo.*", settings=own).ready()
    statistics.enqueue(bins=3).wait(timeout=DEADLINE)
    with Graph("relief", by="the demo") as graph:  # it waits: its numbers stay
        first = graph.add(survey.using(run_after=timedelta(hours=1)))
        graph.map(survey, [{}] * 9, after=first)
    tailers, cursor = get_store().tailers, "5242880-1795814036146000000"
    tailers.begin("dem.scenes", source="/srv/scenes/*.tif")
    tailers.advance(
        "dem.scenes",
        [CursorMove(shard="S2A.tif", before=None, after=cursor)],
        Settled(records=412, enqueued=397, rejected=2),
    )
    tailers.look("dem.scenes", source="/srv/scenes/*.tif", behind=0)
    return Session(tmp_path, live_server.url)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
def test_each_example_on_the_api_page_prints_the_output_shown_there(session):
    assert len(examples()) > 20
    for command, said in examples():
        session.check(command, said)
