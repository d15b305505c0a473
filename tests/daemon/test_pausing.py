"""Who of those on hold goes on, and who makes room for them."""

from types import SimpleNamespace

import pytest

from atp.daemon import pausing as module
from atp.daemon.channel import Channel
from atp.daemon.hand import Link
from atp.daemon.page import END, GO, NOTHING, PAUSE, Page
from atp.daemon.pausing import TELL_AGAIN, Pausing
from atp.daemon.pool import Pool
from atp.daemon.tokens import Tokens
from tests.app import tasks_transactional  # noqa: F401 (declares the Types)
from tests.samples import claimed


@pytest.fixture
def hall(monkeypatch):
    """The pauses of four workers, which the test plays, with two places."""
    page, pool, told, clock = Page(4), Pool(), [], SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module, "uptime", lambda: clock.now)
    theirs = []
    for slot in range(4):
        ours, other = Channel.pair()
        pool.add(Link(slot, 100 + slot, ours, Tokens.pipe(), page.ring(slot)))
        theirs.append(other)
    pausing = Pausing(pool, page, 2, lambda *facts: None, lambda *message: told.append(message))
    yield SimpleNamespace(page=page, pool=pool, pausing=pausing, told=told, clock=clock)
    for link in pool.links.values():
        link.close()
    for each in theirs:
        each.close()


def run(hall, *numbers):
    """Have the first workers run these, one each."""
    hall.pool.put([claimed(number) for number in numbers])
    hall.pool.hand_out()
    for link in hall.pool.links.values():
        if link.first is not None:
            link.first.started = hall.clock.now


def hold(hall, number):
    """Put what runs on hold, so that it would go on by itself."""
    link, _ = hall.pool.find((number, 1))
    hall.pausing.begun(link, (number, 1), 0.0, 1)


def going(hall):
    """The numbers of those that have been told to go on."""
    told = []
    for link in hall.pool.links.values():
        if link.first is not None:
            instance, _ = link.first.key
            if hall.page.asked(link.slot, *link.first.key)[0] == GO:
                told.append(instance)
    return told


def dismissed(hall):
    """The slots that have been told to end, each time anew."""
    told = [message[1:] for message in hall.told if message[0] == "kill"]
    hall.told.clear()
    assert all(tuple(instance) == NOTHING for _, _, *instance, _ in told)
    return [slot for slot, *_ in told]


def test_no_more_go_on_than_there_are_places(hall):
    run(hall, 1, 2, 3, 4)
    for number in (1, 2, 3):
        hold(hall, number)
        hall.clock.now += 1
    hall.pausing.turn()
    assert going(hall) == [1]  # the first, beside the one at work


def test_who_has_nothing_to_do_makes_room(hall):
    run(hall, 1, 2)
    hold(hall, 1)
    hold(hall, 2)
    hall.pausing.turn()
    assert going(hall) == []
    [slot] = dismissed(hall)
    hall.pool.remove(slot).close()
    hall.pausing.turn()
    assert going(hall) == [1]
    [slot] = dismissed(hall)
    hall.pool.remove(slot).close()
    hall.pausing.turn()
    assert going(hall) == [1, 2]


def test_who_makes_room_is_not_replaced(hall):
    """The supervisor hears that there is to be one less, and only then that one is to end."""
    run(hall, 1, 2)
    hold(hall, 1)
    hall.pausing.turn()
    hall.told = [message[:2] if message[0] == "spare" else message[:1] for message in hall.told]
    assert hall.told == [("spare", 1), ("spare", 0), ("kill",)]


def test_who_was_told_to_end_is_told_again_until_it_does(hall):
    """The supervisor spares one that has not quite ended what it ran; it gets nothing more."""
    run(hall, 1)
    hold(hall, 1)
    hall.pausing.turn()
    [slot] = dismissed(hall)
    # What wanted its place has died meanwhile, and there is no need any more.
    for each in (0, 3):
        hall.pool.remove(each).close()
    hall.pausing.turn()
    assert dismissed(hall) == []
    hall.clock.now += TELL_AGAIN
    hall.pausing.turn()
    assert dismissed(hall) == [slot]


def test_what_is_stopped_and_asked_to_end_goes_on_whatever_the_places(hall):
    """It can end only when it runs."""
    run(hall, 1, 2, 3, 4)
    link, holding = hall.pool.find((1, 1))
    hall.pausing.begun(link, (1, 1), 0.0, 0, is_frozen=True)
    hall.page.ask(link.slot, 1, 1, END)
    holding.ask = "fail"
    hall.pausing.turn()
    assert [message[0] for message in hall.told if message[0] == "thaw"] == ["thaw"]


def test_a_transactional_one_takes_no_notice(hall):
    """Who asks may not know the Type; it would keep its transaction open."""
    hall.pool.put([claimed(1, "transactional.row")])
    hall.pool.hand_out()
    link = next(link for link in hall.pool.links.values() if link.first is not None)
    link.first.started = hall.clock.now
    hall.pausing.heard((1, 1), "pause")
    assert not link.first.is_to_pause
    assert hall.page.asked(link.slot, 1, 1)[0] != PAUSE
    assert hall.told == []
