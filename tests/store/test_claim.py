"""The store contract: claim."""

import random
from collections import Counter
from datetime import timedelta
from itertools import product

import pytest
from django.db import transaction

from atp.models import Task
from atp.querysets import CLAIMING_ORDER
from atp.states import Event, Reason, State

from .world import HOUR, ONE, SECOND, THREE, TWO, registration, scope


def test_it_brings_all_that_the_attempt_needs(world):
    of = registration(timeout=9 * SECOND, max_retries=4)
    [key] = world.enqueue(type=of, identifier="id", collection="esa", priority=3)
    host = world.host()
    [claimed] = host.claim()
    instance = world.get(key)
    assert (claimed.instance, claimed.uuid, claimed.type) == (key, instance.uuid, ONE)
    assert (claimed.number, claimed.lost, claimed.retries) == (1, 0, 0)
    assert (claimed.identifier, claimed.collection, claimed.priority) == ("id", "esa", 3)
    parameters = claimed.parameters
    assert (parameters.timeout, parameters.max_retries) == (9 * SECOND, 4)
    assert (parameters.backoff, parameters.backoff_max) == (5 * SECOND, HOUR)
    assert claimed.inputs.data == "{}"
    record = world.log(key)[-1]
    assert (record.event, record.state, record.attempt) == (Event.CLAIM, State.SCHEDULED, 1)
    assert (record.who, record.time) == (str(host.row), claimed.time)
    assert (instance.state, instance.attempt, host.holds()) == (State.SCHEDULED, 1, {key})


def test_it_tells_to_the_microsecond_for_how_long_a_task_was_due(world):
    """A daemon counts the wait, and so does whoever reads it from the log."""
    now = world.store.now().replace(microsecond=0)
    ago = [timedelta(microseconds=1), timedelta(seconds=2, microseconds=999_999), HOUR]
    due = {key: now - each for each in ago for key in world.enqueue(due=now - each)}
    for claimed in world.host().claim():
        waited = timedelta(seconds=claimed.waited)
        assert waited == claimed.time - due[claimed.instance]


def test_only_the_types_that_are_named(world):
    [one] = world.enqueue(type=ONE)
    world.enqueue(type=TWO)
    [three] = world.enqueue(type=THREE)
    host = world.host()
    for types, limit in ((("unknown",), 10), ([], 10), ((ONE,), 0)):
        assert world.store.claims.claim(host.uuid, types, limit) == []
    claimed = host.claim(types=(ONE, THREE, "unknown"))
    assert {each.instance for each in claimed} == {one, three}


TYPES = (ONE, TWO, THREE)


def fill(world, count):
    """Enqueue a few at a time: of all Types, priorities, lanes and times."""
    now = world.store.now()
    for _ in range(count):
        world.enqueue(
            random.choice([1, 1, 3]),
            type=random.choice(TYPES),
            priority=random.choice([-100, -1, 0, 0, 1, 100]),
            collection=random.choice(["", "esa"]),
            due=now + random.choice([-60, -30, -1, 3600]) * SECOND,
        )


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_each_lane_in_its_order_and_to_even_shares(world, limit):
    """G8, G9."""
    fill(world, 40)
    host, waiting = world.host(), {lane: [] for lane in product(TYPES, ("", "esa"))}
    for task in Task.objects.due(world.store.now()).in_claiming_order():
        waiting[task.type.identifier, task.collection].append(task.pk)
    while any(waiting.values()):
        claimed = host.claim(limit)
        assert len(claimed) == min(limit, sum(map(len, waiting.values())))
        check_shares(Counter(each.type for each in claimed), waiting, limit)
        for lane, keys in waiting.items():
            own = [each.instance for each in claimed if (each.type, each.collection) == lane]
            assert own == keys[: len(own)]
            del keys[: len(own)]
    assert host.claim(limit) == []


def check_shares(counts, waiting, limit):
    """Nobody gets more than a share before everybody else has got one."""
    of_type = Counter(type for (type, _), keys in waiting.items() for _ in keys)
    share = limit // len(of_type)
    if max(counts.values()) > share + 1:
        assert all(counts[type] >= min(share, number) for type, number in of_type.items())


def test_what_is_dated_in_the_future_hides_nothing_of_any_lower_priority(world):
    later = world.store.now() + HOUR
    for priority in range(0, 60, 2):
        world.enqueue(2, priority=priority, due=later)
    wanted = [key for priority in (41, 1, -5) for key in world.enqueue(2, priority=priority)]
    assert [each.instance for each in world.host().claim()] == wanted


def test_what_is_too_late_is_missed_and_hides_nothing_behind_it(world):
    now = world.store.now()
    missed = world.enqueue(7, start_before=now - SECOND, priority=5)
    [key] = world.enqueue(start_before=now + HOUR)
    host = world.host()
    # A store may take more than one look, but says when it has found something to do.
    assert [each.instance for _ in range(20) for each in host.claim(1)] == [key]
    for late in missed:
        instance = world.get(late)
        assert (instance.state, instance.reason) == (State.FAILED, Reason.MISSED)
        assert world.events(late) == [Event.ENQUEUE, Event.FAIL]
        assert world.log(late)[-1].who == str(host.row)


def test_what_a_rolled_back_claim_took_is_claimed_again(world):
    """G7: a claim is part of the caller's transaction."""
    keys = world.enqueue(3)
    host = world.host()
    before = world.snapshot()
    with transaction.atomic():
        assert len(host.claim()) == 3
        transaction.set_rollback(True)
    assert world.snapshot() == before
    claimed = host.claim()
    assert [(each.instance, each.number) for each in claimed] == [(key, 1) for key in keys]
    host.move(claimed[0], Event.START)


COUNT = 60


@pytest.mark.parametrize(
    ("limits", "max_running", "more"),
    [
        ((1,), None, {}),
        ((COUNT,), None, {"careful": True}),
        ((2, 30, 1, 5), None, {}),
        ((1, 7), COUNT, {"free": COUNT}),
    ],
    ids=str,
)
def test_claims_are_in_the_order_that_is_said(world, limits, max_running, more):
    """G8: of one lane, with random priorities and due times, many of them the same."""
    chance, now = random.Random(18), world.store.now()
    for _ in range(COUNT):
        due = now - chance.randrange(60, 64) * SECOND
        world.enqueue(priority=chance.randrange(-1, 3), due=due)
    in_order = Task.objects.waiting().order_by(*CLAIMING_ORDER)
    expected = list(in_order.values_list("pk", flat=True))
    if max_running:
        world.store.control.limit(scope(ONE), max_running=max_running)
    host, keys = world.host(), []
    while claimed := host.claim(limits[len(keys) % len(limits)], **more):
        keys += [task.instance for task in claimed]
    assert keys == expected
