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


@pytest.fixture
def hall():
    selector = selectors.DefaultSelector()
    ours, theirs = Channel.pair()
    ring = Ring(memoryview(bytearray(1024)))
    link = WorkerLink(0, 100, ours, Tokens(None), ring)
    link.is_stuck = True
    heard, unrecorded = [], []
    intake = Intake(selector, unrecorded, SimpleNamespace(collect=heard.append))
    intake.add(link)
    yield SimpleNamespace(
        intake=intake,
        selector=selector,
        link=link,
        worker=theirs,
        unrecorded=unrecorded,
        heard=heard,
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


@pytest.mark.parametrize("waiting", [0, MOST])
def test_the_dead_are_heard_in_any_case(hall, waiting):
    """G1: what a worker said before it died is not lost."""
    hall.unrecorded.extend(range(waiting))
    hall.intake.turn()
    hall.intake.remove(hall.link)
    assert hall.heard == [hall.link]
    assert not hall.selector.get_map()
    hall.intake.turn()
