"""The budgets of RFC 14 and the house plan: restarts and unexplained losses (G5)."""

import logging

from atp import messages
from atp.states import UNEXPLAINED_LOSSES, Event, Reason, State

from ..nonsense import tells
from .world import registration


def lose(world, host, *events):
    """Claim the one Task there is, and lose the attempt after these events."""
    [claimed] = host.claim()
    host.move(claimed, *events, Event.EXPIRE)
    return world.get(claimed.instance)


def test_more_restarts_than_allowed_are_stale(world):
    """G5: it is restarted max_restarts times, then FAILED with the reason; its neighbours are not.

    Innocent neighbours are only handed back.
    """
    [key] = world.enqueue(type=registration(max_restarts=2))
    host = world.host()
    for restarts in (1, 2):
        found = lose(world, host, Event.START, Event.PAUSE)
        assert (found.state, found.restarts, found.lost) == (State.ACCEPTED, restarts, restarts)
    others = world.enqueue(3)
    claimed = {c.instance: c for c in host.claim()}
    host.move(claimed[key], Event.START)
    host.lose_lease()
    assert world.store.daemons.sweep().expired == 4
    instance = world.get(key)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.STALE)
    assert (instance.restarts, instance.attempt) == (3, 3)
    assert world.events(key)[-2:] == [Event.EXPIRE, Event.FAIL]
    lost, last = world.log(key)[-2:]
    assert last.level == logging.ERROR
    assert tells(last.message, messages.attempts_given_up(3, 2, 3, lost.message))
    assert instance.finished == last.time
    assert [world.get(k).restarts for k in others] == [0, 0, 0]
    assert [c.instance for c in world.host().claim()] == others


def test_losses_before_the_start_are_not_restarts(world):
    """G5: but they do not go on for ever either."""
    [key] = world.enqueue(type=registration(max_restarts=1))
    host = world.host()
    for lost in range(1, 1 + UNEXPLAINED_LOSSES + 1):
        instance = lose(world, host)
        assert (instance.state, instance.restarts, instance.lost) == (State.ACCEPTED, 0, lost)
    instance = lose(world, host)
    assert (instance.state, instance.reason, instance.restarts) == (State.FAILED, Reason.STALE, 0)
    lost, given_up = world.log(key)[-2:]
    told = messages.attempts_given_up(0, 1, instance.lost, lost.message)
    assert tells(given_up.message, told)
