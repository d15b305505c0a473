"""Limits that somebody keeps locked: their Types wait, and nothing else does."""

import pytest
from django.db import connection, transaction

from atp.models import Limit, Task
from atp.store.common.control import limits

from ..helpers import Thread, wait_for
from .test_lanes import lanes
from .world import ONE, TWO, scope

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor == "sqlite", reason="SQLite has one writer: nothing waits for a row"
    ),
]


@pytest.fixture
def limited(world):
    """A queue with a limited Type, a lane of it that has a limit too, and another Type."""
    world.enqueue(5)
    world.enqueue(5, type=TWO)
    world.store.limit(scope(ONE), max_running=4, per_second=0.001, burst=4, rate="1/1000s")
    world.store.limit(scope(ONE, "lane"), max_running=4)
    return world


@pytest.mark.parametrize(
    "keep",
    [
        lambda world: world.store.limit(scope(ONE), weight=2.0),
        lambda world: world.store.limit(scope(ONE, "lane"), max_running=2),
        lambda world: world.store.unlimit(scope(ONE), {"max_running": 3}),
        lambda world: list(Limit.objects.select_for_update()),
    ],
    ids=["limit", "limit-lane", "unlimit", "by-hand"],
)
def test_a_claim_leaves_out_what_somebody_keeps_locked(limited, keep):
    """G9: and takes it when the lock is gone."""
    host = limited.host()
    with transaction.atomic():
        keep(limited)
        assert lanes(Thread(host.claim).result()) == {(TWO, ""): 5}
        assert Thread(host.claim).result() == []
    wait_for(lambda: lanes(host.claim()).get((ONE, ""), 0) >= 3)


def test_many_locked_limits_take_as_long_as_one(world, monkeypatch):
    """A claim waits for all of them together as long as it would wait for one."""
    names = [f"locked.{number}" for number in range(20)]
    for name in names:
        world.enqueue(2, type=name)
        world.store.limit(scope(name), max_running=10)
    world.enqueue(5, type=TWO)
    host, slept = world.host(*names, TWO), []
    monkeypatch.setattr(limits.time, "sleep", slept.append)
    monkeypatch.setattr(limits.time, "monotonic", lambda: sum(slept))
    with transaction.atomic():
        list(Limit.objects.select_for_update())
        assert lanes(Thread(host.claim).result()) == {(TWO, ""): 5}
    assert sum(slept) == pytest.approx(limits.TURNS, abs=2 * limits.TURN)


def test_who_finds_one_limit_locked_keeps_no_other(limited):
    """Or two that want both would keep them from each other."""
    host = limited.host()
    with transaction.atomic():
        Limit.objects.select_for_update().get(collection="lane")
        Thread(host.claim).result()
        others = Limit.objects.filter(collection=None).select_for_update(nowait=True)
        assert len(others) == 1


def test_giving_tokens_back_waits_for_nobody(limited):
    """They are spent then, which is no more than a start that comes late."""
    host = limited.host()
    wait_for(lambda: len(host.claim()) > 0 or Task.objects.claimed().count() == 9)
    with transaction.atomic():
        Limit.objects.select_for_update().get(collection=None)
        Thread(lambda: limited.store.give_back([(ONE, "")])).result()
    limited.store.give_back([(ONE, "")])
    assert Limit.objects.get(collection=None).tokens == pytest.approx(1, abs=0.1)
