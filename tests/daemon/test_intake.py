"""Workers are not heard while too much waits to be recorded (G5)."""

import selectors
from types import SimpleNamespace

import pytest

from atp.daemon.dispatcher.intake import AGAIN, MOST, Intake
from atp.daemon.pool.worker_link import WorkerLink
from atp.daemon.shared.channel import Channel
from atp.daemon.shared.messages import Look
from atp.daemon.shared.ring import Ring
from atp.daemon.shared.tokens import Tokens


class Unrecorded(list):
    """Entries that wait; ``full`` are the attempts that have too many behind a lock."""

    full = frozenset()

    @property
    def pending(self):
        return len(self)

    @property
    def has_aside(self):
        return bool(self.full)

    def overfull(self, most):
        return self.full


@pytest.fixture
def hall():
    selector = selectors.DefaultSelector()
    ours, theirs = Channel.pair()
    ring = Ring(memoryview(bytearray(1024)))
    link = WorkerLink(0, 100, ours, Tokens(None), ring)
    link.is_stuck = True
    heard, running, unrecorded = [], {}, Unrecorded()
    reader = SimpleNamespace(collect=heard.append, running=running.get)
    intake = Intake(selector, unrecorded, reader)
    intake.add(link)
    yield SimpleNamespace(
        intake=intake,
        selector=selector,
        link=link,
        worker=theirs,
        unrecorded=unrecorded,
        heard=heard,
        running=running,
    )
    selector.close()
    ours.close()
    theirs.close()


def call(hall):
    for key, _ in hall.selector.select(0):
        key.data()


def test_backpressure(hall):
    hall.worker.send(Look())
    call(hall)
    assert hall.heard == [hall.link]
    assert not hall.link.is_stuck

    hall.unrecorded.extend(range(MOST))
    assert hall.link.ring.write(b"ended")
    hall.intake.turn()
    call(hall)
    assert hall.intake.is_behind
    assert len(hall.heard) == 1

    del hall.unrecorded[AGAIN:]
    hall.intake.turn()
    call(hall)
    assert not hall.intake.is_behind
    assert len(hall.heard) == 3  # by its ring, and by its channel


def test_only_the_worker_of_an_attempt_behind_a_lock_waits(hall):
    """G9: an attempt that talks without end, and whose rows somebody has locked."""
    ours, theirs = Channel.pair()
    other = WorkerLink(1, 101, ours, Tokens(None), Ring(memoryview(bytearray(1024))))
    hall.intake.add(other)
    hall.running[hall.link] = 7, 1
    hall.unrecorded.full = {(7, 1)}
    hall.worker.send(Look())
    hall.intake.turn()
    call(hall)
    assert list(hall.selector.get_map()) == [other.channel.fileno()]
    assert hall.heard == []
    # Its end may come behind what it has said.
    hall.running.clear()
    hall.intake.turn()
    call(hall)
    assert hall.heard == [hall.link]
    hall.intake.remove(other)
    ours.close()
    theirs.close()


def test_a_channel_that_is_closed_calls_once(hall):
    """G5: its worker may live on for long, with a handler that has closed all it found."""
    hall.intake._reader.collect = lambda link: hall.heard.extend(link.channel.drain())
    hall.worker.send(Look())
    hall.worker.close()
    call(hall)
    assert hall.heard == [Look()]
    assert not hall.selector.get_map()
    hall.intake.turn()
    assert not hall.selector.get_map()
    hall.intake.remove(hall.link)


@pytest.mark.parametrize("waiting", [0, MOST])
def test_the_dead_are_heard_in_any_case(hall, waiting):
    """G1: what a worker said before it died is not lost."""
    hall.unrecorded.extend(range(waiting))
    hall.intake.turn()
    hall.intake.remove(hall.link)
    assert hall.heard == [hall.link]
    assert not hall.selector.get_map()
    hall.intake.turn()
