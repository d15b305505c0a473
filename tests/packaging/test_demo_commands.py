"""The README's commands for the demo, given while a daemon of the demo runs."""

import os
import re
import subprocess
import sys

import pytest

from demo_project.show.children import Child
from tests.environment import ROOT
from tests.helpers import DEADLINE, wait_for

from .readme import blocks

pytestmark = [pytest.mark.long, pytest.mark.processes, pytest.mark.timeout(900)]
PYTHON = ".venv/bin/python"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Run a command of the README in the demo, whose daemon runs meanwhile."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEMO_DIR", str(folder))
        patch.setenv("DATABASE_URL", "")
        patch.delenv("DJANGO_SETTINGS_MODULE", raising=False)

        def run(*command):
            done = subprocess.run(
                command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
            return done.stdout

        run(sys.executable, "manage.py", "migrate")
        log = folder / "log"
        daemon = Child("daemon", ["atpd", "-p", "2"], manage=ROOT / "manage.py", log=log)
        # Without a daemon, status says that something is wrong.
        wait_for(lambda: "joined the queue" in log.read_text(), what="a daemon")
        yield run
        daemon.stop(patience=DEADLINE)


def section(language):
    page = (ROOT / "README.md").read_text()
    return [block.text for block in blocks(page, "The demo") if block.language == language]


def test_the_shells_commands(demo):
    [*_, text] = section("sh")
    said = {}
    for line in text.splitlines():
        command = line.partition("  #")[0].strip().replace(PYTHON, sys.executable)
        if "UUID" in command:
            # The newest may be one of the schedule, which has not run yet.
            [uuid, *_] = re.findall(r"([0-9a-f-]{36})  terrain\.hillshade", said["list"])
            command = command.replace("UUID", uuid)
        word = re.search(r"manage\.py atp (\w+)", command)[1]
        said[word] = demo("bash", "-c", command)
    assert "terrain.hillshade" in said["list"]
    assert "FINISHED" in said["enqueue"]
    assert "finish" in said["show"]


def test_the_same_in_python(demo):
    [text] = section("python")
    facts = "print(sorted(instance.response.value), picture.response.content_type)"
    said = demo(sys.executable, "manage.py", "shell", "-c", f"{text}\n{facts}")
    assert "'columns'" in said
    assert said.splitlines()[-1].endswith("image/png")
