"""The checks before a daemon starts; a daemon inside another process."""

import contextlib
import gc
import logging
import os
import resource
import select
import signal
from collections.abc import Iterator
from functools import partial
from signal import SIGKILL
from typing import Any

from django.core.files.storage import FileSystemStorage, storages
from django.db import DatabaseError, connections

from ... import folders, signals
from ...conf import settings
from ...operations import base as migrated
from .. import log as journal
from .. import processes
from ..database import bound_connecting
from ..log_handlers import loggers
from ..log_process import LogProcess
from ..processes import uptime

# Sending the signal process_started, which tells the project that a daemon's process began.


def tell_started(role: str) -> None:
    """Send process_started to its receivers, and log those that fail."""
    try:
        told: list[tuple[Any, Any]] = signals.process_started.send_robust(sender=None, role=role)
    except BaseException as error:
        told = [(None, error)]
    for _, error in told:
        if isinstance(error, BaseException):
            journal.receiver_failed(role=role, error=error, exc_info=error)


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
