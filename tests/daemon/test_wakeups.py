"""The thread that listens: when it may rest, and when somebody always has to hear (G15)."""

import queue

from atp.conf import settings
from atp.daemon.dispatcher import wakeups
from atp.daemon.dispatcher.wakeups import PIECE, Wakeups
from tests.helpers import DEADLINE


class Listener:
    """One that is told what to answer; ``waits`` are the time-outs that it was asked with."""

    is_deaf = False

    def __init__(self, *, keeps, channel="a"):
        self.keeps, self.channel = keeps, channel
        self.waits, self._answers, self._handed = queue.Queue(), queue.Queue(), []

    def wait(self, timeout):
        self.waits.put(timeout)
        came, handed, self.channel = self._answers.get()
        self._handed += handed
        return came

    def handed(self):
        handed, self._handed = self._handed, []
        return handed

    def close(self):
        pass

    def answer(self, came=False, handed=(), channel="a"):
        """Let the wait end that is under way; returns its time-out."""
        timeout = self.waits.get(timeout=DEADLINE)
        self._answers.put((came, handed, channel))
        return timeout


class Store:
    def __init__(self, listener):
        self._listener = listener

    def listener(self):
        return self._listener


def listening(listener):
    """Return the thread, and queues of what it tells."""
    rings, handed = queue.Queue(), queue.Queue()
    ears = Wakeups(Store(listener), lambda: rings.put(1), lambda *pair: handed.put(pair))
    return ears, rings, handed


def test_what_keeps_is_looked_for_once_more_before_it_rests():
    """G1: it may have been handed something until then."""
    listener = Listener(keeps=True)
    ears, rings, handed = listening(listener)
    ears.listen(False, may_be_handed=True)
    assert listener.waits.get(timeout=DEADLINE) == PIECE
    ears.listen(False, may_be_handed=False)
    listener._answers.put((False, [], "a"))
    assert listener.answer(True, [("daemon", "task")]) == 0
    assert handed.get(timeout=DEADLINE) == ("daemon", "task")
    ears.listen(True, may_be_handed=False)
    assert listener.answer(True) == PIECE
    assert rings.get(timeout=DEADLINE)


def test_a_wait_that_takes_far_too_long_is_cut(monkeypatch):
    """G11, G15: its link may have died in silence, and Tasks be handed over through it."""
    cut, now = [], [1000.0]
    monkeypatch.setattr(wakeups, "shut_down", cut.append)
    monkeypatch.setattr(wakeups, "uptime", lambda: now[0])
    listener = Listener(keeps=False)
    listener.link = "the link"
    ears, _, _ = listening(listener)
    ears.listen(True, may_be_handed=True)
    listener.waits.get(timeout=DEADLINE)
    for passed in (PIECE, settings.STATEMENT_TIMEOUT - 0.1, 0.2, 0.1):
        now[0] += passed
        ears.listen(True, may_be_handed=True)
    assert cut == ["the link"]


def test_it_rings_only_where_that_is_wanted():
    """What came meanwhile is rung for later."""
    listener = Listener(keeps=True)
    ears, rings, _ = listening(listener)
    ears.listen(False, may_be_handed=True)
    listener.answer(True)
    assert listener.answer() == PIECE
    assert rings.empty()
    ears.listen(True, may_be_handed=True)
    assert rings.get(timeout=DEADLINE)


def test_where_it_is_heard_only_once_somebody_always_waits():
    """Also on a connection that has come back while nothing was wanted."""
    listener = Listener(keeps=False)
    ears, _, _ = listening(listener)
    ears.listen(True, may_be_handed=True)
    assert listener.waits.get(timeout=DEADLINE) == PIECE
    ears.listen(False, may_be_handed=False)
    listener._answers.put((False, [], "a"))
    assert listener.answer(channel="") == PIECE
    assert listener.answer(channel="b") == 0
    assert listener.answer(channel="b") == PIECE
