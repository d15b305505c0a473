"""Hooks under real concurrency: several end an Instance at once, or hold locks (G1, G6, G11)."""

from datetime import timedelta

import pytest
from django.db import transaction

from atp.models import Instance, Task, Type
from atp.states import Event, Reason, State
from atp.store.values import Move

from .. import environment
from ..helpers import Thread, at_once
from . import hooks
from .hooks import ALERT, HOOKED, INDEX, hooked, hooks_of
from .world import ONE, registration, scope

pytestmark = pytest.mark.django_db(transaction=True)

needs_row_locks = pytest.mark.skipif(
    environment.kind() == "sqlite", reason="SQLite has one writer: nothing waits for a row"
)
TIMES = 4


def together(*functions):
    """Call them at once; none of them may raise, as after a deadlock."""
    assert [each for each in at_once(*functions) if isinstance(each, Exception)] == []


@pytest.fixture(autouse=True)
def each_end_has_its_hooks(world):
    yield
    hooks.check()


def finish(case, now, who="host"):
    return Move(Event.FINISH, case.instance, case.attempt, started=now, time=now, who=who)


def test_one_end_from_many_connections_has_one_hook(world):
    """Who does not know whether it was written records it again, while the first goes on."""
    host = world.host(HOOKED)
    for _ in range(5):
        world.enqueue(type=hooked())
        [case] = host.claim()
        move = finish(case, world.store.now())
        together(*[lambda move=move: host.record(move)] * TIMES)
        assert world.state(case.instance) == State.FINISHED
        assert [type for type, _ in hooks_of(case.instance)] == [INDEX]


def test_a_batch_from_many_connections(world):
    host = world.host(HOOKED)
    world.enqueue(20, type=hooked())
    cases, now = host.claim(), world.store.now()
    parts = cases[:15], cases[5:], cases[::2]
    together(*[lambda p=part: host.record(*[finish(c, now) for c in p]) for part in parts])
    assert set(Instance.objects.filter(type__identifier=HOOKED).values_list("state")) == {
        (State.FINISHED,)
    }
    assert Instance.objects.filter(type__identifier=INDEX).count() == 20


def test_several_operators_and_daemons_end_what_waits(world):
    """Cancelled, dropped and missed at once: whoever is first, there is one end and one hook."""
    now = world.store.now()
    keys = world.enqueue(20, type=hooked(), start_before=now + timedelta(seconds=1))
    Task.objects.update(start_before=now - timedelta(seconds=1))
    world.store.shut(scope(HOOKED), "drop")
    together(
        lambda: world.store.cancel(keys),
        lambda: world.store.cancel(keys[::-1]),
        world.store.drop,
        world.store.miss,
    )
    assert Instance.objects.filter(pk__in=keys, state=State.FAILED).count() == 20
    assert Instance.objects.filter(type__identifier=ALERT).count() == 20


def test_an_attempt_is_expired_while_it_ends(world):
    host = world.host(HOOKED)
    for _ in range(5):
        world.enqueue(type=hooked(max_restarts=0))
        [case] = host.claim()
        host.move(case, Event.START)
        now = world.store.now()
        end = Move(Event.FINISH, case.instance, case.attempt, time=now)
        lost = Move(Event.EXPIRE, case.instance, case.attempt, time=now)
        together(lambda end=end: host.record(end), lambda lost=lost: host.record(lost))
        assert len(hooks_of(case.instance)) == 1


@needs_row_locks
def test_who_has_locked_the_type_of_a_hook_delays_no_end(world):
    """G11: as somebody who is about to unregister it."""
    host = world.host(HOOKED)
    world.enqueue(3, type=hooked())
    cases, now = host.claim(), world.store.now()
    with transaction.atomic():
        list(Type.objects.select_for_update().filter(identifier__in=(ALERT, INDEX, HOOKED)))
        moves = [finish(case, now) for case in cases]
        assert Thread(host.record, *moves).result() == []
    assert Instance.objects.filter(type__identifier=INDEX).count() == 3


@needs_row_locks
def test_one_that_is_locked_is_left_and_the_others_have_their_hooks(world):
    """G11."""
    host = world.host(HOOKED, ONE)
    world.enqueue(3, type=hooked())
    cases, now = host.claim(), world.store.now()
    moves = [finish(case, now) for case in cases]

    def deliver():
        world.store.limit_waiting(0.2)
        return world.store.deliver(moves, daemon=host.uuid, careful=True)

    with transaction.atomic():
        Task.objects.select_for_update().get(pk=cases[1].instance)
        assert Thread(deliver).result().locked == {cases[1].instance}
    assert Instance.objects.filter(type__identifier=INDEX).count() == 2
    assert host.record(moves[1]) == []


def test_a_type_is_given_hooks_while_its_instances_end(world):
    """What was enqueued before has none: nobody counts on those."""
    host = world.host(HOOKED)
    plain = registration(HOOKED)
    [key] = world.enqueue(type=plain)
    [case] = host.claim()
    world.store.register([hooked(), *hooks.HOOK_TYPES])
    assert host.record(finish(case, world.store.now())) == []
    assert (world.state(key), hooks_of(key)) == (State.FINISHED, [])
    Type.objects.filter(identifier=HOOKED).update(hooks=None)


def test_a_batch_that_is_half_refused(world):
    """Of what is refused as a whole the rest is written, with its hooks."""
    host = world.host(HOOKED)
    world.enqueue(4, type=hooked(max_restarts=0))
    cases, now = host.claim(), world.store.now()
    stale = cases[0]._replace(attempt=7)
    moves = [finish(case, now) for case in (stale, *cases[1:])]
    assert [move.instance for move in host.record(*moves)] == [stale.instance]
    assert Instance.objects.filter(type__identifier=INDEX).count() == 3
    host.move(cases[0], Event.START)
    host.move(cases[0], Event.FAIL, reason=Reason.ERROR)
