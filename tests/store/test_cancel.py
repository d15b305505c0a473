"""The store contract: cancelling, alone and in a race with what else may happen."""

import logging

import pytest
from django.db import connection

from atp.models import LogRecord
from atp.rows.log import Kind
from atp.states import CLAIMED, TERMINAL, Event, Reason, State
from atp.store.values import CANCEL, RELEASE, Ask, Cancelled, Move, Note, ResponseData
from atp.words import attempt_messages

from ..helpers import at_once
from ..nonsense import tells
from .world import registration

WAYS_BACK = [Event.RELEASE, Event.EXPIRE, Event.RETRY, Event.DEFER]


def test_what_waits_fails_at_once(world):
    keys = world.enqueue(3)
    done = world.store.cancel(keys[:2], who="ann, shell")
    assert done == Cancelled(failed=tuple(keys[:2]))
    assert [world.state(key) for key in keys] == [State.FAILED, State.FAILED, State.ACCEPTED]
    assert world.get(keys[0]).reason == Reason.CANCELLED
    last = world.log(keys[0])[-1]
    assert (last.event, last.who) == (Event.FAIL, "ann, shell")
    assert tells(last.message, attempt_messages.cancelled())
    assert [c.instance for c in world.host().claim()] == keys[2:]


@pytest.mark.parametrize("state", sorted(CLAIMED))
def test_the_holder_of_what_is_claimed_is_asked(world, state):
    host = world.host()
    case = world.bring_to(state, host)
    assert world.store.cancel([case.instance], who="ann").asked == (case.instance,)
    assert world.state(case.instance) == state
    last = world.log(case.instance)[-1]
    assert (last.who, last.kind, last.detail, last.state) == ("ann", Kind.ASK, CANCEL, state)
    [asked] = world.store.asked(host.uuid)
    assert (asked.instance, asked.attempt, asked.request) == (case.instance, case.attempt, CANCEL)
    assert asked.who == "ann"
    assert 0 <= asked.age < 30


def test_who_is_asked_once_is_not_asked_again(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    world.store.cancel([case.instance], who="ann")
    before = world.snapshot()
    assert world.store.cancel([case.instance], who="bob").before == (case.instance,)
    assert world.snapshot() == before
    [asked] = world.store.asked(host.uuid)
    assert asked.who == "ann"


def test_a_cancel_outdoes_a_release_and_not_the_other_way_round(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    assert world.store.request(case.instance, RELEASE, who="ann")
    assert world.store.cancel([case.instance], who="bob").asked == (case.instance,)
    before = world.snapshot()
    assert world.store.request(case.instance, RELEASE, who="ann") is False
    assert world.snapshot() == before
    [asked] = world.store.asked(host.uuid)
    assert (asked.request, asked.who) == (CANCEL, "bob")


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_what_has_ended_is_left_alone(world, state):
    case = world.bring_to(state, world.host())
    before = world.snapshot()
    assert world.store.cancel([case.instance, 2**40], who="ann") == Cancelled()
    assert world.snapshot() == before


@pytest.mark.parametrize("event", WAYS_BACK)
def test_the_move_back_honours_it(world, event):
    """In the same transaction, and both are logged (G6)."""
    host = world.host()
    case, other = (world.bring_to(State.RUNNING, host) for _ in range(2))
    world.store.cancel([case.instance], who="ann via shell")
    changes = [
        Move(event=event, instance=each.instance, attempt=each.attempt, who="host:1")
        for each in (case, other)
    ]
    assert host.record(*changes) == []
    assert world.state(other.instance) == State.ACCEPTED
    assert world.state(case.instance) == State.FAILED
    assert world.get(case.instance).reason == Reason.CANCELLED
    assert world.task(case.instance) is None
    back, fail = world.log(case.instance)[-2:]
    assert (back.event, back.state) == (event, State.ACCEPTED)
    assert (fail.event, fail.who, fail.level) == (Event.FAIL, "host:1", logging.WARNING)
    assert tells(fail.message, attempt_messages.cancelled("ann via shell"))


@pytest.mark.parametrize("event", WAYS_BACK)
def test_a_start_that_is_recorded_with_the_move_back(world, event):
    host = world.host()
    case = world.bring_to(State.SCHEDULED, host)
    world.store.cancel([case.instance], who="ann")
    now = world.store.now()
    host.move(case, event, started=now, time=now)
    assert world.events(case.instance)[-3:] == [Event.START, event, Event.FAIL]
    assert world.get(case.instance).reason == Reason.CANCELLED


def test_a_lost_daemon_does_not_keep_it_alive(world):
    """The house plan: if the holder is gone, the move back honours the request instead."""
    host = world.host()
    cases = [world.bring_to(state, host) for state in sorted(CLAIMED)]
    world.store.cancel([case.instance for case in cases], who="ann")
    host.lose_lease()
    assert world.store.sweep().expired == 3
    for case in cases:
        assert world.get(case.instance).reason == Reason.CANCELLED
        assert world.events(case.instance)[-2:] == [Event.EXPIRE, Event.FAIL]


def test_what_is_cancelled_and_lost_too_often_is_cancelled(world):
    """Somebody asked for it: it is no dead letter."""
    host = world.host()
    case = world.bring_to(State.RUNNING, host, type=registration(max_restarts=0))
    world.store.cancel([case.instance], who="ann")
    host.move(case, Event.EXPIRE)
    assert world.get(case.instance).reason == Reason.CANCELLED
    assert world.events(case.instance).count(Event.FAIL) == 1


def test_a_daemon_that_leaves_and_one_that_takes_over(world):
    host = world.host()
    gone, taken, lost = (world.bring_to(State.RUNNING, host) for _ in range(3))
    world.store.cancel([taken.instance, lost.instance], who="ann")
    new = type(host)(world)
    world.hosts.append(new)
    new.join(old=host.uuid, holding={(c.instance, c.attempt) for c in (gone, taken)})
    assert world.get(lost.instance).reason == Reason.CANCELLED
    assert [asked.instance for asked in world.store.asked(new.uuid)] == [taken.instance]
    world.store.leave(new.uuid)
    assert world.get(taken.instance).reason == Reason.CANCELLED
    assert world.state(gone.instance) == State.ACCEPTED


@pytest.mark.parametrize("event", [Event.FINISH, Event.FAIL])
def test_an_end_that_comes_first_wins(world, event):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    world.store.cancel([case.instance], who="ann")
    response = ResponseData(content_type="text/plain", data=b"x", size=1)
    if event == Event.FINISH:
        host.move(case, event, time=world.store.now(), response=response)
    else:
        host.move(case, event, reason=Reason.FATAL)
    assert world.get(case.instance).reason == ("" if event == Event.FINISH else Reason.FATAL)
    asked = world.log(case.instance)[-2]
    assert (asked.kind, asked.detail) == (Kind.ASK, CANCEL)


def test_it_runs_on_until_its_end(world):
    """What an attempt says after it was asked to end is still its own to say."""
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    world.store.cancel([case.instance], who="ann")
    note = Note(instance=case.instance, attempt=case.attempt, progress=0.5)
    assert world.store.note([note], daemon=host.uuid) == []
    host.move(case, Event.FAIL, reason=Reason.CANCELLED, message="cancelled by ann")
    assert world.state(case.instance) == State.FAILED


def test_it_can_be_redriven(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    world.store.cancel([case.instance], who="ann")
    host.move(case, Event.RETRY)
    assert world.as_anyone(Event.REDRIVE, case.instance) == []
    [again] = host.claim()
    assert again.attempt == 2
    assert world.store.asked(host.uuid) == []
    world.store.cancel([case.instance], who="bob")
    host.move(again, Event.RELEASE)
    assert tells(world.log(case.instance)[-1].message, attempt_messages.cancelled("bob"))


def test_requests_of_two_kinds_are_told_together(world):
    host = world.host()
    released, cancelled = (world.bring_to(State.RUNNING, host) for _ in range(2))
    world.store.request(released.instance, RELEASE, who="ann")
    world.store.cancel([cancelled.instance], who="bob")
    asked = {each.instance: each for each in world.store.asked(host.uuid)}
    assert asked[released.instance] == Ask(
        instance=released.instance, attempt=released.attempt, request=RELEASE
    )
    assert asked[cancelled.instance].who == "bob"


# Races


def races(world, rounds=8):
    """Yield a daemon and a RUNNING attempt of it, a few times, and check the queue after each."""
    for _ in range(rounds):
        host = world.host()
        yield host, world.bring_to(State.RUNNING, host)
        world.check()


def end_of(world, case):
    """Events of its log from the cancel's record or the last move on, without the start."""
    records = LogRecord.objects.of_instance(case.instance)
    return [r.kind for r in records][3:]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("event", [Event.FINISH, *WAYS_BACK])
def test_a_cancel_and_what_else_may_happen(world, event):
    """Exactly one wins, whichever came first, and the log says which (G6)."""
    for host, case in races(world):
        change = Move(
            event=event, instance=case.instance, attempt=case.attempt, time=world.store.now()
        )
        refused, done = at_once(
            lambda h=host, c=change: h.record(c),
            lambda c=case: world.store.cancel([c.instance], who="ann"),
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
        at_once(world.store.sweep, lambda c=case: world.store.cancel([c.instance], who="ann"))
        if world.state(case.instance) != State.FAILED:
            # The sweep passed by what the cancel had locked, and comes again.
            assert connection.vendor != "sqlite"
            world.store.sweep()
        assert world.get(case.instance).reason == Reason.CANCELLED
        assert world.events(case.instance).count(Event.FAIL) == 1


@pytest.mark.django_db(transaction=True)
def test_a_cancel_and_a_claim(world):
    for host, case in races(world):
        host.move(case, Event.FINISH)
        [key] = world.enqueue()
        claimed, done = at_once(host.claim, lambda k=key: world.store.cancel([k], who="ann"))
        assert bool(claimed) == bool(done.asked)
        assert bool(claimed) != bool(done.failed)
        if claimed:
            host.move(claimed[0], Event.RELEASE)
        assert world.get(key).reason == Reason.CANCELLED


@pytest.mark.django_db(transaction=True)
def test_two_cancels(world):
    """One of two operators is told that the other was quicker."""
    for _host, case in races(world):
        done = at_once(*[lambda c=case: world.store.cancel([c.instance], who="ann")] * 2)
        assert sorted((len(each.asked), len(each.before)) for each in done) == [(0, 1), (1, 0)]
        assert end_of(world, case) == [Kind.ASK]
        world.store.cancel([case.instance])


@pytest.mark.django_db(transaction=True)
def test_a_cancel_and_a_redrive(world):
    for host, case in races(world):
        host.move(case, Event.FAIL, reason=Reason.ERROR)
        redrive = Move(event=Event.REDRIVE, instance=case.instance)
        refused, done = at_once(
            lambda c=redrive: world.store.record([c]),
            lambda c=case: world.store.cancel([c.instance], who="ann"),
        )
        assert refused == []
        assert (world.state(case.instance) == State.FAILED) == bool(done.failed)
        if not done.failed:
            world.store.cancel([case.instance])
