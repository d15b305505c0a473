"""Daemons of tests that start quickly: copies of a process that has imported Django.

An interpreter that starts, and imports Django, takes more of the processor than most tests
ask of a daemon. A *warm* process has done so, with no settings and nothing of ATP, and is
forked for each daemon. The copy takes over arguments, environment and files, and runs
``manage.py`` as a fresh interpreter would.
"""

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from tests.environment import ROOT

# Each can be imported before there are settings.
MODULES = (
    *("asyncio", "concurrent.futures", "email.message", "html.parser", "http.cookies"),
    *("logging.config", "multiprocessing.connection", "psutil", "sqlite3", "zoneinfo"),
    *("asgiref.sync", "sqlparse", "cronsim"),
    *("django.apps", "django.core.checks", "django.core.files.storage", "django.core.mail"),
    *("django.core.management.base", "django.core.serializers.json", "django.db.models"),
    *("django.db.backends.sqlite3.base", "django.db.migrations.loader", "django.forms"),
    *("django.http", "django.template.backends.django", "django.test.signals", "django.urls"),
    *("django.utils.autoreload", "django.utils.feedgenerator", "django.views"),
    *("django.contrib.admin", "django.contrib.staticfiles", "rest_framework", "drf_spectacular"),
    *("csv", "ctypes", "django_stubs_ext", "importlib.metadata", "multiprocessing.pool", "zipfile"),
)
DRIVERS = ("psycopg2", "psycopg")
# What only a fresh interpreter, or a fresh process, takes notice of.
OF_INTERPRETERS = ("LANG", "LC_", "LD_", "PYTHON")
LONGEST = 1 << 20


class Warm:
    """The warm process, as the one that has started it sees it. It ends with that."""

    # Seconds of the processor that copies have used which have ended.
    used = 0.0

    def __init__(self):
        self._socket, own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with own:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(own.fileno())],
                cwd=ROOT,
                pass_fds=[own.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def close(self):
        self._socket.close()
        self._process.wait()

    @staticmethod
    def can_run(command, environment):
        """Whether a command with this environment may be run by a copy of the warm process."""
        own = _of_interpreters({**os.environ, "PYTHONPATH": str(ROOT)})
        is_program = Path(command[1]).name == "manage.py"
        return is_program and _of_interpreters(environment) == own

    def start(self, command, *, env, stdin, stdout, stderr):
        """Start a command of Python as ``subprocess.Popen`` would, with these open files.

        Returns a :class:`Copy`.
        """
        status, told = os.pipe()
        asked = {"argv": command[1:], "environment": env, "folder": os.getcwd()}
        files = [*(each.fileno() for each in (stdin, stdout, stderr)), told]
        socket.send_fds(self._socket, [json.dumps(asked).encode()], files)
        pid = int(self._socket.recv(LONGEST))
        os.close(told)
        return Copy(command, pid, status)


class Copy:
    """A process that the warm one has started: what tests use of ``subprocess.Popen``."""

    stderr = None

    def __init__(self, args, pid, status):
        self.args, self.pid, self.returncode = args, pid, None
        self._status = status

    def poll(self):
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            status, used = os.read(self._status, 100).split()
            os.close(self._status)
            self.returncode = int(status)
            Warm.used += float(used)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _of_interpreters(environment):
    return {name: value for name, value in environment.items() if name.startswith(OF_INTERPRETERS)}


class Server:
    """What the warm process does until it is a copy, or nobody asks it any more."""

    def __init__(self, asked):
        self._asked = socket.socket(fileno=asked)
        self._told = {}
        self._woken, wakes = os.pipe()
        for end in (self._woken, wakes):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes)

    def next_copy(self):
        """Return what this process is to run, in a copy of it; None if it is to end."""
        while True:
            for ready in select.select([self._asked, self._woken], [], [])[0]:
                if ready == self._woken:
                    os.read(self._woken, LONGEST)
                    self._tell_ends()
                    continue
                said, files, _, _ = socket.recv_fds(self._asked, LONGEST, 4)
                if not said:
                    return None
                pid = os.fork()
                if not pid:
                    return json.loads(said), files
                *taken, self._told[pid] = files
                for each in set(taken):
                    os.close(each)
                self._asked.send(str(pid).encode())

    def _tell_ends(self):
        with suppress(ChildProcessError):
            while (ended := os.wait4(-1, os.WNOHANG))[0]:
                pid, status, usage = ended
                told = self._told.pop(pid)
                used = usage.ru_utime + usage.ru_stime
                os.write(told, f"{os.waitstatus_to_exitcode(status)} {used}".encode())
                os.close(told)


def become(asked, files):
    """Run ``manage.py`` in this copy, with the files and the environment that were asked for."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, each in enumerate(files[:3]):
        os.dup2(each, number)
    os.closerange(3, 1 << 16)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = asked["argv"]
    sys.orig_argv = [sys.executable, *sys.argv]
    runpy.run_path(sys.argv[0], run_name="__main__")


def main():
    for name in MODULES:
        import_module(name)
    for name in DRIVERS:
        with suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()
    copy = Server(int(sys.argv[1])).next_copy()
    if copy is not None:
        become(*copy)


if __name__ == "__main__":
    main()
