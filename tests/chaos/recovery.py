"""Recovery: once nothing is disturbed any more, all is done and every daemon is whole again."""

from django.db import DatabaseError, InterfaceError, connection

from atp.daemon.system.processes import uptime
from atp.models import Daemon, Task
from atp.words.orders import Mode
from tests.helpers import wait_for

from .fleet import PROCESSES
from .server import is_back

# From the end of the disturbance until the queue is empty, and until all are whole, in seconds.
DRAINED_WITHIN = 120.0
WHOLE_WITHIN = 45.0


def recovered(fleet, operators, tell):
    """Wait for the recovery; returns what is wanting, in words."""
    wait_for(is_back, what="the database")
    if not fleet.there():
        fleet.join()
    begun = uptime()
    wanting = [*_drained(operators), *whole(fleet, operators.settle)]
    tell(f"         recovered in {uptime() - begun:.1f} s: {len(fleet.there())} daemons")
    return wanting


def stopped(fleet):
    """Stop every daemon in order; returns what is wanting, in words."""
    fleet.stop_all()
    wanting = [f"process {pid} of a daemon that has ended is alive" for pid in fleet.survivors()]
    for row in Daemon.objects.all():
        wanting.append(f"the row of daemon {row} is left, though none is running")
    return wanting


def _drained(operators):
    try:
        wait_for(lambda: _is_empty(operators), timeout=DRAINED_WITHIN, what="an empty queue")
    except AssertionError:
        rows = Task.objects.select_related("instance", "daemon")
        return [
            f"not done {DRAINED_WITHIN:g} s after the end of the disturbance: "
            f"{row.instance.uuid}, {row.instance.state}, held by {row.daemon}, due {row.due_at}"
            for row in rows
        ]
    return []


def _is_empty(operators):
    try:
        # What they have asked for may come true, or to light, only now.
        operators.settle()
        return not Task.objects.exists()
    except (DatabaseError, InterfaceError):
        connection.close()
        return False


def whole(fleet, settle=lambda: None):
    """Wait until each has its dispatcher and workers, has told of them, claims, and renews.

    And until the rows of those that were killed are gone: a lease has to pass before.
    ``settle()`` is called before each look. Returns what is wanting, in words.
    """
    wanting = []
    since = uptime()

    def is_whole():
        settle()
        return not _lacks(fleet, wanting)

    try:
        wait_for(is_whole, timeout=WHOLE_WITHIN, what="all daemons whole")
    except AssertionError:
        return [f"{words}, {uptime() - since:.0f} s after the end" for words in wanting]
    seen = _seen()
    try:
        wait_for(
            lambda: all(_seen().get(pid, 0) > time for pid, time in seen.items()),
            timeout=15,
            what="a renewal of each",
        )
    except AssertionError as error:
        return [str(error)]
    return []


def _seen():
    return {row.pid: row.seen.timestamp() for row in Daemon.objects.all()}


def _lacks(fleet, wanting):
    """Write what is wanting just now into the list, and return it."""
    wanting.clear()
    there = {member.pid: member for member in fleet.there()}
    rows = {row.pid: row for row in Daemon.objects.all()}
    wanting += [f"daemon {pid} is gone, and its row is there" for pid in rows.keys() - there.keys()]
    for pid, member in there.items():
        if member.status is not None:
            wanting.append(f"daemon {pid} has ended with status {member.status}")
            continue
        dispatchers, workers = member.atpd.dispatchers(), set(member.atpd.workers())
        if len(dispatchers) != 1 or len(workers) != PROCESSES:
            told = f"{len(dispatchers)} dispatchers and {len(workers)} workers"
            wanting.append(f"daemon {pid} has {told}")
        if pid not in rows:
            wanting.append(f"daemon {pid} has not joined")
        elif {worker["pid"] for worker in rows[pid].workers} != workers:
            wanting.append(f"daemon {pid} tells of other workers than it has")
        elif rows[pid].mode != Mode.RUNNING:
            wanting.append(f"daemon {pid} is {rows[pid].mode}")
    return wanting
