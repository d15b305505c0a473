"""The store for PostgreSQL: one task is claimed by a statement of its own where that is simple."""

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from atp.conf import settings
from atp.exceptions import LeaseLost
from atp.models import Task
from atp.states import Event
from atp.store.postgresql import PostgreSQLStore
from tests.helpers import at_once

from .world import ONE, TWO, World, scope

pytestmark = pytest.mark.skipif(connection.vendor != "postgresql", reason="that of PostgreSQL")


@pytest.fixture
def world(db, tmp_path):
    with World(PostgreSQLStore(settings.DATABASE), tmp_path) as world:
        yield world


def claimed(host):
    """Claim one; return its key, or None, and how many statements that took."""
    with CaptureQueriesContext(connection) as queries:
        found = host.claim(1)
    return found[0].instance if found else None, len(queries)


@pytest.fixture
def host(world):
    """One whose statements are prepared, as those of a daemon that has been at it for a while."""
    host = world.host()
    for _ in range(5):
        host.claim(1)
    return host


def test_what_is_simple_takes_one_statement(world, host):
    [first, second] = world.enqueue(2, identifier=None)
    assert claimed(host) == (first, 1)
    assert claimed(host) == (second, 1)
    assert world.events(second) == [Event.ENQUEUE, Event.CLAIM]
    assert claimed(host)[0] is None


def test_what_is_dated_in_the_future_hides_nothing(world, host):
    """G8."""
    world.enqueue(3, due=world.store.now() + timedelta(hours=1), priority=9)
    [due] = world.enqueue()
    [of_another] = world.enqueue(type=TWO)
    assert {claimed(host)[0], claimed(host)[0]} == {due, of_another}
    assert claimed(host)[0] is None


@pytest.mark.parametrize("of", [(), (ONE,), (ONE, "a")])
def test_no_gate_is_passed(world, host, of):
    [held] = world.enqueue(collection="a")
    shut = scope(*of)
    world.store.shut(shut, "hold")
    assert claimed(host)[0] is None
    [other] = world.enqueue(type=TWO)
    assert claimed(host)[0] == (other if of else None)
    world.store.open(shut)
    assert held in {claimed(host)[0], claimed(host)[0]}


def test_no_limit_is_passed(world, host):
    first, _ = world.enqueue(2)
    world.store.limit(scope(ONE), max_running=1)
    assert claimed(host)[0] == first
    assert claimed(host)[0] is None


def test_a_lease_that_has_run_out(world, host):
    """G4."""
    world.enqueue()
    host.lose_lease()
    with pytest.raises(LeaseLost):
        host.claim(1)


@pytest.mark.django_db(transaction=True)
def test_what_another_is_about_to_take(world, host):
    """G3: it is left to that, and nobody waits."""
    first, second = world.enqueue(2)
    with transaction.atomic():
        Task.objects.select_for_update().get(pk=first)
        [[found]] = at_once(lambda: host.claim(1))
        assert found.instance == second
