"""A web server of others, and daemons beside it, which may be killed and started again."""

import os
import signal
import subprocess
from contextlib import suppress

import requests

from tests.helpers import wait_for


class Site:
    """The processes of a project in a folder, of the environment that has this Python."""

    def __init__(self, python, folder, environment):
        self.python, self.folder, self.environment = python, folder, environment
        self.processes = []

    def run(self, script, *arguments, check=True, **environment):
        """Run a script of the environment to its end."""
        ended = subprocess.run(
            [self.python.with_name(script), *arguments],
            env=self.environment | environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert not check or ended.returncode == 0, ended.stderr
        return ended

    def start(self, script, *arguments):
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                [self.python.with_name(script), *arguments],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def start_server(self, *command, at):
        """Start a server; return when it answers at an address."""

        def answers():
            with suppress(requests.ConnectionError):
                return requests.get(at, timeout=30).ok

        process = self.start(*command)
        wait_for(answers)
        return process

    def kill(self, process):
        """Kill a process with its group."""
        self.processes.remove(process)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
