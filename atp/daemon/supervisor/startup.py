"""Checks before a daemon starts: of the database, with a time limit, and of the storage."""

import os
import select
from functools import partial
from signal import SIGKILL

from django.core.files.storage import FileSystemStorage, storages
from django.db import DatabaseError, connections

from ... import folders
from ...conf import settings
from ...operations import base as migrated
from .. import journal
from ..sinks.log_process import LogProcess
from ..started import tell_started
from ..system import processes
from ..system.database import bound_connecting
from ..system.processes import uptime


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


def begin_log(style, verbosity) -> LogProcess:
    """Configure the daemon's log; from now on the log process calls the project's handlers."""
    journal.configure(style, verbosity)
    log = LogProcess(journal.lines_dropped, partial(tell_started, "log"))
    log.start()
    return log


def tell_of_storage() -> None:
    """Log a warning if files cannot be stored, before a handler does its work for nothing."""
    storage = storages[settings.STORAGE]
    if isinstance(storage, FileSystemStorage) and storage.base_location:
        why = folders.why_unwritable(storage.location)
        if why:
            journal.storage_refused(why=why)


def _ask(writing, parent):
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


def _read(descriptor, deadline):
    """Read the descriptor to its end and return the bytes; None if the end comes too late."""
    answer = b""
    while (left := deadline - uptime()) > 0:
        if select.select([descriptor], [], [], left)[0]:
            data = os.read(descriptor, 4096)
            if not data:
                return answer
            answer += data
    return None
