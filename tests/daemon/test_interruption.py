"""The signal that interrupts a handler, and nothing around it."""

import os
import signal

import pytest

from atp import Interrupted
from atp.daemon.worker.interruption import SIGNAL, Interruption

KEY, OTHER = (1, 1), (2, 1)


@pytest.fixture
def asked():
    """The attempts that have been asked to end."""
    return set()


@pytest.fixture
def interruption(asked):
    was = signal.getsignal(SIGNAL)
    interruption = Interruption(asked.__contains__)
    interruption.listen()
    interruption.expect(KEY)
    yield interruption
    signal.signal(SIGNAL, was)


def strike():
    """Send this process the signal; its handler has run when this returns."""
    os.kill(os.getpid(), SIGNAL)


def test_inside_the_handler(interruption, asked):
    asked.add(KEY)
    with pytest.raises(Interrupted), interruption:
        strike()
    assert interruption.has_struck


def test_once(interruption, asked):
    """Who cleans up is not interrupted again."""
    asked.add(KEY)
    cleaned = []

    def handler():
        try:
            strike()
        finally:
            strike()
            cleaned.append(True)

    with pytest.raises(Interrupted), interruption:
        handler()
    assert cleaned


def test_what_is_meant_for_another_attempt(interruption, asked):
    """It comes when that has ended, and the next one runs already."""
    asked.add(OTHER)
    with interruption:
        strike()
    assert not interruption.has_struck


def test_between_attempts_nothing_is_raised(interruption, asked):
    asked.add(KEY)
    with interruption:
        pass
    strike()
    interruption.expect(OTHER)
    with interruption:
        pass
    assert not interruption.has_struck


def test_before_the_handler_it_is_remembered(interruption, asked):
    """The inputs may be long to read."""
    asked.add(KEY)
    strike()
    entered = False
    with pytest.raises(Interrupted), interruption:
        entered = True
    assert not entered
    assert not interruption.has_struck
    strike()
    interruption.expect(OTHER)
    with interruption:
        pass


def test_without_anybody_to_take_it_nothing_happens():
    """The default of this signal is to be ignored: whatever a task makes of it, it kills nobody."""
    was = signal.signal(SIGNAL, signal.SIG_DFL)
    try:
        strike()
    finally:
        signal.signal(SIGNAL, was)
