"""What a test that starts processes has left: there must be none of its processes and sessions."""

import os

import psutil
from django.db import connection

from .daemon.warm import Warm
from .helpers import wait_for

# The names of the browser's processes begin so. It serves all tests of a run, and begins and ends
# processes of its own as it likes.
BROWSERS = ("chrom", "headless_shell")


def others():
    """Describe, by kind and pid, processes below this one and other sessions of its database."""
    found = {}
    for child in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if child.status() == psutil.STATUS_ZOMBIE or child.name().startswith(BROWSERS):
                continue
            if child.pid not in Warm.hot_pids:
                found["process", child.pid] = " ".join(child.cmdline())
        except psutil.NoSuchProcess:
            continue
    return found | _sessions()


def nothing_since(before):
    """Fail if there are others than there were ``before``, also after a while."""
    try:
        wait_for(lambda: others().keys() <= before.keys(), what="the end of what the test started")
    except AssertionError as error:
        left = [item for item in others().items() if item[0] not in before]
        lines = [f"{kind} {pid}: {told}" for (kind, pid), told in left]
        raise AssertionError("\n".join([str(error), *lines])) from None


def _sessions():
    if connection.vendor != "postgresql":
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, concat_ws(' ', application_name, state, query) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
        return {("session", pid): told for pid, told in cursor.fetchall()}
