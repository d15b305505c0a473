"""The supervisor: the checks before it starts, its signals, the reload, and its loop."""

import contextlib
import gc
import logging
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from signal import SIGKILL
from types import FrameType
from typing import Any, NoReturn

from django.core.files.storage import FileSystemStorage, storages
from django.db import DatabaseError, connections
from django.utils.autoreload import iter_all_python_module_files

from ... import __version__, folders, messages
from ...conf import settings
from ...operations import base as migrated
from ...operations.registry import registry
from .. import descendants, processes, protocol
from .. import log as journal
from ..database import bound_connecting, close_connections
from ..descendants import LeftBehind
from ..dispatcher.commands import DONE, UNDELIVERED
from ..folders import DaemonFolders
from ..log_handlers import loggers
from ..log_process import LogProcess
from ..options import Options, named
from ..processes import Timers, uptime
from ..protocol import Inherited
from ..shared_memory import Page
from ..stacks import StackFiles
from .children import DispatcherProcess, Forking, tell_started
from .loop_processes import LoopProcess, LoopProcesses
from .places import Places
from .worker_processes import WorkerOutput, WorkerProcess, WorkerProcesses, slots

# Support for a daemon in a process that outlives it, as with ``call_command`` in a test.


@contextlib.contextmanager
def process_restored() -> Iterator[None]:
    """Restore the process after the block: signals, limits, name, subreaper, gc and the log."""
    numbers = (*processes.STOPS, signal.SIGCHLD)
    handlers = {number: signal.getsignal(number) for number in numbers}
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    name, adopts = processes.current_title(), processes.adopts_descendants()
    frozen = gc.get_freeze_count()
    log = logging.getLogger("atp")
    logged = log.handlers, log.propagate, log.level
    try:
        yield
    finally:
        loggers.stop()
        signal.set_wakeup_fd(wakeup)
        for number, handler in handlers.items():
            if handler is not None:  # one that was not set from Python cannot be set again
                signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        processes.title(name)
        processes.adopt_descendants(adopts)
        if not frozen:
            gc.unfreeze()
        log.handlers, log.propagate = logged[:2]
        log.setLevel(logged[2])


# Checks before a daemon starts: of the database, with a time limit, and of the storage.


def database_problem() -> str:
    """Return a sentence about what the database lacks; empty if nothing is known to be missing.

    It is empty too if the database is down or does not answer: the daemon tries again later.
    A child process asks the database, so that no connection and no thread stays in this one.
    """
    patience = 2 * settings.STATEMENT_TIMEOUT
    reading, writing = os.pipe()
    try:
        pid = processes.fork(partial(_ask, writing))
    finally:
        os.close(writing)
    try:
        answer = _read(reading, uptime() + patience)
    finally:
        os.close(reading)
        processes.kill(pid)
        os.waitpid(pid, 0)
    if answer is None:
        journal.database_silent(seconds=patience)
    return (answer or b"").decode()


def begin_log(style: str | None, verbosity: int) -> LogProcess:
    """Configure the daemon's log; from now on the log process calls the project's handlers."""
    journal.configure(style, verbosity)
    log = LogProcess(journal.lines_dropped, partial(tell_started, "log"))
    log.start()
    return log


def tell_of_storage() -> None:
    """Log a warning if files cannot be stored, before a handler does its work for nothing."""
    storage = storages[settings.STORAGE]
    if isinstance(storage, FileSystemStorage) and storage.base_location:
        why = folders.why_unwritable(storage.location)  # type: ignore[arg-type]
        if why:
            journal.storage_refused(why=why)


def _ask(writing: int, parent: int) -> int:
    if processes.die_with_parent(parent, SIGKILL):
        bound_connecting(settings.STATEMENT_TIMEOUT)
        # A connection that was opened before the fork belongs to the parent.
        connection = connections[settings.DATABASE].copy()
        connection.settings_dict["OPTIONS"].pop("pool", None)
        try:
            os.write(writing, migrated.describe_missing_tables(connection).encode())
        except DatabaseError:
            return 0  # the dispatcher tries again, and tells why
    return 0


def _read(descriptor: int, deadline: float) -> bytes | None:
    """Read the descriptor to its end and return the bytes; None if the end comes too late."""
    answer = b""
    while (left := deadline - uptime()) > 0:
        if select.select([descriptor], [], [], left)[0]:
            data = os.read(descriptor, 4096)
            if not data:
                return answer
            answer += data
    return None


# Restarting the daemon when code changes, for development.

LOOK_EVERY = 1.0


def command_line(command: str) -> list[str]:
    """Return this process's arguments up to ``atpd``, with ``command`` in its place."""
    before = sys.orig_argv[1 : sys.orig_argv.index("atpd")]
    return [*before, command]


class Watcher:
    """The watcher of the files of all loaded modules, which it looks at once a second."""

    def __init__(self) -> None:
        self._timers = Timers()
        self._times: dict[Path, int] = {}
        self._look()

    def _look(self) -> list[Path]:
        """Return the files that have changed since the last look."""
        changed = []
        for path in iter_all_python_module_files():
            try:
                time = path.stat().st_mtime_ns
            except OSError:
                continue
            if self._times.setdefault(path, time) != time:
                changed.append(path)
            self._times[path] = time
        return changed

    def changed(self) -> Path | None:
        """Return a file that has changed; None if none has, or if the project does not load."""
        if not self._timers.due("look", LOOK_EVERY):
            return None
        changed = self._look()
        if not changed:
            return None
        error = self._problem()
        if error:
            journal.not_reloading(file=changed[0], error=error)
            return None
        return changed[0]

    @staticmethod
    def _problem() -> str | None:
        """Return the reason why the project does not load now, or None if it loads."""
        checked = subprocess.run(
            [sys.executable, *command_line("check")], capture_output=True, text=True, check=False
        )
        lines = checked.stderr.strip().splitlines()
        return (lines or ["it does not load"])[-1] if checked.returncode else None

    @staticmethod
    def start_anew() -> NoReturn:
        """Replace this process by a new run of the same command."""
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


# Signals to the supervisor: they wake it up, and it asks which ones came.


class Signals:
    """The signals that have come since this was made. A selector can wait for the object."""

    def __init__(self) -> None:
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._stops: list[str] = []
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, processes.ignore)
        for number in processes.STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, self._on_stop)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._stops.append(signal.Signals(number).name)

    def fileno(self) -> int:
        return self._woken.fileno()

    def close(self) -> None:
        """Close the sockets that wake us up. The caller has reset the signal handling before."""
        self._woken.close()
        self._waker.close()

    def clear(self) -> None:
        """Empty the socket that woke us up."""
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    def take_stops(self) -> list[str]:
        """Return the names of the stop signals that came since the last call."""
        stops, self._stops = self._stops, []
        return stops

    def leave_to_parent(self) -> None:
        """In a child: ignore the signals that a terminal or systemd sends to all processes."""
        signal.set_wakeup_fd(-1)
        for number in processes.STOPS:
            signal.signal(number, processes.ignore)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.close()


# The supervisor: the parent of all processes of a daemon.
#
# It has no database and no threads, and calls no log handler of the project. It forks,
# reaps, forwards signals and kills; so neither a hanging database nor a log server ever
# stops a kill, and nothing is ever forked from a process that holds a connection or a lock.

# The supervisor looks for deadlines and deaths at least this often, in seconds.
TURN = 0.25
# The requests of the dispatcher that concern a worker, and the answers.
ASKED: dict[type[Any], Callable[[object], Callable[..., bool | None]]] = {
    protocol.Kill: attrgetter("kill_if_running"),
    protocol.Interrupt: attrgetter("interrupt"),
    protocol.Freeze: attrgetter("freeze"),
    protocol.Thaw: attrgetter("thaw"),
    protocol.TakeStack: attrgetter("look"),
}
ANSWERS: dict[type[Any], Callable[..., protocol.Frozen | protocol.Thawed]] = {
    protocol.Freeze: protocol.Frozen,
    protocol.Thaw: protocol.Thawed,
}


class Supervisor:
    """The supervisor of one daemon. ``run()`` returns the exit status of the command."""

    def __init__(self, options: Options, log: LogProcess) -> None:
        self._options = options
        self._log = log
        # The slots of the loops' places come after those of the worker processes.
        first = slots(options.processes)
        count, size = options.loop_sizes(registry)
        self._page = Page(first + count * size, count)
        self._folders = DaemonFolders()
        # The stack of an attempt that runs elsewhere cannot be taken.
        self._stacks = StackFiles(0 if options.executor else first + count)
        self._workers = WorkerProcesses(self._page, options.processes, self._stacks)
        if options.executor:
            self._workers = Places(self._page, options.processes, self._stacks, options.executor)
        self._loops = LoopProcesses(self._page, self._stacks, first, count, size)
        self._dispatcher = DispatcherProcess(self._page)
        self._deaths: list[tuple[int, int]] = []
        self._stops = 0
        self._status: int | None = None
        self._pause = TURN
        # The descriptors that had data to read after the last wait.
        self._readable: frozenset[int] = frozenset()
        self._watcher = Watcher() if options.reload else None
        self._reloading = False

    def run(self) -> int:
        """Run until somebody stops the daemon and all its processes have ended."""
        processes.title("atpd")
        processes.adopt_descendants()
        # The daemon does not kill the processes that a start script has left running.
        self._left_behind = LeftBehind(self._log.pids)
        self._folders.make()
        self._signals = Signals()
        self._output = WorkerOutput(self._page.name_of)
        count, size = self._options.loop_sizes(registry)
        processes.allow_descriptors(self._options.descriptors(registry))
        self._stacks.open()
        inherited = Inherited(self._page, self._options, self._folders, self._stacks)
        leaving = (self._signals.leave_to_parent, self._log.forget)
        self._starts = Forking(
            self._workers, self._loops, self._dispatcher, self._output, leaving, inherited
        )
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
        types, executor = self._options.served(registry), self._options.executor
        places = f"places on {executor}" if executor else "workers"
        journal.daemon_started(
            version=__version__,
            processes=self._options.processes,
            places=places + (f" and loops: {count} of {size} places" if count else ""),
            database=_database(),
            count=len(types),
            types=named(types),
        )
        for type, lacks in self._options.left_out(registry).items():
            journal.type_left_out(type=type, lacks=", ".join(lacks))
        try:
            while self._status is None:
                self._turn()
                self._wait()
        finally:
            self._kill_everything()
            self._folders.remove()
            self._log.close()
        if self._reloading:
            self._watcher.start_anew()  # type: ignore[union-attr]
        return 0 if self._status == DONE else 1

    def close(self) -> None:
        """Close what the run has left open, for a process that goes on after it."""
        self._dispatcher.close()
        self._signals.close()
        self._folders.close()
        self._stacks.close()

    def _wait(self) -> None:
        # The descriptors change, and a poll object is quickly made.
        poll = select.poll()
        for descriptor in (*self._sources(), *self._output.descriptors()):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(1000 * self._output.pause(self._pause))
        self._readable = frozenset(descriptor for descriptor, _ in ready)
        if self._signals.fileno() in self._readable:
            self._signals.clear()

    def _sources(self) -> list[int]:
        channel = self._dispatcher.channel
        own = [each.fileno() for each in (self._signals, channel) if each is not None]
        return [*own, *self._workers.sources()]

    def _turn(self) -> None:
        for why in self._signals.take_stops():
            self._reloading = False  # a signal to stop wins over a reload
            self._stop(why)
        self._output.forward(self._readable)
        self._reap()
        channel = self._dispatcher.channel
        if channel is not None and channel.fileno() in self._readable:
            self._receive()
        while self._deaths:
            deaths, self._deaths = self._deaths, []
            self._on_deaths(deaths)
        for place, how, cause in self._workers.over():
            self._on_place_over(place, how, cause)
        if self._status is not None:
            return
        self._pause = min(TURN, self._workers.enforce_limits(), self._loops.enforce_limits())
        for slot, pid, key, stack in self._workers.looked():
            self._dispatcher.send(protocol.StackTaken(slot, pid, key, time.time(), stack))
        self._enforce_lease()
        self._reload_if_changed()
        if self._starts.start_missing(stopping=self._stops > 0) and self._stops:
            self._tell_to_stop()
        self._dispatcher.flush()
        self._log.turn()

    def _reap(self) -> None:
        processes.reap(lambda pid, status: self._deaths.append((pid, status)))

    def _receive(self) -> None:
        for message in self._dispatcher.receive():
            group = self._loops if self._loops.has(message.slot) else self._workers
            done = ASKED[type(message)](group)(*message)
            answer = ANSWERS.get(type(message))
            if done and answer is not None:
                self._dispatcher.send(answer(*message, time.time()))
        if self._dispatcher.stop and not self._stops:
            self._reloading = False
            self._stop(self._dispatcher.stop)

    # Stopping

    def _stop(self, why: str) -> None:
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

    def _tell_to_stop(self) -> None:
        self._dispatcher.send(protocol.Stop(self._options.grace if self._stops == 1 else 0.0))

    def _reload_if_changed(self) -> None:
        if self._watcher is None or self._stops:
            return
        changed = self._watcher.changed()
        if changed is not None:
            journal.reloading(file=changed)
            self._reloading = True
            self._stop("its code changed")

    def _kill_everything(self) -> None:
        for group in (self._workers, self._loops):
            group.kill_all(messages.daemon_ended())
        for pid in (self._dispatcher.pid, *self._workers.spared()):
            if pid is not None:
                processes.kill(pid)
        own = self._own_pids()
        left = self._left_behind.end((), self._reap) - own
        if left:
            journal.left_running(count=len(left))
        self._reap()
        self._output.end()

    def _own_pids(self) -> set[int | None]:
        """Return the pids of the daemon's processes that live; they are no handler's."""
        return {self._dispatcher.pid, *self._workers.pids(), *self._loops.pids()}

    # Deaths

    def _on_deaths(self, deaths: list[tuple[int, int]]) -> None:
        """Clean up after children that have ended, and tell the dispatcher of dead workers."""
        # The pid of no worker is that of an orphan that an earlier worker has left. Dead workers
        # come first: otherwise the death of the dispatcher would count as the reason of theirs.
        dead = [
            (worker, status)
            for pid, status in deaths
            if (worker := self._workers.remove(pid, status)) is not None
        ]
        dead_loops = [
            (loop, status)
            for pid, status in deaths
            if (loop := self._loops.remove(pid, status)) is not None
        ]
        for pid, status in deaths:
            if pid == self._dispatcher.pid:
                self._on_dispatcher_death(status)
        if not dead and not dead_loops:
            return
        # The processes of a handler are dead before its Task may be run again.
        if not processes.LINUX:
            pids = [*(each.pid for each, _ in dead), *(each.pid for each, _ in dead_loops)]
            descendants.kill_sessions(pids)
        left = 0
        if self._status is None:  # otherwise the end of this process kills them
            left = len(self._left_behind.end(self._own_pids(), self._reap))
        for worker, status in dead:
            self._on_worker_death(worker, status, left)
            left = 0  # nobody knows whose they were: the first one has them
        for loop, status in dead_loops:
            self._on_loop_death(loop, status, left)
            left = 0

    def _on_worker_death(self, dead: WorkerProcess, status: int, left: int) -> None:
        running = self._page.read(dead.slot)
        self._page.leave(dead.slot)
        self._output.ended(dead.slot)
        how = processes.describe_status(status)
        if dead.why:
            journal.worker_killed(worker=dead.slot, pid=dead.pid, why=dead.why)
        elif os.waitstatus_to_exitcode(status) != 0 or running is not None:
            journal.worker_died(worker=dead.slot, pid=dead.pid, how=how)
        if left:
            journal.left_behind(worker=dead.slot, count=left)
        cause = dead.cause or processes.cause_of(status)
        facts = how, dead.why, running, left, cause, dead.stack
        self._dispatcher.send(protocol.WorkerDied(dead.slot, dead.pid, *facts))

    def _on_loop_death(self, dead: LoopProcess, status: int, left: int) -> None:
        self._output.ended(dead.slots[0])
        how = processes.describe_status(status)
        ends = list(self._loops.ends(dead, status))
        if dead.why:
            journal.loop_killed(loop=dead.number, pid=dead.pid, why=dead.why)
        elif os.waitstatus_to_exitcode(status) != 0 or any(end.running for end in ends):
            journal.loop_died(loop=dead.number, pid=dead.pid, how=how)
        if left:
            journal.left_behind(worker=dead.slots[0], count=left)
        for end in ends:
            facts = how, end.why, end.running, left, end.cause, end.stack, end.beside
            left = 0
            self._dispatcher.send(protocol.WorkerDied(end.slot, dead.pid, *facts))

    def _on_place_over(self, place: WorkerProcess, how: str, cause: str) -> None:
        """Tell the dispatcher that nothing is left of the attempt at a place."""
        running = self._page.read(place.slot)
        self._page.leave(place.slot)
        facts = how, place.why or how, running, 0, place.cause or cause
        self._dispatcher.send(protocol.WorkerDied(place.slot, place.pid, *facts))

    def _on_dispatcher_death(self, status: int) -> None:
        self._receive()
        code = os.waitstatus_to_exitcode(status)
        if code in (DONE, UNDELIVERED):
            self._dispatcher.pid = None
            self._status = code
            return
        # The messages that the dispatcher had not recorded are lost. Kill the workers too, so
        # that nothing runs under an identity that is about to end.
        self._dispatcher.died(status)
        self._kill_workers(messages.dispatcher_died())

    def _enforce_lease(self) -> None:
        """Kill the workers before other daemons may take their Tasks; kill a hung dispatcher."""
        # The turn may have taken long: the dispatcher may have renewed the lease meanwhile.
        self._receive()
        until = self._dispatcher.lease_until
        if until is not None and uptime() >= until:
            self._dispatcher.lease_until = None
            self._kill_workers(messages.lease_over())
            journal.lease_over(seconds=settings.KILL_AFTER)
        self._dispatcher.end_if_silent(settings.KILL_AFTER)

    def _kill_workers(self, why: str) -> None:
        """Kill all workers and the processes that they started; wait until all are dead."""
        self._workers.kill_all(why)
        self._loops.kill_all(why)
        self._left_behind.end({self._dispatcher.pid, *self._workers.spared()}, self._reap)


def _database() -> str:
    """Return the alias, the vendor and the name of the queue's database; no host and no user."""
    connection = connections[settings.DATABASE]
    return f"{connection.alias!r} ({connection.vendor}, {connection.settings_dict['NAME']})"
