"""The daemons of a run: how they join, how faults hit them, and how they leave."""

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from django.db import DatabaseError, InterfaceError, connection

from tests.daemon.harness import Atpd, is_alive

from .record import uptime

# So many workers in each, so many daemons at the start, at least, and at most.
PROCESSES, START, LEAST, MOST = 2, 3, 2, 5
GRACE = 2
# A supervisor has looked after its workers before it is stopped again, in seconds.
BETWEEN_STOPS = 2.0
# An orderly stop is over after this many seconds, also where the database is down.
LEAVES_WITHIN = 40.0
NOBODY = "nobody was there to be hit"
# The targets that are hit with the supervisor.
WHOLE = ("supervisor", "daemon")
SOCKET = ".s.PGSQL.5432"


class Way:
    """The connection of one daemon to PostgreSQL, which can be cut while others keep theirs.

    It is a folder that contains a link to the server's socket unless the connection is cut.
    """

    def __init__(self, server, number):
        self._name = f"way-{number}"
        folder = server.folder.parent / self._name
        folder.mkdir()
        self._link, self._socket = folder / SOCKET, server.folder / SOCKET
        self.open()
        self.url = f"{server.url(folder=folder)}&application_name={self._name}"

    def open(self):
        self.is_open = True
        with contextlib.suppress(FileExistsError):
            self._link.symlink_to(self._socket)

    def close(self):
        """Let no connection pass and end the existing ones; return their number."""
        self.is_open = False
        self._link.unlink(missing_ok=True)
        sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, [self._name])
                return len(cursor.fetchall())
        except (DatabaseError, InterfaceError):
            return 0  # the database is away from everybody


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A fault that hit a process; ``daemon`` is the pid of the supervisor of its daemon.

    ``since`` and ``until`` are on the uptime clock. ``pid`` is the process that was hit.
    ``instance`` is the uuid of an Instance whose row was locked.
    """

    name: str
    daemon: int = 0
    pid: int = 0
    instance: str = ""
    since: float
    until: float


@dataclass
class Member:
    """A daemon, its connection to the database, and the times of faults that hit it as a whole."""

    atpd: Atpd
    way: Way | None
    # The file that tells its log handlers how to be bad.
    logging: Path
    asked_to_leave: float | None = None
    left: float | None = None
    killed: float | None = None
    resumed: float = 0.0
    family: set = field(default_factory=set)

    @property
    def pid(self):
        return self.atpd.pid

    @property
    def is_there(self):
        """True unless the daemon was killed or told to leave."""
        return self.killed is None and self.asked_to_leave is None

    @property
    def status(self):
        """The exit status, or None while the daemon runs."""
        return self.atpd.process.poll()

    def parts(self):
        """Return the pids of the processes whose work a fault can hit; a loop is a worker."""
        workers = [*self.atpd.workers(), *self.atpd.loops()]
        return {"dispatcher": self.atpd.dispatchers(), "worker": workers}

    def look(self):
        """Remember all processes of the daemon, so that survivors can be found after its end."""
        self.family.update(self.atpd.family())

    def leave(self):
        """Tell the daemon to shut down."""
        self.asked_to_leave = uptime()
        self.look()
        self.atpd.signal()

    def see_off(self):
        """Wait until the daemon has ended."""
        with contextlib.suppress(AssertionError):
            self.atpd.wait(LEAVES_WITHIN)
            self.left = uptime()


class Fleet:
    """All daemons of the run, including those that have ended; ``hits`` lists the faults."""

    def __init__(self, folder, server, types):
        self._folder = folder
        self._server = server
        self._types = [word for type in types for word in ("--type", type)]
        self._lock = threading.RLock()
        self.members = []
        self.hits = []
        self.counts = Counter()

    @property
    def kills(self):
        return sum(number for name, number in self.counts.items() if name.startswith("kill_"))

    def there(self):
        """Return the daemons that were neither killed nor told to leave."""
        with self._lock:
            return [member for member in self.members if member.is_there]

    def join(self, **environment):
        """Start another daemon."""
        with self._lock:
            number = len(self.members)
            way = Way(self._server, number) if self._server else None
            if way:
                environment["DATABASE_URL"] = way.url
            told = self._folder / f"logging-{number}"
            loggers = "atp.daemon atp.worker"
            sink = {"what": "handler", "as_told": str(told), "logger": loggers, "path": os.devnull}
            options = (*self._types, "--label", "tests=loops", "--grace", str(GRACE))
            given = {"processes": PROCESSES, "environment": environment, "sink": sink}
            member = Member(Atpd(self._folder, *options, **given), way, told)
            self.members.append(member)
        return f"daemon {member.pid}"

    def note(self, name, since, member=None, pid=0, instance=""):
        """Record a fault that lasted until now."""
        whom = {"daemon": member.pid if member else 0, "pid": pid, "instance": instance}
        self.hits.append(Hit(name=name, since=since, until=uptime(), **whom))
        self.counts[name] += 1

    # What is done; each returns what came of it, in words

    def act(self, action):
        """Carry out an Action on a daemon."""
        there = self.there()
        if action.name == "join":
            return self.join() if len(there) < MOST else "enough daemons are there"
        if not there:
            return NOBODY
        member = there[int(action.daemon * len(there))]
        verb, _, target = action.name.partition("_")
        if target in WHOLE and verb == "kill":
            verb = "kill_whole"
        return getattr(self, f"_{verb}")(member, target, action)

    @staticmethod
    def _part(member, target, fraction):
        """Return the pid of a process of a daemon, or None if there is none at the moment."""
        found = [member.pid] if target in WHOLE else member.parts()[target]
        return found[int(fraction * len(found))] if found else None

    def _kill(self, member, target, action):
        pid = self._part(member, target, action.member)
        since = uptime()
        if pid is None or not _send(pid, signal.SIGKILL):
            return NOBODY
        self.note(action.name, since, member, pid)
        return f"{target} {pid} of daemon {member.pid}"

    def _kill_whole(self, member, target, action):
        """Kill a supervisor, whose end its processes must notice, or all processes together."""
        with self._lock:
            if not member.is_there:
                return NOBODY
            since = member.killed = uptime()
        member.look()
        victims = [member.pid]
        if target == "daemon":
            for pid in member.parts()["worker"]:
                _send(pid, signal.SIGSTOP)  # so that its handler starts no child meanwhile
            member.look()
            victims += [pid for pid, _ in member.family if pid != member.pid]
        for pid in victims:
            _send(pid, signal.SIGKILL)
        member.atpd.process.wait(20)
        self.note(action.name, since, member, member.pid)
        time.sleep(action.span)
        replaced = self.join() if len(self.there()) < START else "nobody"
        return f"{target} {member.pid}; {replaced} in its place"

    def _stop(self, member, target, action):
        """Stop processes with SIGSTOP for a while, except those that are stopped already.

        A worker whose task is PAUSED can be stopped already.
        """
        if target in WHOLE:
            with self._lock:
                if uptime() < member.resumed + BETWEEN_STOPS or not member.is_there:
                    return "its supervisor was stopped just now"
                member.resumed = uptime() + action.span
        pid = self._part(member, target, action.member)
        if pid is None:
            return NOBODY
        targets = [pid]
        if target == "daemon":
            targets += [pid for pids in member.parts().values() for pid in pids]
        stopped = {}
        since = uptime()
        for each in targets:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(each)
                if process.status() != psutil.STATUS_STOPPED:
                    stopped[each] = process.create_time()
                    _send(each, signal.SIGSTOP)
        time.sleep(action.span)
        for each, created in stopped.items():
            if is_alive(each, created):
                _send(each, signal.SIGCONT)
        self.note(action.name, since, member, pid)
        if target in WHOLE:
            member.resumed = uptime()
        return f"{target} {pid} of daemon {member.pid} for {uptime() - since:.2f} s"

    def _cut(self, member, target, action):
        """Cut one daemon off from the database for a while."""
        if not member.way.is_open:
            return "it is cut off already"
        since = uptime()
        ended = member.way.close()
        time.sleep(action.span)
        member.way.open()
        self.note(action.name, since, member)
        return f"daemon {member.pid}, {ended} connections, for {uptime() - since:.2f} s"

    def _break(self, member, target, action):
        """Let the log handlers of a daemon raise or block for a while."""
        since = uptime()
        if member.logging.exists():
            return "its log handlers are bad already"
        member.logging.write_text(action.how)
        time.sleep(action.span)
        member.logging.unlink()
        self.note(action.name, since, member)
        return f"daemon {member.pid}, {action.how}, for {uptime() - since:.2f} s"

    def _leave(self, member, target, action):
        with self._lock:
            if len(self.there()) <= LEAST or not member.is_there:
                return "too few daemons are there"
            member.leave()
        self.counts["leave"] += 1
        if action.how == "twice":
            time.sleep(0.3)
            _send(member.pid, signal.SIGTERM)
        member.see_off()
        return f"daemon {member.pid} ended with status {member.status}"

    # The end

    def stop_all(self):
        """Shut all daemons down gracefully."""
        leaving = self.there()
        for member in leaving:
            member.leave()
        for member in leaving:
            member.see_off()

    def survivors(self):
        """Return the pids of living processes whose daemon has ended."""
        families = [member.family for member in self.members if member.status is not None]
        return [pid for family in families for pid, created in family if is_alive(pid, created)]

    def destroy(self):
        """Kill all remaining processes."""
        for member in self.members:
            member.atpd.destroy()
        for pid in self.survivors():
            _send(pid, signal.SIGKILL)


def _send(pid, number):
    """Send a signal; return True if the process existed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
