"""Timers: when it is time, and for how long it is not."""

import pytest

from atp.daemon.system import timers as module
from atp.daemon.system.timers import Timers


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still at 100 s unless it is set."""
    now = [100.0]
    monkeypatch.setattr(module, "uptime", lambda: now[0])
    return now


def test_what_was_never_done_is_due_at_once_and_then_every_so_often(clock):
    timers = Timers()
    assert timers.due("alive", 1.0)
    assert not timers.due("alive", 1.0)
    assert timers.pause(5.0) == 1.0
    clock[0] = 101.0
    assert timers.due("alive", 1.0)


def test_who_is_at_it_anyway_may_be_early(clock):
    """Nobody wakes up for it alone, and it comes no more than so much before its time."""
    timers = Timers()
    assert timers.due("alive", 1.0, early=0.49)
    clock[0] = 100.5
    assert not timers.due("alive", 1.0, early=0.49)
    clock[0] = 100.8
    assert not timers.due("alive", 1.0)
    assert timers.due("alive", 1.0, early=0.49)
    assert timers.pause(5.0) == pytest.approx(1.0)
