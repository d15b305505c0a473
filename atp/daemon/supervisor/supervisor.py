"""The supervisor: the parent of all processes of a daemon.

It has no database and no threads, and calls no log handler of the project. It forks,
reaps, forwards signals and kills; so neither a hanging database nor a log server ever
stops a kill, and nothing is ever forked from a process that holds a connection or a lock.
"""

import gc
import os
import select
import time

from django.db import connections

from ... import __version__
from ... import messages as attempt_messages
from ...conf import settings
from ...operations.registry import registry
from .. import journal
from ..dispatcher.stopping import DONE, UNDELIVERED
from ..options import named
from ..shared import messages
from ..shared.inherited import Inherited
from ..shared.running_page import Page
from ..shared.stacks import StackFiles
from ..started import tell_started
from ..system import descendants, processes
from ..system.database import close_connections
from ..system.descendants import LeftBehind
from ..system.folders import DaemonFolders
from ..system.processes import uptime
from .dispatcher_process import DispatcherProcess
from .forking import Forking
from .reload import Watcher
from .signals import Signals
from .worker_output import WorkerOutput
from .worker_processes import WorkerProcesses, slots

# The supervisor looks for deadlines and deaths at least this often, in seconds.
TURN = 0.25
# The requests of the dispatcher that concern a worker, and the answers.
ASKED = {
    messages.Kill: WorkerProcesses.kill_if_running,
    messages.Interrupt: WorkerProcesses.interrupt,
    messages.Freeze: WorkerProcesses.freeze,
    messages.Thaw: WorkerProcesses.thaw,
    messages.TakeStack: WorkerProcesses.look,
}
ANSWERS = {messages.Freeze: messages.Frozen, messages.Thaw: messages.Thawed}


class Supervisor:
    """The supervisor of one daemon. ``run()`` returns the exit status of the command."""

    def __init__(self, options, log):
        self._options = options
        self._log = log
        self._page = Page(slots(options.processes))
        self._folders = DaemonFolders()
        self._stacks = StackFiles(slots(options.processes))
        self._workers = WorkerProcesses(self._page, options.processes, self._stacks)
        self._dispatcher = DispatcherProcess()
        self._deaths = []
        self._stops = 0
        self._status = None
        self._pause = TURN
        # The descriptors that had data to read after the last wait.
        self._readable = frozenset()
        self._watcher = Watcher() if options.reload else None
        self._reloading = False

    def run(self):
        """Run until somebody stops the daemon and all its processes have ended."""
        processes.title("atpd")
        processes.adopt_descendants()
        # The daemon does not kill the processes that a start script has left running.
        self._left_behind = LeftBehind(self._log.pids)
        self._folders.make()
        self._signals = Signals()
        self._output = WorkerOutput(self._page.name_of)
        processes.allow_descriptors(4 * self._options.processes + 64)
        self._stacks.open()
        inherited = Inherited(self._page, self._options, self._folders, self._stacks)
        leaving = (self._signals.leave_to_parent, self._log.forget)
        self._starts = Forking(self._workers, self._dispatcher, self._output, leaving, inherited)
        self._log.leaving = (
            self._starts.leave_to_parent,
            self._folders.close,
            self._stacks.close,
        )
        tell_started("supervisor")
        registry.declare_own()
        # Forked children share this process's memory for as long as nobody writes to it.
        close_connections()
        gc.collect()
        gc.freeze()
        types = self._options.served(registry)
        journal.daemon_started(
            version=__version__,
            processes=self._options.processes,
            database=_database(),
            count=len(types),
            types=named(types),
        )
        try:
            while self._status is None:
                self._turn()
                self._wait()
        finally:
            self._kill_everything()
            self._folders.remove()
            self._log.close()
        if self._reloading:
            self._watcher.start_anew()
        return 0 if self._status == DONE else 1

    def close(self):
        """Close what the run has left open, for a process that goes on after it."""
        self._dispatcher.close()
        self._signals.close()
        self._folders.close()
        self._stacks.close()

    def _wait(self):
        # The descriptors change, and a poll object is quickly made.
        poll = select.poll()
        for descriptor in (*self._sources(), *self._output.descriptors()):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(1000 * self._output.pause(self._pause))
        self._readable = frozenset(descriptor for descriptor, _ in ready)
        if self._signals.fileno() in self._readable:
            self._signals.clear()

    def _sources(self):
        channel = self._dispatcher.channel
        return [each.fileno() for each in (self._signals, channel) if each is not None]

    def _turn(self):
        for why in self._signals.take_stops():
            self._reloading = False  # a signal to stop wins over a reload
            self._stop(why)
        self._output.forward(self._readable)
        self._reap()
        channel = self._dispatcher.channel
        if channel is not None and channel.fileno() in self._readable:
            self._receive()
        while self._deaths:
            self._on_death(*self._deaths.pop(0))
        if self._status is not None:
            return
        self._pause = min(TURN, self._workers.enforce_limits())
        for slot, pid, key, stack in self._workers.looked():
            self._dispatcher.send(messages.StackTaken(slot, pid, key, time.time(), stack))
        self._enforce_lease()
        self._reload_if_changed()
        if self._starts.start_missing(stopping=self._stops > 0) and self._stops:
            self._tell_to_stop()
        self._dispatcher.flush()
        self._log.turn()

    def _reap(self):
        processes.reap(lambda pid, status: self._deaths.append((pid, status)))

    def _receive(self):
        for message in self._dispatcher.receive():
            done = ASKED[type(message)](self._workers, *message)
            answer = ANSWERS.get(type(message))
            if done and answer is not None:
                self._dispatcher.send(answer(*message, time.time()))
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
            self._status = DONE  # no dispatcher has joined, so there is nothing to hand back
        self._tell_to_stop()

    def _tell_to_stop(self):
        self._dispatcher.send(messages.Stop(self._options.grace if self._stops == 1 else 0.0))

    def _reload_if_changed(self):
        if self._watcher is None or self._stops:
            return
        changed = self._watcher.changed()
        if changed is not None:
            journal.reloading(file=changed)
            self._reloading = True
            self._stop("its code changed")

    def _kill_everything(self):
        self._workers.kill_all(attempt_messages.daemon_ended())
        if self._dispatcher.pid is not None:
            processes.kill(self._dispatcher.pid)
        self._left_behind.end((), self._reap)
        self._reap()
        self._output.end()

    # Deaths

    def _on_death(self, pid, status):
        """Clean up after a child that has ended, and tell the dispatcher of a dead worker."""
        if pid == self._dispatcher.pid:
            self._on_dispatcher_death(status)
            return
        dead = self._workers.remove(pid, status)
        if dead is None:
            return  # an orphan of an earlier worker
        running = self._page.read(dead.slot)
        self._page.leave(dead.slot)
        # The processes of its handler are dead before the Task may be run again.
        if not processes.LINUX:
            descendants.kill_sessions([dead.pid])
        left = self._left_behind.end({self._dispatcher.pid, *self._workers.pids()}, self._reap)
        self._output.ended(dead.slot)
        how = processes.describe_status(status)
        if dead.why:
            journal.worker_killed(worker=dead.slot, pid=pid, why=dead.why)
        elif os.waitstatus_to_exitcode(status) != 0 or running is not None:
            journal.worker_died(worker=dead.slot, pid=pid, how=how)
        if left:
            journal.left_behind(worker=dead.slot, count=left)
        key = running.key if running is not None else None
        cause = dead.cause or processes.cause_of(status)
        facts = how, dead.why, key, left, cause, dead.stack
        self._dispatcher.send(messages.WorkerDied(dead.slot, pid, *facts))

    def _on_dispatcher_death(self, status):
        self._receive()
        code = os.waitstatus_to_exitcode(status)
        if code in (DONE, UNDELIVERED):
            self._dispatcher.pid = None
            self._status = code
            return
        # The messages that the dispatcher had not recorded are lost. Kill the workers too, so
        # that nothing runs under an identity that is about to end.
        self._dispatcher.died(status)
        self._kill_workers(attempt_messages.dispatcher_died())

    def _enforce_lease(self):
        """Kill the workers before other daemons may take their Tasks; kill a hung dispatcher."""
        # The turn may have taken long: the dispatcher may have renewed the lease meanwhile.
        self._receive()
        until = self._dispatcher.lease_until
        if until is not None and uptime() >= until:
            self._dispatcher.lease_until = None
            self._kill_workers(attempt_messages.lease_over())
            journal.lease_over(seconds=settings.KILL_AFTER)
        self._dispatcher.end_if_silent(settings.KILL_AFTER)

    def _kill_workers(self, why):
        """Kill all workers and the processes that they started; wait until all are dead."""
        self._workers.kill_all(why)
        self._left_behind.end({self._dispatcher.pid}, self._reap)


def _database():
    """Return the alias, the vendor and the name of the queue's database; no host and no user."""
    connection = connections[settings.DATABASE]
    return f"{connection.alias!r} ({connection.vendor}, {connection.settings_dict['NAME']})"
