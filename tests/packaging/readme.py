"""Parses the README into blocks of code and carries them out."""

import re
import subprocess
from dataclasses import dataclass
from urllib.error import URLError
from urllib.request import urlopen

from tests.conformance.fetching import free_port
from tests.environment import ROOT
from tests.helpers import DEADLINE, wait_for

# The one thing that is not as it is written.
CLONE = "/path/to/clone"
# Commands that run until they are told to stop, in a terminal of their own.
ATPD, RUNSERVER = "python manage.py atpd", "python manage.py runserver"
ACTIVATE = "if [ -f .venv/bin/activate ]; then . .venv/bin/activate; fi\n"
AT_ITS_END = ", at its end"


@dataclass(frozen=True)
class Block:
    """A block of code of a page; ``language`` is empty for the output of a command."""

    language: str
    text: str


def blocks(page, heading):
    """Return the blocks of code below this second-level heading."""
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    found = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return [Block(language, text) for language, text in found]


class Walk:
    """Carries out the README's steps from an empty folder to the first task.

    ``said`` maps each command to its output.
    """

    def __init__(self, clone, shell, folder):
        self.folder, self._clone, self._shell = folder, clone, shell
        self.blocks = blocks((ROOT / "README.md").read_text(), "From an empty folder")
        self.said = {}
        self._running = {}
        self.address = f"127.0.0.1:{free_port()}"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for process in self._running.values():
            process.terminate()
            try:
                process.wait(DEADLINE)
            finally:
                process.kill()

    def go(self):
        for block in self.blocks:
            if block.language == "sh":
                self._run(block.text.strip())
            elif block.language == "python":
                self._write(block.text)

    def _run(self, text):
        if text == ATPD:
            self._start(ATPD, "")
        elif text == RUNSERVER:
            # A port that nobody has taken.
            self._start(RUNSERVER, f" {self.address} --noreload")
            wait_for(self._answers, what="the web server")
        else:
            for command in text.splitlines():
                real = command.replace(CLONE, str(self._clone))
                self.said[command] = self._shell(ACTIVATE + real, self.folder)

    def _start(self, command, more):
        with (self.folder / f"{command.split()[-1]}.log").open("w") as log:
            self._running[command] = subprocess.Popen(
                ["bash", "-c", f"{ACTIVATE}exec {command}{more}"],
                cwd=self.folder,
                env=self._shell.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _answers(self):
        assert self._running[RUNSERVER].poll() is None, (self.folder / "runserver.log").read_text()
        try:
            return urlopen(f"http://{self.address}/atp/api/health/live", timeout=DEADLINE).status
        except URLError:
            return None

    def _write(self, text):
        first, rest = text.split("\n", 1)
        name = first.removeprefix("# ")
        path = self.folder / name.removesuffix(AT_ITS_END)
        with path.open("a" if name.endswith(AT_ITS_END) else "w") as file:
            file.write(f"\n{rest}")
