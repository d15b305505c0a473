"""The processes of a participant: clients that answer, and workers."""

import json
import os
import signal
import subprocess
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

from ..core.processes import Process
from ..core.told import Told
from .drivers.base import environment
from .failure import Failure

ROOT = Path(__file__).resolve().parents[2]
ANSWER_WITHIN = 300
STOP_WITHIN = 30
# What tells of the project and its database, and is not meant for others.
_OWN = ("DJANGO_SETTINGS_MODULE", "DATABASE_URL")


class Stage:
    """A participant on an empty store, and where its tasks tell when they were called."""

    def __init__(self, participant, python, store, directory):
        path = directory / "peer-told"
        self.participant = participant
        self.store = store
        self.told = Told(path)
        self._python = python
        self._directory = directory
        self._path = path

    def unfinished(self):
        """Return how many tasks the store has that are not done."""
        return self.store.unfinished(self.participant.unfinished)

    def unsaved(self):
        """Return how many tasks the store has that are not done, and rows that are not saved."""
        return self.unfinished() + self.store.unsaved()

    def do(self, action, *count):
        """Have a client do something that is not measured. Raises Failure."""
        with self.client(action, *count) as client:
            client.answer()

    @contextmanager
    def client(self, action, *count):
        """Run a client until the end of the block, where it has to end. Raises Failure."""
        with self.opened(action, *count) as client:
            yield client
            client.end()

    @contextmanager
    def opened(self, action, *count):
        """Run a client until the end of the block, however it is then."""
        client = _Client(self._start(action, *count), action)
        try:
            yield client
        finally:
            client.process.terminate()
            client.process.close()

    @contextmanager
    def workers(self, **options):
        """Run the workers until the end of the block; give them.

        ``options`` go over those that the participant has in the catalogue.
        """
        started = []
        try:
            for _ in range(self.participant.workers):
                started.append(self._start("work", **options))
            yield Workers(started)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.close()

    def _start(self, action, *count, **options):
        arguments = [self.participant.driver, action, *map(str, count)]
        return _Process(
            [self._python, "-m", "benchmarks.peers.drivers", *arguments],
            env=self._environment(self.participant.options | options),
            # Not where its modules lie: they would be found by the names of the peers.
            cwd=self._directory,
        )

    def _environment(self, options):
        return {
            **{name: value for name, value in os.environ.items() if name not in _OWN},
            **self.participant.variables,
            "PYTHONPATH": str(ROOT),
            **environment(store=self.store.place, options=options, told=self._path),
        }


class Workers:
    """The worker processes of a participant."""

    def __init__(self, processes):
        self._processes = processes

    def check(self):
        """Raise Failure if one has ended."""
        for process in self._processes:
            if process.has_ended:
                raise Failure(f"a worker ended with status {process.status}", process.complaints)

    @property
    def complaints(self):
        """The last that they have said, which may say why they do nothing."""
        return "\n".join(process.complaints for process in self._processes)

    def kill(self):
        """End them at once, so that they do nothing more in the store."""
        for process in self._processes:
            for one in Process(process.pid).family():
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)

    @property
    def memory(self):
        """What all have of the memory, in bytes (PSS)."""
        return sum(
            one.memory for process in self._processes for one in Process(process.pid).family()
        )


class _Client:
    def __init__(self, process, action):
        self.process = process
        self._action = action

    def answer(self):
        """Return the next that it says. Raises Failure."""
        line = self.process.read_line(ANSWER_WITHIN)
        if not line:
            raise Failure(f"{self._action} gave no answer", self.process.complaints)
        return json.loads(line)

    def start(self):
        """Let it begin what is measured."""
        self.process.write_line()

    def measured(self):
        """Let it do once what is measured; return when that began and ended. Raises Failure."""
        self.start()
        answer = self.answer()
        return answer["began"], answer["ended"]

    def end(self):
        """Tell it that nothing more comes, and wait until it has ended. Raises Failure."""
        self.process.end_lines()
        if self.process.wait(STOP_WITHIN) != 0:
            raise Failure(f"{self._action} failed", self.process.complaints)


class _Process:
    """A process and its descendants, in a session of their own; what it complains of is kept."""

    def __init__(self, command, **more):
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            **more,
        )

    @property
    def pid(self):
        return self._process.pid

    @property
    def has_ended(self):
        return self._process.poll() is not None

    @property
    def status(self):
        return self._process.returncode

    @property
    def complaints(self):
        """The end of its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-3000:]

    def read_line(self, seconds):
        """Return a line of its output; killed if that takes too long, it says nothing more."""
        late = threading.Timer(seconds, self._kill)
        late.start()
        try:
            return self._process.stdout.readline()
        finally:
            late.cancel()

    def write_line(self):
        with suppress(BrokenPipeError):
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()

    def end_lines(self):
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def terminate(self):
        """Ask it to end; once, as some are not in order any more when they are asked again."""
        if not self.has_ended:
            self._process.terminate()

    def wait(self, seconds):
        """Return its status; None if it does not end."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def close(self):
        """Wait until it has ended, with its descendants; what does not end is killed."""
        self.wait(STOP_WITHIN)
        self._kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with suppress(BrokenPipeError):
                file.close()

    def _kill(self):
        # The group is there as long as one of it is.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
