"""Who of those paused goes on, and who makes room for them."""

from types import SimpleNamespace

import pytest

from atp.daemon.pool import pausing as module
from atp.daemon.pool.pausing import TELL_AGAIN, Pausing
from atp.daemon.pool.pool import Pool
from atp.daemon.pool.worker_link import WorkerLink
from atp.daemon.shared.channel import Channel
from atp.daemon.shared.messages import Kill, SpareWanted, Thaw
from atp.daemon.shared.running_page import END, GO, NOTHING, PAUSE, Page
from atp.daemon.shared.tokens import Tokens
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
        pool.add(WorkerLink(slot, 100 + slot, ours, Tokens.pipe(), page.ring(slot)))
        theirs.append(other)
    pausing = Pausing(pool, page, 2, lambda *facts: None, told.append)
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
    """Pause what runs, so that it would go on by itself."""
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
    told = [message for message in hall.told if isinstance(message, Kill)]
    hall.told.clear()
    assert all(message.key == NOTHING for message in told)
    return [message.slot for message in told]


def test_no_more_go_on_than_there_are_places(hall):
    run(hall, 1, 2, 3, 4)
    for number in (1, 2, 3):
        hold(hall, number)
        hall.clock.now += 1
    hall.pausing.turn()
    assert going(hall) == [1]  # the first, beside the one at work


def test_a_worker_that_is_stopped_after_its_attempt_has_ended_goes_on(hall):
    """Its report of the end may come before the supervisor has stopped it."""
    run(hall, 1)
    link, holding = hall.pool.find((1, 1))
    link.assigned.pop(holding.key)
    hall.pausing.begun(link, holding.key, 0.0, 0, is_frozen=True)
    assert hall.told == [Thaw(link.slot, link.pid, holding.key)]


def test_a_worker_that_is_stopped_while_its_handler_has_paused_goes_on(hall):
    """It has to say when it is ready to go on; until then the pause lasts."""
    run(hall, 1)
    link, holding = hall.pool.find((1, 1))
    hall.pausing.begun(link, (1, 1), 0.0, 1, is_own=True)
    hall.pausing.begun(link, (1, 1), 0.0, 0, is_frozen=True)
    assert hall.told == [Thaw(link.slot, link.pid, (1, 1))]
    hall.pausing.thawed(link, (1, 1), 0.0)
    assert holding.pause is not None
    hall.pausing.ending(link, (1, 1))
    assert holding.pause.wants_to_go


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


def test_who_is_not_ready_yet_makes_room_first(hall):
    """Or what goes on would wait until the other has loaded all that it needs."""
    run(hall, 1)
    hall.pool.links[3].is_starting = True
    hold(hall, 1)
    hall.pausing.turn()
    assert dismissed(hall) == [3]


def test_who_makes_room_is_not_replaced(hall):
    """The supervisor hears that there is to be one less, and only then that one is to end."""
    run(hall, 1, 2)
    hold(hall, 1)
    hall.pausing.turn()
    first, second, third = hall.told
    assert (first, second) == (SpareWanted(1), SpareWanted(0))
    assert isinstance(third, Kill)


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
    assert [message for message in hall.told if isinstance(message, Thaw)] == [
        Thaw(link.slot, link.pid, (1, 1))
    ]


def test_a_transactional_one_takes_no_notice(hall):
    """Who asks may not know the Type; it would keep its transaction open."""
    hall.pool.put([claimed(1, "transactional.row")])
    hall.pool.hand_out()
    link = next(link for link in hall.pool.links.values() if link.first is not None)
    link.first.started = hall.clock.now
    hall.pausing.asked((1, 1), "pause")
    assert not link.first.is_to_pause
    assert hall.page.asked(link.slot, 1, 1)[0] != PAUSE
    assert hall.told == []
