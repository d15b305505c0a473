"""Runs the README's commands for the demo while a daemon of the demo runs."""

import re
import shlex

import pytest

from demo_project.show.children import Child
from tests.environment import ROOT
from tests.helpers import DEADLINE, wait_for

from .readme import blocks

pytestmark = [pytest.mark.long, pytest.mark.processes, pytest.mark.timeout(900)]
PYTHON = ".venv/bin/python"


@pytest.fixture(scope="module")
def demo(shell, tmp_path_factory):
    """A function that runs a command of the README in the demo while its daemon runs."""
    folder = tmp_path_factory.mktemp("demo")

    def run(command):
        return shell(f"export DEMO_DIR={folder}\n{command}", ROOT)

    run("python manage.py migrate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEMO_DIR", str(folder))
        patch.setenv("DATABASE_URL", "")
        patch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
        log = folder / "log"
        daemon = Child("daemon", [ROOT / "manage.py", "atpd", "-p", "2"], log=log)
        # Without a daemon, status says that something is wrong.
        wait_for(lambda: "joined the queue" in log.read_text(), what="a daemon")
        yield run
        daemon.stop(patience=DEADLINE)


def section(language):
    page = (ROOT / "README.md").read_text()
    return [block.text for block in blocks(page, "The demo") if block.language == language]


def test_the_shell_commands_of_the_readme_work(demo):
    [*_, text] = section("sh")
    said = {}
    for line in text.splitlines():
        command = line.partition("  #")[0].strip().replace(PYTHON, "python")
        if "UUID" in command:
            # The newest may be one of the schedule, which has not run yet.
            [uuid, *_] = re.findall(r"([0-9a-f-]{36})  terrain\.hillshade", said["list"])
            command = command.replace("UUID", uuid)
        word = re.search(r"manage\.py atp (\w+)", command)[1]
        said[word] = demo(command)
    assert "terrain.hillshade" in said["list"]
    assert "FINISHED" in said["enqueue"]
    assert "finish" in said["show"]


def test_the_python_commands_of_the_readme_work(demo):
    [text] = section("python")
    facts = "print(sorted(instance.response.value), picture.response.content_type)"
    code = shlex.quote(f"{text}\n{facts}")
    said = demo(f"python manage.py shell -c {code}")
    assert "'columns'" in said
    assert said.splitlines()[-1].endswith("image/png")
