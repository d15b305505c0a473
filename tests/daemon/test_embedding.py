"""``call_command("atpd", drain=True)``: a daemon in a process that goes on afterwards."""

import json
import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from atp import queue
from atp.models import Instance
from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, child_environment

# What a process is like, before and after. Python opens some things only once.
SCRIPT = """
import ctypes, django, gc, json, logging, os, resource, signal
django.setup()
from django.core.management import call_command
from django.db import connections

def facts():
    adopts = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(adopts), 0, 0, 0)
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    log = logging.getLogger("atp")
    return {
        "handlers": [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "wakeup": wakeup,
        "adopts": adopts.value,
        "name": open("/proc/self/comm").read(),
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "frozen": gc.get_freeze_count(),
        "log": [len(log.handlers), log.propagate, log.level],
    }

connections.close_all()
call_command("check")
seen = [facts()]
for _ in range(2):
    call_command("atpd", drain=True, processes=1)
    seen.append(facts())
print(json.dumps(seen))
"""


def test_it_returns_and_leaves_the_process_as_it_was(transactional_db, tmp_path):
    """Signals still end it, no descriptor is left, twice in a row."""
    queue.register_all()
    instance = types.note.enqueue(path=str(tmp_path / "record"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, once, twice = json.loads(done.stdout.splitlines()[-1])
    assert once == before
    assert twice == before
    instance.refresh_from_db()
    assert instance.state == State.FINISHED


def test_inside_a_transaction_it_is_refused(transactional_db, tmp_path):
    """It would not see what is enqueued there, as in a TestCase; and nothing is broken by it."""
    queue.register_all()
    with transaction.atomic():
        types.note.enqueue(path=str(tmp_path / "record"))
        with pytest.raises(CommandError, match="TransactionTestCase"):
            call_command("atpd", drain=True, processes=1)
        assert Instance.objects.live().count() == 1
