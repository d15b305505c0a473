"""The daemons of a run: how they join, are hit, and leave."""

import contextlib
import os
import signal
import threading
import time
from collections import Counter

import psutil

from atp.daemon.system.processes import uptime
from tests.daemon.harness import Atpd, is_alive

from .member import Hit, Member

# So many workers in each, so many daemons at the start, at least, and at most.
PROCESSES, START, LEAST, MOST = 2, 3, 2, 5
GRACE = 2
# A supervisor has looked after its workers before it is stopped again, in seconds.
BETWEEN_STOPS = 2.0
# An orderly stop is over after this many seconds, also where the database is down.
LEAVES_WITHIN = 40.0
NOBODY = "nobody was there to be hit"


class Fleet:
    """All daemons that there ever were. ``hits`` tells what was done to them."""

    def __init__(self, folder, server=None, types=("chaos.*",)):
        self._folder = folder
        self._server = server
        self._types = [word for type in types for word in ("--type", type)]
        self._lock = threading.RLock()
        self.members = []
        self.hits = []
        self.counts = Counter()

    # Who is there

    def there(self):
        """The daemons that are to go on."""
        with self._lock:
            return [member for member in self.members if member.is_there]

    def _choose(self, fraction):
        there = self.there()
        return there[int(fraction * len(there))] if there else None

    def join(self):
        """Start another daemon."""
        with self._lock:
            options = (*self._types, "--grace", str(GRACE))
            way = self._server.new_way() if self._server else None
            own = {"DATABASE_URL": way.url} if way else {}
            told = self._folder / f"logging-{len(self.members)}"
            loggers = "atp.daemon atp.worker"
            sink = {"what": "handler", "as_told": str(told), "logger": loggers, "path": os.devnull}
            atpd = Atpd(self._folder, *options, processes=PROCESSES, environment=own, sink=sink)
            member = Member(atpd, way, told)
            self.members.append(member)
        return f"daemon {member.pid}"

    def note(self, name, since, member=None, pid=0, until=None, instance=""):
        """Remember that something was done, until now."""
        daemon = member.pid if member else 0
        until = until or uptime()
        whom = {"daemon": daemon, "pid": pid, "instance": instance}
        self.hits.append(Hit(name=name, since=since, until=until, **whom))
        self.counts[name] += 1

    # What is done; each returns what came of it, in words

    def act(self, action):
        """Do one Action on a daemon."""
        if action.name == "join":
            return self.join() if len(self.there()) < MOST else "enough daemons are there"
        member = self._choose(action.daemon)
        if member is None:
            return NOBODY
        if action.name == "leave":
            return self._leave(member, action)
        if action.name == "cut_off":
            return self._cut_off(member, action)
        if action.name == "break_logging":
            return self._break_logging(member, action)
        verb, _, target = action.name.partition("_")
        if verb == "stop":
            return self._stop(member, target, action)
        if target in ("worker", "dispatcher"):
            return self._kill_part(member, target, action)
        return self._kill_whole(member, target, action)

    def _part(self, member, target, fraction):
        """Return the pid of a process of a daemon; None if there is none just now."""
        if target in ("supervisor", "daemon"):
            return member.pid
        found = member.atpd.workers() if target == "worker" else member.atpd.dispatchers()
        return found[int(fraction * len(found))] if found else None

    def _kill_part(self, member, target, action):
        pid = self._part(member, target, action.member)
        since = uptime()
        if pid is None or not _send(pid, signal.SIGKILL):
            return NOBODY
        self.note(action.name, since, member, pid)
        return f"{target} {pid} of daemon {member.pid}"

    def _kill_whole(self, member, target, action):
        """Kill a supervisor, which all others have to notice; or all processes together."""
        with self._lock:
            if not member.is_there:
                return NOBODY
            since = member.killed = uptime()
        member.look()
        victims = [member.pid]
        if target == "daemon":
            for pid in member.atpd.workers():
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
        """Stop processes for a while. Who is PAUSED is stopped already, and stays so."""
        if target in ("supervisor", "daemon"):
            with self._lock:
                if uptime() < member.resumed + BETWEEN_STOPS or not member.is_there:
                    return "its supervisor was stopped just now"
                member.resumed = uptime() + action.span
        pid = self._part(member, target, action.member)
        if pid is None:
            return NOBODY
        targets = [pid]
        if target == "daemon":
            targets += [*member.atpd.dispatchers(), *member.atpd.workers()]
        stopped = {}
        since = uptime()
        for each in targets:
            if not _is_stopped(each):
                stopped[each] = _created(each)
                _send(each, signal.SIGSTOP)
        time.sleep(action.span)
        for each, created in stopped.items():
            if created is not None and is_alive(each, created):
                _send(each, signal.SIGCONT)
        self.note(action.name, since, member, pid)
        if target in ("supervisor", "daemon"):
            member.resumed = uptime()
        return f"{target} {pid} of daemon {member.pid} for {uptime() - since:.2f} s"

    def _cut_off(self, member, action):
        """Keep a daemon, and nobody else, from the database for a while."""
        if not member.way.is_open:
            return "it is cut off already"
        since = uptime()
        ended = member.way.close()
        time.sleep(action.span)
        member.way.open()
        self.note(action.name, since, member)
        return f"daemon {member.pid}, {ended} connections, for {uptime() - since:.2f} s"

    def _break_logging(self, member, action):
        """Have the log handlers of a daemon raise, or stand, for a while."""
        since = uptime()
        if member.logging.exists():
            return "its log handlers are bad already"
        member.logging.write_text(action.how)
        time.sleep(action.span)
        member.logging.unlink()
        self.note(action.name, since, member)
        return f"daemon {member.pid}, {action.how}, for {uptime() - since:.2f} s"

    def _leave(self, member, action):
        with self._lock:
            if len(self.there()) <= LEAST or not member.is_there:
                return "too few daemons are there"
            member.asked_to_leave = uptime()
        member.look()
        self.counts["leave"] += 1
        self._end(member)
        if action.how == "twice":
            time.sleep(0.3)
            _send(member.pid, signal.SIGTERM)
        self._see_off(member)
        return f"daemon {member.pid} ended with status {member.status}"

    @staticmethod
    def _end(member):
        with contextlib.suppress(ProcessLookupError):
            member.atpd.signal(signal.SIGTERM)

    @staticmethod
    def _see_off(member):
        with contextlib.suppress(AssertionError):
            member.atpd.wait(LEAVES_WITHIN)
            member.left = uptime()

    # The end

    def stop_all(self):
        """Stop all that are there, in order."""
        leaving = self.there()
        for member in leaving:
            member.look()
            member.asked_to_leave = uptime()
            self._end(member)
        for member in leaving:
            self._see_off(member)

    def survivors(self):
        """Processes of daemons that have ended, which are still alive: pids."""
        families = [member.family for member in self.members if member.status is not None]
        return [pid for family in families for pid, created in family if is_alive(pid, created)]

    def destroy(self):
        """End whatever is left of any of them."""
        for member in self.members:
            member.atpd.destroy()
        for pid in self.survivors():
            _send(pid, signal.SIGKILL)


def _send(pid, number):
    """Send a signal; returns whether there was somebody to take it."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _created(pid):
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None


def _is_stopped(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    return False
