"""A daemon scans by itself, and nothing that goes wrong with a scan stops it."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import OperationalError

from atp import queue
from atp.daemon.chores.scanning import Scan
from atp.models import Task
from atp.states import State
from atp.store.findings import Cursor, Scanned
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, wait_for
from tests.store.broken import age


def test_what_was_forgotten_is_done_after_all(atpd, record):
    """G1 and G2: a live Instance without a Task gets one, from a daemon that runs already."""
    first = types.note.enqueue(path=str(record), number=1)
    daemon = atpd(processes=1, settings={"SCAN_EVERY": 0.2})
    first.wait(DEADLINE)
    lost = types.note.using(run_after=timedelta(hours=1)).enqueue(path=str(record), number=2)
    age(lost.pk)
    Task.objects.filter(pk=lost.pk).delete()
    lost.wait(DEADLINE)
    assert (lost.state, lost.lost) == (State.FINISHED, 0)
    [mended] = wait_for(lambda: daemon.facts("mended"))
    assert str(lost.uuid) in mended["what"]
    assert not daemon.facts("scan_failed")
    assert queue.scan() == []
    assert daemon.stop() == 0


class Store:
    """Answers a scan with what it is given, and remembers from where it was to go on."""

    def __init__(self, *answers):
        self.answers, self.cursors = list(answers), []

    def scan(self, cursor, *, who):
        self.cursors.append(cursor)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_it_goes_on_where_it_stopped_and_begins_anew_after_a_failure():
    here = Cursor(task=3, instance=5)
    store = Store(Scanned(cursor=here), ValueError("odd"), Scanned())
    scan = Scan(SimpleNamespace(store=store))
    assert [scan.scan("who") for _ in range(3)] == [(), (), ()]
    assert store.cursors == [None, here, None]


def test_that_the_database_is_away_is_not_its_concern():
    with pytest.raises(OperationalError):
        Scan(SimpleNamespace(store=Store(OperationalError("gone")))).scan("who")
