"""What a test that starts processes has left: there must be none of its processes and sessions."""

import os
from dataclasses import dataclass

import psutil
from django.db import connection

from .daemon.warm import Warm
from .helpers import wait_for

# The names of its processes begin so.
BROWSERS = ("chrom", "headless_shell")


@dataclass(frozen=True)
class Others:
    """Processes below this one, and sessions of others in its database; both by their pids."""

    processes: frozenset[int]
    sessions: frozenset[int]

    @classmethod
    def now(cls):
        return cls(frozenset(_processes()), frozenset(_sessions()))


def nothing_since(before):
    """Fail if there are others than there were ``before``, also after a while."""

    def ended():
        now = Others.now()
        return now.processes <= before.processes and now.sessions <= before.sessions

    try:
        wait_for(ended, what="the end of all that the test has started")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{_told(before)}") from None


def _processes():
    """Return a description of each process below this one, by its pid, but for the browser's.

    The browser serves all tests of a run, and begins and ends processes of its own as it likes.
    """
    found = {}
    for child in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if child.status() == psutil.STATUS_ZOMBIE or child.name().startswith(BROWSERS):
                continue
            if child.pid not in Warm.hot_pids:
                found[child.pid] = " ".join(child.cmdline())
        except psutil.NoSuchProcess:
            continue
    return found


def _sessions():
    """Return the state and the statement of each other session of the database, by its pid."""
    if connection.vendor != "postgresql":
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, concat_ws(' ', application_name, state, query) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
        return dict(cursor.fetchall())


def _told(before):
    processes, sessions = _processes(), _sessions()
    lines = [f"process {pid}: {processes[pid]}" for pid in processes if pid not in before.processes]
    lines += [f"session {pid}: {sessions[pid]}" for pid in sessions if pid not in before.sessions]
    return "\n".join(lines)
