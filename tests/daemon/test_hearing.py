"""Workers are not heard while too much waits to be recorded (G5)."""

import selectors
from types import SimpleNamespace

import pytest

from atp.daemon.channel import Channel
from atp.daemon.hand import Link
from atp.daemon.hearing import AGAIN, MOST, Hearing
from atp.daemon.ring import Ring
from atp.daemon.tokens import Tokens


@pytest.fixture
def hall():
    selector = selectors.DefaultSelector()
    ours, theirs = Channel.pair()
    ring = Ring(memoryview(bytearray(1024)))
    link = Link(0, 100, ours, Tokens(None), ring, is_stuck=True)
    heard, ledger = [], []
    hearing = Hearing(selector, ledger, SimpleNamespace(collect=heard.append))
    hearing.add(link)
    yield SimpleNamespace(
        hearing=hearing, selector=selector, link=link, worker=theirs, ledger=ledger, heard=heard
    )
    selector.close()
    ours.close()
    theirs.close()


def call(hall):
    for key, _ in hall.selector.select(0):
        key.data()


def test_backpressure(hall):
    hall.worker.send(("look",))
    call(hall)
    assert hall.heard == [hall.link]
    assert not hall.link.is_stuck

    hall.ledger.extend(range(MOST))
    assert hall.link.ring.write(b"ended")
    hall.hearing.turn()
    call(hall)
    assert hall.hearing.is_behind
    assert len(hall.heard) == 1

    del hall.ledger[AGAIN:]
    hall.hearing.turn()
    call(hall)
    assert not hall.hearing.is_behind
    assert len(hall.heard) == 3  # by its ring, and by its channel


@pytest.mark.parametrize("waiting", [0, MOST])
def test_the_dead_are_heard_in_any_case(hall, waiting):
    """G1: what a worker said before it died is not lost."""
    hall.ledger.extend(range(waiting))
    hall.hearing.turn()
    hall.hearing.remove(hall.link)
    assert hall.heard == [hall.link]
    assert not hall.selector.get_map()
    hall.hearing.turn()
