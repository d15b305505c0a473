"""``max_waiting`` kept by many processes (G13)."""

import subprocess
import sys

import pytest
from django.db import connection, transaction

from atp import queue
from atp.operations import admission

from ..app.tasks import echo
from ..helpers import DEADLINE, Thread, child_environment

pytestmark = pytest.mark.processes
NAME = "tests.echo"
PROCESSES, MOST, ROOM = 3, 300, 270
# Enqueues until it is refused three times, each time after what it keeps is old.
SCRIPT = """
import sys, time, django
django.setup()
from atp.exceptions import QueueFull
from tests.app.tasks import echo
type, refused = echo.using(exact=sys.argv[1] == "exact"), 0
while refused < 3:
    try:
        type.enqueue()
    except QueueFull:
        refused += 1
        time.sleep(0.3)
"""


def _run(how):
    queue.register_all()
    queue.limit(NAME, max_waiting=MOST)
    started = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, how], env=child_environment())
        for _ in range(PROCESSES)
    ]
    assert [each.wait(10 * DEADLINE) for each in started] == [0] * PROCESSES
    return queue.waiting(NAME)


@pytest.mark.parametrize("how", ["kept", "exact"])
def test_many_processes_keep_it(transactional_db, how):
    """Each exceeds it by what it enqueues between two looks; those that take turns never do."""
    over = _run(how) - ROOM
    assert 0 <= over <= (PROCESSES * (ROOM // admission.HEADROOM_PART) if how == "kept" else 0)


def test_a_turn_is_no_lock_that_a_role_without_rights_can_hold(transactional_db):
    """Any role that may connect can hold an advisory lock; a row takes a right on its table."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    queue.register_all()
    queue.limit(NAME, max_waiting=MOST)
    with transaction.atomic(), connection.cursor() as cursor:
        echo.using(exact=True).enqueue()
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        )
        assert cursor.fetchone() == (0,)
        # Enqueues that are not exact, and claims, do not wait for it.
        assert Thread(lambda: echo.enqueue().state).result() == "ACCEPTED"
