"""Hooks of what a schedule enqueues, also where its Instances wait for each other (G17)."""

import pytest

from atp.models import Schedule
from atp.rows.task import HOOKED as MARK

from . import hooks
from .hooks import INDEX, hooks_of
from .test_overlap import Line
from .world import ONE, registration

pytestmark = pytest.mark.django_db


@pytest.fixture
def line(world):
    Schedule.objects.all().delete()
    world.store.register([registration(ONE, hooks=hooks.BOTH), *hooks.HOOK_TYPES])
    yield Line(world)
    hooks.check()


def ends_of(key):
    return [type for type, _ in hooks_of(key)]


def test_what_a_schedule_enqueues_has_the_hooks_of_its_type(line):
    line.create(overlap="allow")
    [key] = line.plan()
    assert line.world.task(key).waits == MARK
    line.claim()
    line.end()
    assert ends_of(key) == [INDEX]


def test_those_that_wait_for_each_other(line):
    line.create()
    keys = line.plan(3)
    for key in keys:
        line.last = line.host.claim(types=(ONE,))
        assert [case.instance for case in line.last] == [key]
        line.end()
        assert ends_of(key) == [INDEX]


def test_one_that_is_taken_into_a_line_keeps_its_hooks(line):
    """It was enqueued before its schedule began to let them wait for each other."""
    line.create(overlap="allow")
    [first] = line.plan()
    line.claim()
    line.create()
    [second] = line.plan()
    assert (line.world.task(first).waits, line.world.task(second).waits) == (0, 1)
    line.end()
    assert ends_of(first) == [INDEX]
    assert line.claim() == [second]


def test_an_end_that_had_looked_before_is_settled_as_a_node(line, monkeypatch):
    """It is taken into a line between the look at what ends and the end."""
    line.create(overlap="allow")
    [first] = line.plan()
    line.claim()
    line.create()
    graphs = line.world.store.graphs
    if not hasattr(graphs, "lock_ends"):
        pytest.skip("SQLite has one writer: nobody comes in between")
    look, made = graphs.lock_ends, []

    def plan_after(*args, **given):
        found = look(*args, **given)
        if not made:
            made.extend(line.plan())
        return found

    monkeypatch.setattr(graphs, "lock_ends", plan_after)
    line.end()
    [second] = made
    assert ends_of(first) == [INDEX]
    assert line.claim() == [second]
