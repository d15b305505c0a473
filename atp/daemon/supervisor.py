"""The supervisor: the parent of all processes of a daemon.

It has no database and no threads. It forks, reaps, forwards signals and
kills; so a hanging database never stops a kill, and nothing is ever forked
from a process that holds a connection.
"""

import gc
import os
import select
import time

from .. import __version__
from ..conf import settings
from ..registry import registry
from . import descendants, journal, memory, processes
from .crew import Crew, slots
from .database import close_connections
from .descendants import Strays
from .dispatcher import DONE, UNDELIVERED
from .folders import DaemonFolders
from .liaison import Liaison
from .page import Page
from .prints import Prints
from .processes import uptime
from .reload import Watcher
from .signals import Signals
from .starts import Starts

# Deadlines and deaths are looked for at least this often, in seconds.
TURN = 0.25
# What the dispatcher may ask for of a worker, and what it is told when that was done.
ASKED = {"kill": "kill_if_running", "interrupt": "interrupt", "freeze": "freeze", "thaw": "thaw"}
TOLD = {"freeze": "frozen", "thaw": "thawed"}


class Supervisor:
    """One daemon. ``run()`` returns the exit status of the command."""

    def __init__(self, options):
        self._options = options
        self._page = Page(slots(options.processes))
        self._folders = DaemonFolders()
        self._crew = Crew(self._page, options.processes)
        self._dispatcher = Liaison()
        self._deaths = []
        self._stops = 0
        self._status = None
        self._pause = TURN
        # Descriptors from which something can be read.
        self._readable = frozenset()
        self._watcher = Watcher() if options.reload else None
        self._reloading = False

    def run(self):
        """Run until told to stop and everything has ended."""
        processes.title("atpd")
        processes.adopt_descendants()
        # What a start script has left running is not ours to kill.
        self._strays = Strays()
        self._folders.make()
        self._signals = Signals()
        self._prints = Prints()
        processes.allow_descriptors(2 * self._options.processes + 64)
        shared = (self._page, self._options, self._folders)
        self._starts = Starts(self._crew, self._dispatcher, self._prints, self._signals, shared)
        # Forked children share this process's memory for as long as nobody writes to it.
        close_connections()
        gc.collect()
        gc.freeze()
        types = self._options.served(task_type.identifier for task_type in registry)
        journal.daemon_started(
            version=__version__,
            processes=self._options.processes,
            count=len(types),
            types=", ".join(types) or "none",
        )
        try:
            while self._status is None:
                self._turn()
                self._wait()
        finally:
            self._kill_everything()
            self._folders.remove()
        if self._reloading:
            self._watcher.start_anew()
        return 0 if self._status == DONE else 1

    def _wait(self):
        # What is waited for changes, and this kind is quickly made.
        poll = select.poll()
        for descriptor in (*self._sources(), *self._prints.descriptors()):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(1000 * self._prints.pause(self._pause))
        self._readable = frozenset(descriptor for descriptor, _ in ready)
        if self._signals.fileno() in self._readable:
            self._signals.clear()

    def _sources(self):
        channel = self._dispatcher.channel
        return [each.fileno() for each in (self._signals, channel) if each is not None]

    def _turn(self):
        for why in self._signals.take_stops():
            self._reloading = False  # whoever stops a daemon means it
            self._stop(why)
        self._prints.forward(self._readable)
        self._reap()
        channel = self._dispatcher.channel
        if channel is not None and channel.fileno() in self._readable:
            self._hear()
        while self._deaths:
            self._bury(*self._deaths.pop(0))
        if self._status is not None:
            return
        self._pause = memory.LOOK_EVERY if self._crew.enforce_limits() else TURN
        self._enforce_lease()
        self._reload_if_changed()
        if self._starts.start_missing(stopping=self._stops > 0) and self._stops:
            self._tell_to_stop()
        self._dispatcher.speak()

    def _reap(self):
        processes.reap(lambda pid, status: self._deaths.append((pid, status)))

    def _hear(self):
        for kind, slot, pid, instance, attempt, why in self._dispatcher.hear():
            done = getattr(self._crew, ASKED[kind])(slot, pid, (instance, attempt), why)
            if done and kind in TOLD:
                self._dispatcher.say(TOLD[kind], slot, pid, instance, attempt, time.time())
        if self._dispatcher.stop and not self._stops:
            self._reloading = False
            self._stop(self._dispatcher.stop)

    # Stopping

    def _stop(self, why):
        self._stops += 1
        if self._stops == 1:
            journal.daemon_stopping(why=why, grace=self._options.grace)
        elif self._stops == 2:
            journal.daemon_stopping_now(why=why)
        else:
            self._status = UNDELIVERED
            return
        if self._dispatcher.pid is None and not self._dispatcher.identities:
            self._status = DONE  # there never was anything to hand back
        self._tell_to_stop()

    def _tell_to_stop(self):
        self._dispatcher.say("stop", self._options.grace if self._stops == 1 else 0.0)

    def _reload_if_changed(self):
        if self._watcher is None or self._stops:
            return
        changed = self._watcher.changed()
        if changed is not None:
            journal.reloading(file=changed)
            self._reloading = True
            self._stop("its code changed")

    def _kill_everything(self):
        self._crew.kill_all("the daemon has ended")
        if self._dispatcher.pid is not None:
            processes.kill(self._dispatcher.pid)
        self._strays.end((), self._reap)
        self._reap()
        self._prints.end()

    # Deaths

    def _bury(self, pid, status):
        """A child has ended: clean up after it, tell the dispatcher, start another."""
        if pid == self._dispatcher.pid:
            self._bury_dispatcher(status)
            return
        dead = self._crew.remove(pid, status)
        if dead is None:
            return  # an orphan of an earlier worker
        running = self._page.read(dead.slot)
        self._page.leave(dead.slot)
        # What its handler had started is dead before the Task may be run again.
        if not processes.LINUX:
            descendants.kill_sessions([dead.pid])
        left = self._strays.end({self._dispatcher.pid, *self._crew.pids()}, self._reap)
        self._prints.ended(dead.slot)
        how = processes.describe_status(status)
        if dead.why:
            journal.worker_killed(worker=dead.slot, pid=pid, why=dead.why)
        elif os.waitstatus_to_exitcode(status) != 0 or running is not None:
            journal.worker_died(worker=dead.slot, pid=pid, how=how)
        if left:
            journal.left_behind(worker=dead.slot, count=left)
        key = running.key if running is not None else None
        self._dispatcher.say("died", dead.slot, pid, how, dead.why, key, left)

    def _bury_dispatcher(self, status):
        self._hear()
        code = os.waitstatus_to_exitcode(status)
        if code in (DONE, UNDELIVERED):
            self._dispatcher.pid = None
            self._status = code
            return
        # What it had heard and not recorded is lost with it. Its workers go
        # too, so that nothing runs under an identity that is about to end.
        self._dispatcher.died(status)
        self._kill_workers("its dispatcher died")

    def _enforce_lease(self):
        """Kill the workers before others may take their Tasks; a hung dispatcher too."""
        until = self._dispatcher.lease_until
        if until is not None and uptime() >= until:
            self._dispatcher.lease_until = None
            self._kill_workers("the daemon's lease could not be renewed")
            journal.lease_over(seconds=settings.KILL_AFTER)
        self._dispatcher.end_if_silent(settings.KILL_AFTER)

    def _kill_workers(self, why):
        """Kill all workers and what they started, and wait until they are dead."""
        self._crew.kill_all(why)
        self._strays.end({self._dispatcher.pid}, self._reap)
