"""Handlers that are coroutine functions, run by real daemons."""

import pytest
from django.contrib.auth.models import Group

from atp import queue
from atp.states import Reason, State
from atp.words import attempt_messages
from tests.app import tasks_async as types
from tests.app import tasks_daemon
from tests.helpers import DEADLINE, wait_for

from ..nonsense import tells
from .test_cancel import assert_cancelled, cancel, running
from .test_running import drain


def test_it_awaits_and_returns(atpd):
    """What it says while it runs is sent as that of any handler."""
    instance = types.gather.enqueue(count=4)
    drain(atpd, processes=1)
    assert instance.wait(0).state == State.FINISHED
    assert queue.response(instance).value == {"sum": 6}
    assert "gathered" in [row.message for row in instance.log]


def test_the_asynchronous_orm_runs_in_the_main_thread(atpd):
    """So its connections are the worker's own, which puts them back."""
    instance = types.orm.enqueue(name="readers")
    drain(atpd, processes=1)
    assert queue.response(instance.wait(0)).value == {
        "made": "readers",
        "found": 1,
        "orm in main": True,
        "own": False,
    }


def test_a_transactional_one_commits_with_its_end(atpd):
    """G7: all of it or nothing."""
    good = types.together.enqueue(name="kept")
    bad = types.together.enqueue(name="rolled back", fails=True)
    drain(atpd, processes=1)
    assert queue.response(good.wait(0)).value == {"in transaction": True}
    assert bad.wait(0).reason == Reason.FATAL
    assert list(Group.objects.values_list("name", flat=True)) == ["kept"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("retry", "turned away"),
        ("raise", "LookupError: went wrong"),
        ("exit", "SystemExit: 3"),
        ("cancels itself", "CancelledError"),
    ],
)
def test_what_it_raises_is_told_and_tried_again(atpd, how, words):
    """G5: its worker goes on, also after SystemExit."""
    instance = types.raises.enqueue(how=how)
    daemon = atpd(processes=1)
    assert (instance.wait(DEADLINE).reason, instance.retries) == (Reason.ERROR, 1)
    assert words in instance.log.transitions().last().message
    assert not daemon.facts("worker_died")


@pytest.mark.parametrize("name", ["sleep", "stubborn", "looks"])
def test_one_that_is_cancelled_ends(atpd, record, name):
    """Within its grace, where it awaits or looks; what does neither is killed after that."""
    instance = getattr(types, name).enqueue(path=str(record))
    daemon = atpd(processes=1)
    record.wait_for("start")
    cancel(instance)
    assert_cancelled(instance)
    last = instance.log.transitions().last().message
    is_killed = name == "stubborn"
    assert tells(last, attempt_messages.killed_after_grace(0.5)) == is_killed
    if name == "sleep":
        assert len(record.lines("cleaned up")) == 1
    if is_killed:
        assert len(record.lines("cancelled")) == 1
    after = tasks_daemon.note.enqueue(path=str(record))
    assert after.wait(DEADLINE).state == State.FINISHED
    assert daemon.stop() == 0


def test_one_that_is_released_goes_back(atpd, record):
    instance = types.looks.enqueue(path=str(record))
    daemon = atpd(processes=1)
    record.wait_for("start")
    running(instance)
    queue.release(instance)
    wait_for(lambda: len(record.lines("start")) == 2, what="its second attempt")
    assert not daemon.facts("worker_killed")
    instance.refresh_from_db()
    assert (instance.retries, instance.lost) == (0, 0)
    queue.cancel(instance)
    assert instance.wait(DEADLINE).reason == Reason.CANCELLED


def test_its_time_out_kills_it(atpd, record):
    """G5."""
    instance = types.sleep.using(timeout=0.3).enqueue(path=str(record))
    drain(atpd, processes=1)
    assert (instance.wait(0).reason, instance.restarts) == (Reason.STALE, 4)


def test_a_step_runs_in_the_main_thread(atpd, record):
    instance = types.steps.enqueue(path=str(record))
    atpd(processes=1)
    assert queue.response(instance.wait(DEADLINE)).value == {"charged": 1}
    assert len(record.lines("charged")) == 1
