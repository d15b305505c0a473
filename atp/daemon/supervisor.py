"""The supervisor: the parent of all processes of a daemon.

It has no database and no threads. It forks, reaps, forwards signals and
kills; so a hanging database never stops a kill, and nothing is ever forked
from a process that holds a connection.
"""

import gc
import os
import selectors
import signal
import socket
import warnings

from django.db import connections

from .. import __version__
from ..conf import settings
from ..registry import registry
from . import journal, processes, worker
from .channel import Channel, Closed
from .crew import Crew, WorkerProcess
from .dispatcher import DONE, ORPHANED, UNDELIVERED, Dispatcher
from .folders import DaemonFolders
from .page import Page
from .processes import uptime
from .reload import Watcher

# Deadlines and deaths are looked for at least this often, in seconds.
TURN = 0.25
# A dispatcher that dies within this many seconds is started again ever more slowly.
QUICK_DEATH = 5.0
SLOWEST_RESTART = 10.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """One daemon. ``run()`` returns the exit status of the command."""

    def __init__(self, options):
        self._options = options
        self._page = Page(options.processes)
        self._folders = DaemonFolders()
        self._crew = Crew(self._page, options.processes)
        self._control = None
        self._outbox = []
        self._dispatcher = None
        self._dispatcher_started = 0.0
        self._dispatcher_due = 0.0
        self._dispatcher_deaths = 0
        self._identities = []
        self._lease_until = None
        self._sign_of_life = 0.0
        self._deaths = []
        self._stops = 0
        self._stop_signals = 0
        self._status = None
        self._watcher = Watcher() if options.reload else None
        self._reloading = False

    def run(self):
        """Run until told to stop and everything has ended."""
        processes.title("atpd")
        processes.adopt_descendants()
        self._folders.make()
        self._listen_to_signals()
        # Forked children share this process's memory for as long as nobody writes to it.
        connections.close_all()
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

    # Signals

    def _listen_to_signals(self):
        self._woken, waker = socket.socketpair()
        self._woken.setblocking(False)
        waker.setblocking(False)
        self._waker = waker
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, processes.ignore)
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, self._on_stop_signal)

    def _on_stop_signal(self, signum, frame):
        self._stop_signals += 1
        self._stop_why = signal.Signals(signum).name

    def _wait(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            if self._control is not None:
                selector.register(self._control, selectors.EVENT_READ)
            for key, _ in selector.select(TURN):
                if key.fileobj is self._woken:
                    self._woken.recv(4096)

    # One turn

    def _turn(self):
        self._obey_signals()
        processes.reap(lambda pid, status: self._deaths.append((pid, status)))
        self._hear()
        while self._deaths:
            self._bury(*self._deaths.pop(0))
        if self._status is not None:
            return
        self._enforce_deadlines()
        self._enforce_lease()
        self._reload_if_changed()
        self._start_what_is_missing()
        self._speak()

    def _obey_signals(self):
        while self._stops < self._stop_signals:
            self._stop(self._stop_why)

    def _stop(self, why):
        self._stops += 1
        if self._stops == 1:
            journal.daemon_stopping(why=why, grace=self._options.grace)
            self._say("stop", self._options.grace, why)
        elif self._stops == 2:
            journal.daemon_stopping_now(why=why)
            self._say("stop", 0.0, why)
        else:
            self._status = UNDELIVERED
        if self._dispatcher is None and not self._identities:
            self._status = DONE

    # The dispatcher

    def _hear(self):
        """Read what the dispatcher says."""
        while self._control is not None:
            try:
                (kind, *values), _ = self._control.receive(wait=False)
            except (BlockingIOError, Closed):
                return
            self._sign_of_life = uptime()
            if kind == "lease":
                [self._lease_until] = values
            elif kind == "identity" and values[0] not in self._identities:
                self._identities.append(values[0])
            elif kind == "joined":
                self._identities = values
            elif kind == "kill":
                slot, pid, instance, attempt, why = values
                self._crew.kill_if_running(slot, pid, instance, attempt, why)

    def _say(self, *message, channels=()):
        """Queue a message for the dispatcher; it may not be reading."""
        self._outbox.append((message, channels))
        self._speak()

    def _speak(self):
        while self._outbox and self._control is not None:
            message, channels = self._outbox[0]
            try:
                descriptors = [channel.fileno() for channel in channels]
                self._control.send(message, descriptors, wait=False)
            except (BlockingIOError, Closed):
                return
            self._outbox.pop(0)
            for channel in channels:
                channel.close()

    def _empty_outbox(self):
        for _, channels in self._outbox:
            for channel in channels:
                channel.close()
        self._outbox = []

    def _start_what_is_missing(self):
        if self._dispatcher is None and uptime() >= self._dispatcher_due:
            self._start_dispatcher()
        if self._dispatcher is not None and not self._stops:
            for slot in self._crew.missing():
                self._start_worker(slot)

    def _start_dispatcher(self):
        self._empty_outbox()
        ours, theirs = Channel.pair()
        previous = tuple(self._identities)
        pid = self._fork(self._be_dispatcher, theirs, previous, closing=ours)
        theirs.close()
        self._control, self._dispatcher = ours, pid
        self._dispatcher_started = self._sign_of_life = uptime()
        self._lease_until = None
        if self._stops:
            self._say("stop", self._options.grace if self._stops == 1 else 0.0, "stopping")

    def _be_dispatcher(self, parent, control, previous):
        processes.title("atpd-dispatch")
        dispatcher = Dispatcher(
            control, self._page, self._options, lock=self._folders.lock, previous=previous
        )
        signal.signal(signal.SIGUSR1, dispatcher.orphan)
        if not processes.die_with_parent(parent, signal.SIGUSR1):
            return ORPHANED
        status = dispatcher.run()
        if status == ORPHANED:
            self._folders.remove()
        return status

    def _on_dispatcher_death(self, pid, status):
        self._hear()
        self._dispatcher = None
        code = os.waitstatus_to_exitcode(status)
        if code in (DONE, UNDELIVERED):
            self._status = code
            return
        # What it had not read is lost with it: its workers go too, so that no
        # result is delivered under an identity that is about to end.
        self._control.close()
        self._control = None
        self._kill_workers("its dispatcher died")
        quick = uptime() - self._dispatcher_started < QUICK_DEATH
        self._dispatcher_deaths = self._dispatcher_deaths + 1 if quick else 0
        pause = 0.0
        if self._dispatcher_deaths > 1:
            pause = min(2.0 ** (self._dispatcher_deaths - 2), SLOWEST_RESTART)
        self._dispatcher_due = uptime() + pause
        journal.dispatcher_died(pid=pid, how=processes.describe_status(status), seconds=pause)

    # Workers

    def _start_worker(self, slot):
        ours, theirs = Channel.pair()
        pid = self._fork(self._be_worker, slot, theirs, closing=ours)
        self._crew.add(WorkerProcess(slot, pid))
        journal.worker_started(worker=slot, pid=pid)
        self._say("worker", slot, pid, channels=(ours, theirs))

    def _be_worker(self, parent, slot, channel):
        processes.title(f"atpd-worker-{slot}")
        processes.adopt_descendants()
        if not processes.die_with_parent(parent, signal.SIGKILL):
            return ORPHANED
        return worker.main(slot, channel, self._page, self._folders.scratch, self._options)

    def _bury(self, pid, status):
        """A child has ended: clean up after it, tell the dispatcher, start another."""
        if pid == self._dispatcher:
            self._on_dispatcher_death(pid, status)
            return
        dead = self._crew.remove(pid)
        if dead is None:
            return  # an orphan of an earlier worker
        running = self._page.read(dead.slot)
        self._page.leave(dead.slot)
        left = self._kill_left_behind(dead)
        how = processes.describe_status(status)
        if dead.why:
            journal.worker_killed(worker=dead.slot, pid=pid, why=dead.why)
        elif os.waitstatus_to_exitcode(status) != 0:
            journal.worker_died(worker=dead.slot, pid=pid, how=how)
        if left:
            journal.left_behind(worker=dead.slot, count=left)
        key = (running.instance, running.attempt) if running is not None else None
        self._say("died", dead.slot, pid, how, dead.why, key)

    def _kill_left_behind(self, dead):
        """Kill what the worker's handlers have started, before its Task may be run again."""
        if not processes.LINUX:
            processes.kill_sessions([dead.pid])
        known = {self._dispatcher, *self._crew.pids()}
        return processes.kill_unknown_children(
            known, lambda pid, status: self._deaths.append((pid, status))
        )

    def _enforce_deadlines(self):
        for process, running in self._crew.overdue():
            limit = running.deadline - running.started
            why = f"its time-out of {limit:g} s has passed"
            self._crew.kill_if_running(
                process.slot, process.pid, running.instance, running.attempt, why
            )

    def _enforce_lease(self):
        """Kill the workers before others may take their Tasks; a hung dispatcher too."""
        now = uptime()
        if self._lease_until is not None and now >= self._lease_until:
            journal.lease_over(seconds=settings.KILL_AFTER)
            self._lease_until = None
            self._kill_workers("the daemon's lease could not be renewed")
        silent = now - self._sign_of_life
        if self._dispatcher is not None and silent > settings.KILL_AFTER:
            journal.dispatcher_hung(pid=self._dispatcher, seconds=silent)
            processes.kill(self._dispatcher)
            self._sign_of_life = now

    def _kill_workers(self, why):
        """Kill all workers and what they started, and wait until they are dead."""
        self._crew.kill_all(why)
        processes.kill_unknown_children(
            {self._dispatcher}, lambda pid, status: self._deaths.append((pid, status))
        )

    # Forking and ending

    def _fork(self, child, *arguments, closing):
        """Fork a child that runs ``child(parent's pid, …)`` in a session of its own."""
        parent = os.getpid()
        with warnings.catch_warnings():
            # Python warns of threads, and counts those that numerical libraries
            # start when they are imported, which handle forks themselves.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (*STOP_SIGNALS, signal.SIGCHLD):
                signal.signal(number, processes.ignore)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for channel in (closing, self._control, self._woken, self._waker):
                if channel is not None:
                    channel.close()
            self._empty_outbox()
            status = child(parent, *arguments)
        except BaseException as error:
            journal.logger.critical("%s failed", child.__name__, exc_info=error)
        finally:
            os._exit(status)

    def _kill_everything(self):
        self._crew.kill_all("the daemon has ended")
        if self._dispatcher is not None:
            processes.kill(self._dispatcher)
        processes.kill_unknown_children(set(), lambda pid, status: None)
        processes.reap(lambda pid, status: None)

    def _reload_if_changed(self):
        if self._watcher is None or self._stops:
            return
        changed = self._watcher.changed()
        if changed is not None:
            journal.reloading(file=changed)
            self._reloading = True
            self._stop("its code changed")
