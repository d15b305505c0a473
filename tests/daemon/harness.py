"""Starting real daemons, and looking at their processes and their log."""

import json
import os
import random
import signal
import subprocess
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

from tests.helpers import DEADLINE, child_environment, manage, wait_for


class Lines:
    """A file of JSON lines that others append to; each is read once, however often one looks.

    Those that do not begin with ``beginning`` are left out.
    """

    def __init__(self, path, beginning=b""):
        self.path = Path(path)
        self._beginning = beginning
        self._read, self._at = [], 0
        self._lock = threading.Lock()

    def all(self):
        """Return the lines that there are by now: one dict a line."""
        if not self.path.exists():
            return []
        with self._lock, self.path.open("rb") as file:
            file.seek(self._at)
            more = file.read()
            whole = more[: more.rfind(b"\n") + 1]
            wanted = [line for line in whole.splitlines() if line.startswith(self._beginning)]
            self._read += [json.loads(line) for line in wanted]
            self._at += len(whole)
            return list(self._read)


class Atpd:
    """One ``manage.py atpd`` process with all its children. Its log is JSON in a file.

    With ``sink`` it has the log handlers of :mod:`tests.log_sinks`, which are told that;
    with ``own_log=False`` these take the place of its own log, and standard error is a pipe
    that nobody reads. ``warm`` is a process that it may be a copy of (see tests.daemon.warm).
    """

    def __init__(
        self,
        folder,
        *args,
        processes=2,
        settings=None,
        environment=None,
        stdin=None,
        sink=None,
        own_log=True,
        warm=None,
    ):
        self.log_path = Path(folder) / f"atpd-{os.urandom(4).hex()}.log"
        style = ("--log-format", "json", "-v", "2") if own_log else ()
        workers = () if "--executor" in args else ("-p", str(processes))
        command = manage("atpd", *style, *workers, *args)
        more = dict(environment or {})
        if sink:
            more["ATP_TEST_SINK"] = json.dumps(sink)
        if settings:
            more["ATP_TEST_SETTINGS"] = json.dumps(settings)
        own = child_environment(**more)
        with self.log_path.open("wb") as log, open(os.devnull) as nothing:
            if warm and own_log and stdin is None and warm.can_run(command, own):
                self.process = warm.start(command, env=own, stdin=nothing, stdout=log, stderr=log)
            else:
                output = log if own_log else subprocess.PIPE
                self.process = subprocess.Popen(
                    command, env=own, stdin=stdin, stdout=log, stderr=output
                )
        self._log = Lines(self.log_path, beginning=b"{")

    @property
    def pid(self):
        return self.process.pid

    def facts(self, name=None):
        """What it has logged: one dict a line, of one fact if it is named."""
        return [line for line in self._log.all() if name is None or line["fact"] == name]

    def wait_for_fact(self, name, count=1, timeout=DEADLINE):
        """Wait until a fact was logged ``count`` times; returns the last of them."""

        def look():
            assert self.process.poll() is None or self.facts(name), self.log_path.read_text()
            found = self.facts(name)
            return found if len(found) >= count else None

        try:
            return wait_for(look, timeout, what=f"{count} × {name}")[-1]
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_path.read_text()}") from None

    def ready(self, workers=None):
        """Wait until it has joined the queue and its workers are there; returns itself."""
        self.wait_for_fact("joined")
        wanted = workers or 1
        wait_for(lambda: len(self.workers()) >= wanted, what="workers")
        return self

    def _processes(self, look, *, recursive=False):
        """Return what a function says of each of its processes that is alive, itself first."""
        found = []
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self.pid)
            for process in (parent, *parent.children(recursive=recursive)):
                with suppress(psutil.NoSuchProcess):
                    found.append(look(process))
        return found

    def named(self, prefix):
        """The pids of its processes whose names begin so."""
        names = self._processes(lambda process: (process.name(), process.pid))
        return [pid for name, pid in names if name.startswith(prefix)]

    def dispatcher(self):
        """The pid of its dispatcher."""
        return wait_for(self.dispatchers, what="a dispatcher")[0]

    def dispatchers(self):
        """The pid of its dispatcher, in a list that is empty while there is none."""
        return self.named("atpd-dispatch")

    def workers(self):
        """The pids of its workers."""
        return self.named("atpd-worker")

    def loops(self):
        """The pids of its loops."""
        return self.named("atpd-loop")

    def family(self):
        """Every process of it that is alive, as (pid, start time)."""
        return self._processes(lambda each: (each.pid, each.create_time()), recursive=True)

    def kill_a_worker(self, dice=random):
        """Kill any of its workers."""

        def kill():
            for pid in dice.sample(workers := self.workers(), len(workers)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    return True
            return False

        wait_for(kill, what="a worker to be killed")

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, timeout=DEADLINE):
        """Wait for its end; returns the exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running:\n{self.log_path.read_text()}") from None

    def stop(self):
        """Stop it in order; returns the exit status."""
        self.signal()
        return self.wait()

    def destroy(self):
        """End it and whatever belongs to it, however it is."""
        family = self.family()
        for pid, _ in family:
            _kill(pid, signal.SIGCONT)
        _kill(self.pid)
        self.process.wait(DEADLINE)
        if self.process.stderr is not None:
            self.process.stderr.close()
        for pid, created in family:
            if is_alive(pid, created):
                _kill(pid)
        wait_for(lambda: not any(is_alive(*member) for member in family), what="the end")


def _kill(pid, number=signal.SIGKILL):
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def is_alive(pid, created=None):
    """Whether the process is alive: neither gone nor a zombie, nor another of the same pid.

    A zombie of which a thread is left still has its files, and their locks.
    """
    try:
        process = psutil.Process(pid)
        if created is not None and process.create_time() != created:
            return False
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


class Record(Lines):
    """What handlers themselves have written: one line for each thing that happened."""

    def __str__(self):
        return str(self.path)

    def lines(self, event=None):
        return [line for line in self.all() if event is None or line["event"] == event]

    def wait_for(self, event, count=1, timeout=DEADLINE):
        """Wait until something has happened ``count`` times; returns the lines."""
        return wait_for(
            lambda: len(self.lines(event)) >= count and self.lines(event),
            timeout,
            what=f"{count} × {event}",
        )

    def numbers(self, event):
        """How often it happened for each number."""
        return Counter(line["number"] for line in self.lines(event))


def story(instance):
    """The transitions of an Instance as ``event→STATE attempt``, oldest first."""
    rows = instance.log.transitions()
    return [f"{row.event}→{row.state} {row.attempt}" for row in rows]
