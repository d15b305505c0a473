"""The store contract: what holders are asked; cancelling, alone and in races."""

import logging
from itertools import product

import pytest

from atp import messages
from atp.commands import CANCEL, PAUSE, RELEASE, RESUME, AttemptCommand, Cancelled
from atp.models import Kind
from atp.states import CLAIMED, TERMINAL, TRANSITIONS, Event, Reason, Row, State

from ..helpers import at_once
from ..nonsense import tells
from .world import IS_SQLITE, move_of


def test_what_waits_fails_at_once_and_what_has_ended_is_left_alone(world, host):
    ended = [world.bring_to(state, host).instance for state in TERMINAL]
    keys = world.enqueue(3)
    logs = [len(world.log(key)) for key in ended]
    done = world.store.control.cancel([*ended, *keys[:2], 2**40], who="ann, shell")
    assert done == Cancelled(failed=tuple(keys[:2]))
    assert [world.state(key) for key in keys] == [State.FAILED, State.FAILED, State.ACCEPTED]
    assert world.get(keys[0]).reason == Reason.CANCELLED
    last = world.log(keys[0])[-1]
    assert (last.event, last.who) == (Event.FAIL, "ann, shell")
    assert tells(last.message, messages.cancelled())
    assert [c.instance for c in host.claim()] == keys[2:]
    assert [len(world.log(key)) for key in ended] == logs


@pytest.mark.parametrize("event", [Event.RELEASE, Event.RETRY])
def test_the_move_back_honours_it(world, host, event):
    """In the same transaction, and both are logged (G6)."""
    case, other = (world.bring_to(State.RUNNING, host) for _ in range(2))
    world.store.control.cancel([case.instance], who="ann via shell")
    assert host.record(*[move_of(each, event, who="host:1") for each in (case, other)]) == []
    assert world.state(other.instance) == State.ACCEPTED
    assert world.state(case.instance) == State.FAILED
    assert world.get(case.instance).reason == Reason.CANCELLED
    assert world.task(case.instance) is None
    back, fail = world.log(case.instance)[-2:]
    assert (back.event, back.state) == (event, State.ACCEPTED)
    assert (fail.event, fail.who, fail.level) == (Event.FAIL, "host:1", logging.WARNING)
    assert tells(fail.message, messages.cancelled("ann via shell"))


# Races


def races(world, rounds=5):
    """Yield a daemon and a RUNNING attempt of it, a few times, and check the queue after each."""
    for _ in range(rounds):
        host = world.host()
        yield host, world.bring_to(State.RUNNING, host)
        world.check()


def end_of(world, case):
    """Return the kinds of the records behind its start."""
    return [record.kind for record in world.log(case.instance)][3:]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("event", [Event.FINISH, Event.EXPIRE])
def test_a_cancel_and_what_else_may_happen(world, event):
    """Exactly one wins, whichever came first, and the log says which (G6)."""
    for host, case in races(world):
        change = move_of(case, event, time=world.store.now())
        refused, done = at_once(
            lambda h=host, c=change: h.record(c),
            lambda c=case: world.store.control.cancel([c.instance], who="ann"),
        )
        assert refused == []
        instance, log = world.get(case.instance), end_of(world, case)
        if event == Event.FINISH:
            assert instance.state == State.FINISHED
            assert log == [Kind.ASK] * bool(done.asked) + [Event.FINISH]
            assert not done.failed
        else:
            assert instance.reason == Reason.CANCELLED
            assert log == [Kind.ASK] * bool(done.asked) + [event, Event.FAIL]
            assert bool(done.asked) != bool(done.failed)


@pytest.mark.django_db(transaction=True)
def test_a_cancel_and_a_sweep(world):
    for host, case in races(world):
        host.lose_lease()
        at_once(
            world.store.daemons.sweep,
            lambda c=case: world.store.control.cancel([c.instance], who="ann"),
        )
        if world.state(case.instance) != State.FAILED:
            # The sweep passed by what the cancel had locked, and comes again.
            assert not IS_SQLITE
            world.store.daemons.sweep()
        assert world.get(case.instance).reason == Reason.CANCELLED
        assert world.events(case.instance).count(Event.FAIL) == 1


@pytest.mark.django_db(transaction=True)
def test_a_cancel_and_a_claim(world):
    for host, case in races(world):
        host.move(case, Event.FINISH)
        [key] = world.enqueue()
        claimed, done = at_once(
            host.claim, lambda k=key: world.store.control.cancel([k], who="ann")
        )
        assert bool(claimed) == bool(done.asked)
        assert bool(claimed) != bool(done.failed)
        if claimed:
            host.move(claimed[0], Event.RELEASE)
        assert world.get(key).reason == Reason.CANCELLED


@pytest.mark.django_db(transaction=True)
def test_two_cancels(world):
    """One of two operators is told that the other was quicker."""
    for _host, case in races(world):
        done = at_once(*[lambda c=case: world.store.control.cancel([c.instance], who="ann")] * 2)
        assert sorted((len(each.asked), len(each.before)) for each in done) == [(0, 1), (1, 0)]
        assert end_of(world, case) == [Kind.ASK]
        world.store.control.cancel([case.instance])


@pytest.mark.django_db(transaction=True)
def test_a_cancel_and_a_redrive(world):
    for host, case in races(world):
        host.move(case, Event.FAIL, reason=Reason.ERROR)
        refused, done = at_once(
            lambda c=case: world.as_anyone(Event.REDRIVE, c.instance),
            lambda c=case: world.store.control.cancel([c.instance], who="ann"),
        )
        assert refused == []
        assert (world.state(case.instance) == State.FAILED) == bool(done.failed)
        if not done.failed:
            world.store.control.cancel([case.instance])


# Every move that frees a Task, from every state that it may be asked to pause in.
FREEING = sorted(
    (row.event, source)
    for row in TRANSITIONS
    if row.row is Row.FREED
    for source in row.sources & {State.RUNNING, State.PAUSED}
)
# A daemon that leaves hands its Task back.
LEAVING = (None, State.PAUSED)


def test_the_holder_of_a_claimed_task_is_asked(world):
    host, other = world.host(), world.host()
    for state in CLAIMED:
        with world.case(state):
            case = world.bring_to(state, host)
            given = {"who": "ann", "message": "please"}
            assert world.store.control.request(case.instance, RELEASE, **given) is True
            asked = AttemptCommand(instance=case.instance, attempt=case.number, request=RELEASE)
            assert world.store.control.asked(host.uuid) == [asked]
            assert world.store.control.asked(other.uuid) == []
            last = world.log(case.instance)[-1]
            assert (last.who, last.message, last.state) == ("ann", "please", state)
            assert (last.kind, last.detail) == (Kind.ASK, RELEASE)
            world.store.control.request(case.instance, RELEASE, who="ann")
            told = messages.command_sent(RELEASE)
            assert tells(world.log(case.instance)[-1].message, told)
            assert world.store.control.cancel([case.instance], who="bob").asked == (case.instance,)
            assert world.state(case.instance) == state
            last = world.log(case.instance)[-1]
            assert (last.who, last.kind, last.detail) == ("bob", Kind.ASK, CANCEL)
            [asked] = world.store.control.asked(host.uuid)
            assert (asked.attempt, asked.request, asked.who) == (case.number, CANCEL, "bob")
            assert 0 <= asked.age < 30


@pytest.mark.slow
def test_what_goes_back_is_asked_for_nothing_any_more(world):
    """The wish was about that attempt: the next one may be asked again."""
    for (event, state), wanted in product([*FREEING, LEAVING], (PAUSE, RESUME, RELEASE)):
        with world.case((event, state, wanted)):
            host = world.host()
            case = world.bring_to(State.RUNNING, host)
            assert world.store.control.request(case.instance, PAUSE, who="ann")
            if state == State.PAUSED:
                host.move(case, Event.PAUSE)
            if wanted != PAUSE:
                assert world.store.control.request(case.instance, wanted, who="ann")
            if event is None:
                world.store.daemons.leave(host.uuid)
            else:
                host.move(case, event)
            assert world.state(case.instance) == State.ACCEPTED
            assert world.task(case.instance).request == ""


def test_a_request_moves_with_its_task_to_a_new_identity(world, host, case):
    world.store.control.request(case.instance, RELEASE, who="ann")
    new = world.host(old=host.uuid, holding={(case.instance, case.number)})
    assert [asked.instance for asked in world.store.control.asked(new.uuid)] == [case.instance]
