"""``max_waiting`` kept by many processes, and by a client that does as it is told (G13)."""

import subprocess
import sys
import time

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from atp import queue
from atp.models import Instance, Type
from atp.verbs.overload import known

from ..api.client import Api
from ..app.tasks import echo
from ..helpers import DEADLINE, Thread, child_environment

pytestmark = [pytest.mark.each_database, pytest.mark.processes]
NAME = "tests.echo"
PROCESSES, MOST, ROOM = 8, 1000, 900
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


def test_each_process_exceeds_it_by_what_it_enqueues_between_two_looks(transactional_db):
    waiting = _run("kept")
    assert ROOM <= waiting <= ROOM + PROCESSES * (ROOM // known.OF_ROOM)


def test_processes_that_take_turns_never_exceed_it(transactional_db):
    assert _run("exact") == ROOM


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


def test_a_type_that_is_not_registered_yet_takes_turns(transactional_db):
    """The first of them registers it, and the others wait for that."""
    Type.objects.filter(identifier=NAME).delete()
    with transaction.atomic():
        echo.using(exact=True).enqueue()
        assert Type.objects.filter(identifier=NAME).exists()
    assert queue.waiting(NAME) == 1


def test_a_client_that_honours_429_gets_everything_in(atpd):
    echo.enqueue_many([{}] * 600)
    atpd("--drain", processes=1).wait()
    known.forget()
    queue.limit(NAME, max_waiting=10)
    atpd(processes=1)
    api, refused, deadline = (
        Api(User.objects.create_superuser("root", password="secret")),
        0,
        10 * DEADLINE,
    )
    until = time.monotonic() + deadline
    left = 60
    while left:
        assert time.monotonic() < until
        answer = api.post("instances", {"type": NAME, "inputs": {}})
        if answer.status_code == 201:
            left -= 1
        else:
            assert answer.status_code == 429
            refused += 1
            time.sleep(int(answer["Retry-After"]))
    assert Instance.objects.count() == 660
