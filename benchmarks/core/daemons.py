"""Real daemons: ``manage.py atpd`` as it is run by anybody, in processes of its own."""

import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .processes import Process

ROOT = Path(__file__).resolve().parents[2]
START_WITHIN, STOP_WITHIN = 60, 60
LOOK_EVERY = 0.05


class DaemonError(Exception):
    """A daemon does not do what it should; the message says what, and what it logged."""


class Atpd:
    """One daemon with its processes. ``types`` are patterns of what it serves."""

    def __init__(self, log, *, processes, types, executor=""):
        self._log = log
        # Whether it was ended on purpose.
        self._is_ended = False
        patterns = [f"--type={pattern}" for pattern in types]
        places = f"--executor={executor}" if executor else f"--processes={processes}"
        command = [sys.executable, "-m", "django", "atpd", places, *patterns]
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )

    @property
    def pid(self):
        return self._process.pid

    def check(self):
        """Raise DaemonError if it has ended, and nobody wanted it to."""
        if not self._is_ended and self._process.poll() is not None:
            raise DaemonError(f"A daemon ended with status {self._process.poll()}:\n{self.log}")

    @property
    def log(self):
        """The end of what it has logged."""
        return self._log.read_text(errors="replace")[-3000:]

    def stop(self):
        """Stop it in order, if nobody has. Raises DaemonError if it does not end well."""
        if self._is_ended:
            return
        self._is_ended = True
        self._process.terminate()
        try:
            status = self._process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise DaemonError(f"A daemon could not be stopped:\n{self.log}") from None
        if status:
            raise DaemonError(f"A daemon ended with status {status}:\n{self.log}")

    def kill(self):
        """End it however it is, if it has not ended."""
        self._is_ended = True
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Fleet:
    """The daemons that run together."""

    def __init__(self, daemons):
        self._daemons = daemons

    @property
    def pids(self):
        return [daemon.pid for daemon in self._daemons]

    @property
    def processor_time(self):
        """The seconds that a processor has worked for all their processes."""
        processes = [process for pid in self.pids for process in Process(pid).family()]
        return sum(process.processor_time for process in processes)

    @property
    def log(self):
        """The end of what each has logged."""
        return "\n".join(daemon.log for daemon in self._daemons)

    def kill(self, number):
        """Kill one with SIGKILL: no word to anybody."""
        self._daemons[number].kill()

    def stop(self, number):
        """Stop one in order. Raises DaemonError if it does not end well."""
        self._daemons[number].stop()

    def check(self):
        """Raise DaemonError if one has ended that was not to."""
        for daemon in self._daemons:
            daemon.check()


@contextmanager
def daemons(directory, *, count=1, processes=2, types=(), executor=""):
    """Run daemons until the end of the block; give the :class:`Fleet` when all are ready.

    Ready is a daemon that has joined the queue and has all its workers. Raises
    DaemonError.
    """
    with ExitStack() as stack:
        started = []
        for number in range(count):
            log = directory / f"atpd-{number}.log"
            started.append(Atpd(log, processes=processes, types=types, executor=executor))
            stack.callback(started[-1].kill)
        fleet = Fleet(started)
        # An executor has places instead of workers; tasks wait for them.
        _wait_until_ready(fleet, 0 if executor else processes)
        yield fleet
        for daemon in started:
            daemon.stop()


def _wait_until_ready(fleet, processes):
    from atp.models import Daemon

    deadline = time.monotonic() + START_WITHIN
    while True:
        fleet.check()
        joined = set(Daemon.objects.values_list("pid", flat=True))
        if joined.issuperset(fleet.pids) and all(_workers(pid) == processes for pid in fleet.pids):
            return
        if time.monotonic() > deadline:
            raise DaemonError(f"After {START_WITHIN} s not all daemons are ready:\n{fleet.log}")
        time.sleep(LOOK_EVERY)


def _workers(pid):
    """Return how many workers a daemon has."""
    return sum(child.name.startswith("atpd-worker") for child in Process(pid).family())
