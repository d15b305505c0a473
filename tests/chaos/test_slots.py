"""The count of slots, held against slots made by hand (G16)."""

from datetime import UTC, datetime, timedelta

import pytest

from atp import queue
from atp.models import Instance, Schedule, Slot
from atp.rows.schedule import Outcome

from ..app.tasks_chaos import slot
from .slots import SECOND, TYPE, broken_of

NAME = "counted"
FIRST = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def planned(world):
    """Four slots of a schedule, the last two in a pause."""
    queue.register_all()
    row = queue.create_schedule(NAME, TYPE, every=SECOND)
    Schedule.objects.filter(pk=row.pk).update(next_at=FIRST + 4 * SECOND)
    queue.backfill_schedule(NAME, FIRST, FIRST + SECOND)
    Slot.objects.create(
        schedule=row,
        at=FIRST + 2 * SECOND,
        until=FIRST + 3 * SECOND,
        count=2,
        outcome=Outcome.PAUSED,
        decided=FIRST,
    )


def broken():
    return list(broken_of(NAME, FIRST))


def test_none_is_missing(planned):
    assert broken() == []


def test_one_is_missing(planned):
    Slot.objects.filter(at=FIRST + SECOND).delete()
    gap, instances = broken()
    assert "the slot after 2020-01-01 00:00:00" in gap
    assert "1 slots were enqueued, and 2 Instances" in instances


def test_the_last_is_missing(planned):
    Schedule.objects.filter(identifier=NAME).update(next_at=FIRST + 5 * SECOND)
    [words] = broken()
    assert "is to be" in words


def test_one_is_counted_twice(planned):
    Slot.objects.filter(count=2).update(count=3)
    [words] = broken()
    assert "3 slots are counted" in words


def test_one_is_enqueued_twice(planned):
    slot.using(created_by=f"schedule {NAME}").enqueue(slot=None)
    [words] = broken()
    assert "2 slots were enqueued, and 3 Instances" in words


def test_one_is_decided_before_its_time(planned):
    Slot.objects.filter(at=FIRST).update(decided=FIRST - SECOND)
    [words] = broken()
    assert "before its time" in words


@pytest.mark.parametrize(("seconds", "count"), [(60, 1), (61, 0)])
def test_one_is_missed_before_it_is_late(planned, seconds, count):
    """A slot is late after a minute."""
    decided = FIRST + SECOND + timedelta(seconds=seconds)
    row = Slot.objects.get(at=FIRST + SECOND)
    queue.delete(Instance.objects.get(pk=row.instance_id), cancel=True)
    Slot.objects.filter(pk=row.pk).update(outcome=Outcome.MISSED, decided=decided)
    words = broken()
    assert len(words) == count
    assert all("was not late" in each for each in words)
