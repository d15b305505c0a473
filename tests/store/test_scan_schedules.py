"""The store contract: scan. Schedules whose slots are not decided are found (G16)."""

from datetime import timedelta

import pytest

from atp.models import Schedule
from atp.payload.codec import Payload
from atp.store.findings import NOWHERE, Trouble
from atp.store.values import ScheduleSpec

from .broken import LONG, settle
from .world import ONE, registration

HOUR = timedelta(hours=1)


@pytest.fixture
def due(world):
    """Make a schedule that has been due for so long; returns its next slot."""
    world.store.register([registration(ONE)])

    def make(ago, **changes):
        spec = ScheduleSpec(identifier="hourly", type=ONE, inputs=Payload("json", "{}"), every=HOUR)
        world.store.schedules.set(spec)
        past = world.store.now() - ago
        Schedule.objects.filter(identifier="hourly").update(
            **{"next_at": past, "due_at": past, **changes}
        )
        return past

    return make


def found(world):
    return list(world.store.scan(NOWHERE).findings)


def test_due_for_long_while_a_daemon_lives(world, due):
    """G16: nobody can mend it from outside, but it is said."""
    settle(world.host(ONE), idle=False)
    since = due(LONG)
    [finding] = found(world)
    assert (finding.trouble, finding.schedule, finding.type) == (Trouble.UNPLANNED, "hourly", ONE)
    assert (finding.since, finding.done) == (since, "")
    assert str(finding).startswith("schedule hourly: ")
    world.store.schedules.plan()
    assert found(world) == []


def test_due_for_a_moment(world, due):
    settle(world.host(ONE))
    due(timedelta(seconds=5))
    assert found(world) == []


def test_due_for_long_without_a_daemon(world, due):
    """It is decided as soon as one comes; health says that none is there."""
    due(LONG)
    assert found(world) == []
    world.host(ONE)  # and has just come
    assert found(world) == []


def test_one_whose_jitter_is_long_is_not_due_yet(world, due):
    settle(world.host(ONE))
    due(LONG, due_at=world.store.now() + timedelta(seconds=5))
    assert found(world) == []


def test_one_that_cannot_be_planned_says_why(world, due):
    """G16: although it is tried again in a while, and then again."""
    settle(world.host(ONE))
    due(LONG, every=None)
    world.store.schedules.plan()
    [finding] = found(world)
    assert "every" in finding.why
    assert finding.why in str(finding)
