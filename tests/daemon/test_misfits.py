"""Inputs that a daemon's handlers do not take: it leaves the Type to others for a moment."""

import pytest

from atp.daemon.pool import misfits
from atp.daemon.pool.misfits import FORGET_AFTER, LEAVE_FOR, MOST, Misfits

TYPES = ("one", "two")


@pytest.fixture
def clock(monkeypatch):
    """The uptime, as the test sets it."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(misfits, "uptime", lambda: Clock.now)
    return Clock


def test_nothing_is_left_to_others(clock):
    assert Misfits().claimable(TYPES) == TYPES


def test_a_type_is_left_for_a_moment(clock):
    found = Misfits()
    found.add("one", 1)
    assert found.claimable(TYPES) == ("two",)
    clock.now += LEAVE_FOR
    assert found.claimable(TYPES) == TYPES


def test_it_is_left_for_longer_if_nobody_else_took_it(clock, settings):
    """Others may have to look by themselves."""
    settings.ATP = settings.ATP | {"POLL_EVERY": 1.0}
    found = Misfits()
    found.add("one", 1)
    found.add("one", 1)
    found.add("one", 2)
    clock.now += LEAVE_FOR + 0.9
    assert found.claimable(TYPES) == ("two",)
    clock.now += 0.2
    assert found.claimable(TYPES) == TYPES


def test_a_daemon_that_drains_leaves_nothing(clock):
    found = Misfits(leaves=False)
    found.add("one", 1)
    assert found.claimable(TYPES) == TYPES


def test_what_is_told(clock):
    found = Misfits()
    found.add("one", 1)
    found.add("two", 2)
    found.add("one", 3)
    assert found.by_type() == {"one": [1, 3], "two": [2]}


def test_what_was_long_ago_is_forgotten(clock):
    found = Misfits()
    found.add("one", 1)
    clock.now += FORGET_AFTER / 2
    found.add("one", 2)
    clock.now += FORGET_AFTER / 2 + 1
    assert found.by_type() == {"one": [2]}


def test_only_the_last_are_remembered(clock):
    found = Misfits()
    for instance in range(MOST + 2):
        found.add("one", instance)
    assert len(found.by_type()["one"]) == MOST
    assert 1 not in found.by_type()["one"]
