"""Where the project's log handlers are called: a thread or a process beside the daemon's work."""

import contextlib
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from . import log_handlers, processes
from .log_handlers import Handle, close_broken_connections, complaints, guarded, loggers
from .protocol import Channel, Closed
from .stderr import NonBlockingStream

# The process that calls the project's log handlers for the supervisor.
#
# The supervisor forks, so it may have no thread. A lock or a half import that a handler holds
# during a fork would stay held for ever in the child. A fork also waits for the lock of the
# logging module. So the supervisor sends its lines to a child process that does nothing else.
# That process starts with the first line that is not for ATP's own handler alone.

# A log process is started no sooner than this many seconds after the start of the last one.
NEXT_AFTER = 5.0


class LogProcess:
    """The supervisor's link to the log process.

    ``tell_dropped(count=…)`` logs the number of dropped lines. The new process calls
    ``ready()`` before its first line.
    """

    def __init__(self, tell_dropped: Callable[..., object], ready: Callable[[], object]) -> None:
        self._tell_dropped, self._ready = tell_dropped, ready
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        self._pid: int | None = None
        self._channel: Channel | None = None
        self._due = 0.0
        # The functions that the new process calls first, to let go of its parent's resources.
        self.leaving: Sequence[Callable[[], object]] = ()

    def start(self) -> None:
        """Begin to take the records that this process logs."""
        loggers.intercept(self._take)

    def pids(self) -> set[int]:
        """Return a set with the pid of the log process; empty while there is none."""
        return set() if self._pid is None else {self._pid}

    def _take(self, handle: Handle, logger: logging.Logger, record: logging.LogRecord) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._dropped += 1
            if self._dropped == 1:
                complaints.tell(f"they block: {MOST_WAITING} lines wait, further ones are dropped")
            return
        try:
            self._waiting.append(log_handlers.packed(record))
        except Exception as error:
            complaints.tell("a line could not be logged", error)
        self._flush()

    def turn(self) -> None:
        """Start the process if it is missing and lines wait for it; send the waiting lines."""
        if self._waiting and self._pid is None and time.monotonic() >= self._due:
            self._due = time.monotonic() + NEXT_AFTER
            with contextlib.suppress(OSError):
                self._fork()
        self._flush()

    def _flush(self) -> None:
        while self._waiting and self._channel is not None:
            try:
                self._channel.send(self._waiting[0], wait=False)
            except BlockingIOError:
                return
            except Closed:
                self._channel.close()
                self._pid = self._channel = None
                return
            except OSError as error:  # no descriptor, or no memory, for a long line
                complaints.tell("a line could not be logged", error)
            self._waiting.popleft()
            if self._dropped and len(self._waiting) < MOST_WAITING // 2:
                count, self._dropped = self._dropped, 0
                self._tell_dropped(count=count)

    def _fork(self) -> None:
        ours, theirs = Channel.pair()

        def run(parent: int) -> int:
            loggers.stop()
            ours.close()
            for leave in self.leaving:
                leave()
            return _be_log_process(parent, theirs, self._ready)

        try:
            self._pid = processes.fork(run)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channel = ours

    def forget(self) -> None:
        """In a child: close the channel and drop the lines; the process belongs to the parent."""
        if self._channel is not None:
            self._channel.close()
        self._pid = self._channel = None
        self._waiting.clear()

    def close(self) -> None:
        """Wait up to PATIENCE until the handlers have taken the waiting lines; end the process.

        Lines that are logged later go nowhere, unless the interception is stopped.
        """
        self.turn()
        deadline = time.monotonic() + PATIENCE
        while self._waiting and self._channel is not None and time.monotonic() < deadline:
            time.sleep(0.005)
            self._flush()
        pid, self.leaving = self._pid, ()
        self.forget()
        if pid is None:
            return
        with contextlib.suppress(ChildProcessError):  # it has been reaped
            while os.waitpid(pid, os.WNOHANG)[0] == 0:
                if time.monotonic() >= deadline:
                    processes.kill(pid)
                    os.waitpid(pid, 0)
                    return
                time.sleep(0.005)


def _be_log_process(parent: int, channel: Channel, ready: Callable[[], object]) -> int:
    processes.title("atpd-log")
    # Even if the handlers hang, the log process must not outlive its daemon.
    if not processes.die_with_parent(parent, signal.SIGKILL):
        return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, processes.ignore)
    # Handlers that fail write any text there.
    sys.stderr = NonBlockingStream()
    guarded(ready)
    with contextlib.suppress(Closed):
        while True:
            data, _ = channel.receive()
            guarded(_handle, data)
            guarded(close_broken_connections)
    guarded(flush)
    return 0


def _handle(data: bytes) -> None:
    record = log_handlers.unpacked(data)
    logger = logging.getLogger(record.name)
    logger.handle(log_handlers.completed(logger, record))


# The thread of the dispatcher that calls the project's log handlers.

# The most lines that wait; further ones are dropped and counted.
MOST_WAITING = 2000
# At its end a process waits this long, in seconds, for the handlers to take the waiting lines.
PATIENCE = 2.0


class LogThread:
    """The thread that handles this process's log records.

    ``tell_dropped(count=…)`` logs the number of dropped lines.
    """

    def __init__(self, tell_dropped: Callable[..., object]) -> None:
        self._tell_dropped = tell_dropped
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="atp-log", daemon=True)

    def start(self) -> None:
        """Begin to take log records. Call this after the fork."""
        self._thread.start()
        loggers.intercept(self._take)

    def _take(self, handle: Handle, logger: logging.Logger, record: logging.LogRecord) -> None:
        self._put(partial(handle, record))

    def _put(self, call: Callable[[], object]) -> None:
        if self._calls.qsize() < MOST_WAITING:
            self._calls.put(call)
            return
        self._dropped += 1
        if self._dropped == 1:
            complaints.tell(f"they block: {MOST_WAITING} lines wait, further ones are dropped")

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            guarded(call)
            guarded(close_broken_connections)
            # A traceback in the record would keep its frames alive.
            del call
            if self._dropped and self._calls.qsize() < MOST_WAITING:
                count, self._dropped = self._dropped, 0
                guarded(partial(self._tell_dropped, count=count))

    def close(self) -> None:
        """Wait up to PATIENCE until the handlers have taken the waiting lines."""
        self._calls.put(flush)
        self._calls.put(None)
        self._thread.join(PATIENCE)


def flush() -> None:
    """Flush all log handlers: a process of a daemon exits without atexit functions."""
    for reference in logging._handlerList[:]:  # type: ignore[attr-defined]
        with contextlib.suppress(Exception):
            handler = reference()
            if handler is not None:
                handler.flush()
