"""Daemons of tests that start quickly: copies of a process that has imported Django.

An interpreter that starts, and imports Django, takes more of the processor than most tests
ask of a daemon. A *warm* process has done so, with no settings and nothing of ATP, and is
forked for each daemon. The copy takes over arguments, environment and files, and runs
``manage.py`` as a fresh interpreter would.

To set up Django and to import ATP takes as long again. So from the second daemon on that has
the same environment, a *hot* process has done that too: a copy of the warm one, which is
forked in turn.
"""

import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections import OrderedDict
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
    *("csv", "ctypes", "importlib.metadata", "multiprocessing.pool", "zipfile"),
)
DRIVERS = ("psycopg2", "psycopg")
# With these comes the rest of what a daemon needs.
OF_ATP = ("atp.management.commands.atpd", "atp.daemon.supervisor.children", "atp.store")
# What only a fresh interpreter, or a fresh process, takes notice of.
OF_INTERPRETERS = ("LANG", "LC_", "LD_", "PYTHON")
LONGEST = 1 << 20
# So many hot processes are kept: the tests of a module have one environment, or a few.
MOST_HOT = 3
# What pytest tells of the test that runs makes no difference to a daemon.
OF_PYTEST = "PYTEST_"
# The file, beside the first three, by which a hot process is asked.
ASKED = 3


class Forking:
    """A process that is forked for each daemon, as the one that asks it for that sees it."""

    def __init__(self, asking):
        self._socket = asking

    def close(self):
        """Ask no more: it ends when its copies have ended."""
        self._socket.close()

    def fork(self, command, *, env, files, asked=None):
        """Have a copy run a command of Python with these three open files; returns a :class:`Copy`.

        With a socket ``asked`` the copy becomes a hot process, which is asked there.
        """
        status, told = os.pipe()
        wanted = {"argv": command[1:], "environment": env, "folder": os.getcwd()}
        wanted["is_hot"] = asked is not None
        given = [*files, *([asked] if asked else [])]
        sent = [*(each.fileno() for each in given), told]
        socket.send_fds(self._socket, [json.dumps(wanted).encode()], sent)
        pid = int(self._socket.recv(LONGEST))
        os.close(told)
        return Copy(command, pid, status)


class Warm(Forking):
    """The warm process, as the one that has started it sees it. It ends with that."""

    # Seconds of the processor that copies have used which have ended.
    used = 0.0
    # The pids of hot processes: no test has started them for itself.
    hot_pids: set[int] = set()

    def __init__(self):
        asking, own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with own:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(own.fileno())],
                cwd=ROOT,
                pass_fds=[own.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        super().__init__(asking)
        # By environment the hot process, or None after the first daemon; the last one last.
        self._hot = OrderedDict()

    def close(self):
        for hot in filter(None, self._hot.values()):
            hot.close()
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
        files = stdin, stdout, stderr
        return self._of(command, env, files).fork(command, env=env, files=files)

    def _of(self, command, environment, files):
        """Return the process that is forked for a daemon with this environment."""
        key = json.dumps(
            [os.getcwd(), {n: v for n, v in environment.items() if not n.startswith(OF_PYTEST)}],
            sort_keys=True,
        )
        if key not in self._hot:
            self._hot[key] = None
            self._let_go()
            return self
        if self._hot[key] is None:
            asking, own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with own:
                copy = self.fork(command, env=environment, files=files, asked=own)
            self.hot_pids.add(copy.pid)
            self._hot[key] = Forking(asking)
        self._hot.move_to_end(key)
        return self._hot[key]

    def _let_go(self):
        """End the hot processes that nobody has asked for longest."""
        while len(self._hot) > MOST_HOT:
            _, hot = self._hot.popitem(last=False)
            if hot is not None:
                hot.close()


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
        """Return what this process is to run, in a copy of it; None if it is to end.

        It ends when nobody can ask any more, and the ends of all copies have been told.
        """
        looked_at = [self._asked, self._woken]
        while self._asked in looked_at or self._told:
            for ready in select.select(looked_at, [], [])[0]:
                if ready == self._woken:
                    os.read(self._woken, LONGEST)
                    self._tell_ends()
                    continue
                said, files, _, _ = socket.recv_fds(self._asked, LONGEST, 5)
                if not said:
                    looked_at.remove(self._asked)
                    continue
                pid = os.fork()
                if not pid:
                    return json.loads(said), files
                *taken, self._told[pid] = files
                for each in set(taken):
                    os.close(each)
                self._asked.send(str(pid).encode())
        return None

    def _tell_ends(self):
        with suppress(ChildProcessError):
            while (ended := os.wait4(-1, os.WNOHANG))[0]:
                pid, status, usage = ended
                told = self._told.pop(pid)
                used = usage.ru_utime + usage.ru_stime
                os.write(told, f"{os.waitstatus_to_exitcode(status)} {used}".encode())
                os.close(told)


def become(asked, files):
    """Run ``manage.py`` in this copy, or be hot, with the files and environment asked for."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *own, _ = files
    # None of these may be written over before it has been copied.
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, 16) for each in own]
    for number, each in enumerate(high):
        os.dup2(each, number)
    os.closerange(len(own), 1 << 16)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = asked["argv"]
    sys.orig_argv = [sys.executable, *sys.argv]
    if asked["is_hot"]:
        import_module("django").setup()
        serve(OF_ATP, ASKED)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


def serve(modules, asked):
    """Import these modules, and be forked for whoever asks by this file, until nobody does."""
    for name in modules:
        import_module(name)
    gc.collect()
    gc.freeze()
    copy = Server(asked).next_copy()
    if copy is not None:
        become(*copy)


def main():
    for name in DRIVERS:
        with suppress(ImportError):
            import_module(name)
    serve(MODULES, int(sys.argv[1]))


if __name__ == "__main__":
    main()
