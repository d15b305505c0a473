"""Processes that are stopped and go on later: nobody runs twice at once (G3, G4)."""

import contextlib
import os
import signal
import time

import pytest
from django.db import connection

from atp.states import State
from tests.app import tasks_daemon as types
from tests.helpers import DEADLINE, stays, wait_for

from .harness import Record, story
from .scenario import TWICE, stopped_between_transactions, wait_until

# How much longer than until its thaw a frozen daemon's attempt may go on, in seconds:
# a turn of its supervisor, and what a loaded machine adds.
BOUND = 0.25 + 1.0


def last_sign(record, attempt):
    """When this attempt was last seen executing, on the clock that all processes share."""
    return max(line["time"] for line in record.lines() if line["attempt"] == attempt)


def first_sign(record, attempt):
    return min(line["time"] for line in record.lines() if line["attempt"] == attempt)


def has_begun(record, attempt):
    return any(line["attempt"] == attempt for line in record.lines("start"))


def finished_by_the_second(instance):
    instance.wait(DEADLINE)
    assert (instance.state, instance.attempt) == (State.FINISHED, 2)
    assert instance.response.value == 2
    assert story(instance)[-4:] == TWICE[-4:]


@pytest.mark.timeout(180)
def test_workers_of_a_stopped_dispatcher_die_before_its_lease_ends(
    atpd, begin, record, flag, tmp_path
):
    """G3: no overlap, one result. G4: what has ended meanwhile never becomes FINISHED."""
    ending = Record(tmp_path / "ended")
    until = flag.with_name("until")
    ended = types.ticking.enqueue(path=str(ending), until=str(until))
    instance, daemon, _ = begin(types.ticking, processes=2)
    other = atpd(processes=2).ready()
    ending.wait_for("start")
    wait_until(State.RUNNING, ended)
    with stopped_between_transactions(daemon.dispatcher()):
        until.touch()
        ending.wait_for("end")
        for each in (record, ending):
            wait_for(lambda each=each: has_begun(each, 2), what="another attempt")
    flag.touch()
    for each, lines in ((instance, record), (ended, ending)):
        finished_by_the_second(each)
        assert last_sign(lines, 1) < first_sign(lines, 2)
    # The supervisor was not stopped, and has put its own house in order.
    assert daemon.facts("dispatcher_died")
    daemon.ready(workers=2)
    assert daemon.stop() == 0
    assert other.stop() == 0


@pytest.mark.timeout(180)
def test_overlap_of_a_frozen_daemon_ends_soon_after_its_thaw(atpd, begin, record, flag):
    """G3, its limit."""
    instance, daemon, _ = begin(types.ticking)
    other = atpd(processes=1).ready()
    with stopped_between_transactions(daemon.dispatcher()):
        frozen = [daemon.pid, *daemon.workers()]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        if connection.vendor == "sqlite":
            # Its lease is a lock that it still holds: nobody takes anything away.
            stays(lambda: not has_begun(record, 2), 12, what="one attempt alone")
        else:
            wait_for(lambda: has_begun(record, 2), what="another attempt")
        for pid in frozen:
            # The supervisor comes first, and may have killed its workers by now.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        thawed = time.monotonic()
    if connection.vendor == "sqlite":
        flag.touch()
        instance.wait(DEADLINE)
        assert (instance.state, instance.attempt) == (State.FINISHED, 1)
        return
    daemon.wait_for_fact("lease_over")
    stays(lambda: last_sign(record, 1) - thawed < BOUND, BOUND + 1, what="the overlap's end")
    flag.touch()
    finished_by_the_second(instance)
    assert not [line for line in record.lines("end") if line["attempt"] == 1]
    assert other.process.poll() is None
