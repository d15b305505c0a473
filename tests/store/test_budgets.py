"""The budgets of RFC 14 and the house plan: restarts and unexplained losses (G5)."""

import logging

import pytest

from atp.states import UNEXPLAINED_LOSSES, Event, Reason, State
from atp.words import attempt_messages

from ..nonsense import tells
from .world import registration


def lose(world, host, *events):
    """Claim the one Task there is, and lose the attempt after these events."""
    [claimed] = host.claim()
    host.move(claimed, *events, Event.EXPIRE)
    return claimed.instance


@pytest.mark.parametrize("max_restarts", [0, 1, 3])
@pytest.mark.parametrize("path", [[Event.START], [Event.START, Event.PAUSE]], ids=str)
def test_more_restarts_than_allowed_are_stale(world, max_restarts, path):
    """G5: it is restarted max_restarts times, then FAILED with the reason."""
    [key] = world.enqueue(type=registration(max_restarts=max_restarts))
    host = world.host()
    for restarts in range(1, max_restarts + 1):
        lose(world, host, *path)
        instance = world.get(key)
        assert (instance.state, instance.restarts, instance.lost) == (
            State.ACCEPTED,
            restarts,
            restarts,
        )
    lose(world, host, *path)
    instance = world.get(key)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.STALE)
    assert (instance.restarts, instance.attempt) == (max_restarts + 1, max_restarts + 1)
    assert world.events(key)[-2:] == [Event.EXPIRE, Event.FAIL]
    last = world.log(key)[-1]
    assert last.level == logging.ERROR
    lost = world.log(key)[-2].message
    spent = max_restarts + 1
    assert tells(last.message, attempt_messages.given_up(spent, max_restarts, spent, lost))
    assert instance.finished == last.time
    assert host.claim() == []


def test_losses_before_the_start_are_not_restarts(world):
    """G5: but they do not go on for ever either."""
    [key] = world.enqueue(type=registration(max_restarts=1))
    host = world.host()
    for lost in range(1, 1 + UNEXPLAINED_LOSSES + 1):
        lose(world, host)
        instance = world.get(key)
        assert (instance.state, instance.restarts, instance.lost) == (State.ACCEPTED, 0, lost)
    lose(world, host)
    instance = world.get(key)
    assert (instance.state, instance.reason, instance.restarts) == (
        State.FAILED,
        Reason.STALE,
        0,
    )
    lost, given_up = world.log(key)[-2:]
    told = attempt_messages.given_up(0, 1, instance.lost, lost.message)
    assert tells(given_up.message, told)


def test_a_release_is_not_charged(world):
    """G10: orderly stop spends no budget, however often."""
    [key] = world.enqueue(type=registration(max_restarts=0))
    host = world.host()
    for path in ([], [Event.START], [Event.START, Event.PAUSE]) * 5:
        [claimed] = host.claim()
        host.move(claimed, *path, Event.RELEASE)
    instance = world.get(key)
    assert (instance.state, instance.attempt) == (State.ACCEPTED, 15)
    assert (instance.restarts, instance.retries, instance.lost) == (0, 0, 0)


def test_retries_and_restarts_are_never_mixed(world):
    [key] = world.enqueue(type=registration(max_restarts=1))
    host = world.host()
    for _ in range(5):
        [claimed] = host.claim()
        host.move(claimed, Event.START, Event.RETRY)
    lose(world, host, Event.START)
    instance = world.get(key)
    assert (instance.retries, instance.restarts, instance.state) == (5, 1, State.ACCEPTED)


def test_a_sweep_charges_as_the_holder_does(world):
    """G5: a task that kills its host is bounded as well."""
    [key] = world.enqueue(type=registration(max_restarts=1))
    for expected in (State.ACCEPTED, State.FAILED):
        host = world.host()
        [claimed] = host.claim()
        host.move(claimed, Event.START)
        host.lose_lease()
        world.store.sweep()
        assert world.state(key) == expected
    assert world.get(key).reason == Reason.STALE


def test_a_lower_budget_counts_from_the_next_loss(world):
    [key] = world.enqueue(type=registration(max_restarts=3))
    host = world.host()
    lose(world, host, Event.START)
    world.store.register([registration(max_restarts=0)])
    assert world.state(key) == State.ACCEPTED
    lose(world, host, Event.START)
    assert world.get(key).reason == Reason.STALE


def test_one_stale_instance_leaves_its_neighbours(world):
    """G5: innocent neighbours are only handed back."""
    [key] = world.enqueue(type=registration(max_restarts=0))
    others = world.enqueue(3)
    host = world.host()
    claimed = {c.instance: c for c in host.claim()}
    host.move(claimed[key], Event.START)
    host.lose_lease()
    assert world.store.sweep().expired == 4
    assert world.get(key).reason == Reason.STALE
    assert [world.get(k).restarts for k in others] == [0, 0, 0]
    assert [c.instance for c in world.host().claim()] == others
