"""No slot loses its outcome, and none runs for the wrong reason (G16)."""

import random
from datetime import timedelta

import pytest
from django.db.models import F

from atp.models import Instance, Schedule, Slot
from atp.rows.schedule import Outcome

from .test_planning import (  # noqa: F401 (fixtures)
    DAY,
    HOUR,
    MINUTE,
    NAME,
    SECOND,
    outcomes,
    schedule,
    store,
)

pytestmark = pytest.mark.django_db


def told(outcome):
    """Return the rows of an outcome: first slot, last slot, number."""
    rows = Slot.objects.filter(outcome=outcome).order_by("at")
    return [(row.at, row.until or row.at, row.count) for row in rows]


@pytest.fixture
def waiting(store, schedule, monkeypatch):  # noqa: F811
    """A slot that waits for its jitter; another came in a pause, which is over.

    Returns when the first one came, and the jitter.
    """
    delay = 50 * MINUTE
    monkeypatch.setattr("atp.store.common.schedules.slots.jitter", lambda *args: delay)
    row = schedule(every=10 * MINUTE, jitter=HOUR, missed="skip")
    came = row.next_at - 20 * MINUTE
    Schedule.objects.update(next_at=came, due_at=came + delay)
    store.schedules.pause(NAME)
    Schedule.objects.update(paused_since=came + 5 * MINUTE)
    store.schedules.resume(NAME)
    return came, delay


@pytest.mark.parametrize("seed", range(4))
def test_backfills_in_any_order(store, schedule, seed):  # noqa: F811
    """The row of what was missed stands for what is left, by its first slot, last and number."""
    chance = random.Random(seed)
    row = schedule(every=HOUR, ago=10 * HOUR, missed="skip")
    slots = [row.next_at + n * HOUR for n in range(10)]
    store.schedules.plan()
    done = set()
    while len(done) < len(slots):
        taken = sorted(chance.sample(slots, chance.randint(1, 3)))
        made = store.schedules.backfill(NAME, taken)
        assert made.enqueued == len(set(taken) - done)
        done |= set(taken)
        left = [at for at in slots if at not in done]
        assert told(Outcome.MISSED) == ([(left[0], left[-1], len(left))] if left else [])


def test_a_backfill_of_all_that_a_row_counts_leaves_those_that_it_does_not(store, schedule):  # noqa: F811
    row = schedule(every=SECOND, ago=HOUR, missed="skip")
    store.schedules.plan()
    Slot.objects.update(count=2, is_more=True)
    store.schedules.backfill(NAME, [row.next_at, row.next_at + SECOND])
    [(first, _, count)] = told(Outcome.MISSED)
    assert (first, count) == (row.next_at + 2 * SECOND, 1)


def test_a_backfill_of_a_slot_at_which_an_older_row_begins(store, schedule):  # noqa: F811
    """That row stands for slots of other times, from before a change."""
    now = store.now()
    row = schedule(every=HOUR)
    wanted = row.next_at - 3 * HOUR
    until = wanted + 100 * MINUTE
    Slot.objects.create(
        schedule=row, at=wanted, until=until, count=11, outcome=Outcome.MISSED, decided=now
    )
    store.schedules.backfill(NAME, [wanted])
    assert told(Outcome.ENQUEUED) == [(wanted, wanted, 1)]
    assert told(Outcome.MISSED) == [(until, until, 10)]


def test_a_pause_after_a_pause_that_has_ended(store, schedule):  # noqa: F811
    """Each slot has the outcome that it would have had, had a daemon been there."""
    row = schedule(every=10 * MINUTE, ago=2 * HOUR + MINUTE, missed="one")
    first = row.next_at
    Schedule.objects.update(
        paused_since=first - MINUTE, paused_until=first + 25 * MINUTE, paused_by="ann"
    )
    row = store.schedules.pause(NAME, who="bob")
    assert row.paused_since > first + 25 * MINUTE
    assert [count for _, _, count in told(Outcome.PAUSED)] == [3]
    assert "ann" in Slot.objects.get(outcome=Outcome.PAUSED).message
    assert len(told(Outcome.ENQUEUED)) == 1


def test_a_slot_whose_planning_fails_once_is_not_late_by_that(store, schedule, monkeypatch):  # noqa: F811
    row = schedule(cron="0 * * * *", missed="skip")
    with monkeypatch.context() as patch:
        patch.setattr(store.schedules._runs, "enqueue", lambda *args, **given: 1 / 0)
        store.schedules.plan(now=row.next_at + SECOND)
    found = Schedule.objects.get()
    assert "ZeroDivisionError" in found.trouble
    store.schedules.plan(now=found.due_at + SECOND)
    assert outcomes() == [(Outcome.ENQUEUED, 1)]


def test_two_pauses_with_a_slot_that_waits_are_one(store, waiting):  # noqa: F811
    """What fell into the first is not made up for."""
    came, delay = waiting
    store.schedules.pause(NAME)
    store.schedules.plan(now=came + delay)
    store.schedules.plan(now=came + 10 * MINUTE + delay)
    assert outcomes() == [(Outcome.ENQUEUED, 1), (Outcome.PAUSED, 1)]


def test_a_schedule_that_is_always_late_is_not_tried_all_the_time(store, schedule, monkeypatch):  # noqa: F811
    row = schedule(every=HOUR, late_after=timedelta(0))
    monkeypatch.setattr(store.schedules._runs, "enqueue", lambda *args, **given: 1 / 0)
    store.schedules.plan(now=row.next_at)
    found = Schedule.objects.get()
    assert "ZeroDivisionError" in found.trouble
    assert found.due_at == row.next_at + MINUTE


def test_a_row_that_would_begin_at_a_backfilled_slot(store, schedule):  # noqa: F811
    row = schedule(every=10 * MINUTE, jitter=10 * MINUTE, missed="skip")
    came = row.next_at - 10 * MINUTE
    Schedule.objects.update(next_at=came, due_at=store.now() + MINUTE)
    store.schedules.backfill(NAME, [came], who="ann")
    # No daemon runs for five hours.
    gap = 5 * HOUR
    Schedule.objects.update(next_at=F("next_at") - gap, due_at=F("due_at") - gap)
    Slot.objects.update(at=F("at") - gap)
    Instance.objects.update(identifier="another")
    store.schedules.plan()
    [(first, _, count)] = told(Outcome.MISSED)
    assert first == came - gap + 10 * MINUTE
    assert count >= 29


@pytest.mark.parametrize("verb", ["plan", "resume"])
def test_very_many_slots_of_a_pause(store, schedule, verb):  # noqa: F811
    row = schedule(every=SECOND, ago=4 * HOUR)
    Schedule.objects.update(paused_since=row.next_at - HOUR, paused_by="ann")
    store.schedules.plan() if verb == "plan" else store.schedules.resume(NAME)
    assert told(Outcome.MISSED) == []
    found = Slot.objects.get(outcome=Outcome.PAUSED)
    assert (found.at, found.is_more) == (row.next_at, True)


def test_a_jitter_of_very_many_slots(store, schedule):  # noqa: F811
    schedule(every=SECOND, jitter=DAY)
    now = store.now()
    past = (now - timedelta(seconds=20_000)).replace(microsecond=0)
    Schedule.objects.update(next_at=past, due_at=now)
    store.schedules.plan()
    assert Schedule.objects.get().trouble == ""


def test_a_slot_that_waits_for_its_jitter_outlasts_a_pause_of_others(store, waiting):  # noqa: F811
    came, delay = waiting
    row = Schedule.objects.get()
    assert (row.next_at, row.is_paused(store.now())) == (came, False)
    store.schedules.plan(now=came + delay)
    assert outcomes() == [(Outcome.ENQUEUED, 1)]
    store.schedules.plan(now=came + 11 * MINUTE + delay)
    assert outcomes() == [(Outcome.ENQUEUED, 1), (Outcome.PAUSED, 1)]
    store.schedules.plan(now=came + 21 * MINUTE + delay)
    assert outcomes()[2:] == [(Outcome.ENQUEUED, 1)]
    assert Schedule.objects.get().paused_since is None


def test_an_edit_right_after_a_slot_does_not_miss_it(store, schedule):  # noqa: F811
    """A daemon would have planned it a moment later."""
    schedule(every=10 * SECOND, ago=12 * SECOND)
    row = schedule(every=70 * SECOND)
    assert {outcome for outcome, _ in outcomes()} == {Outcome.ENQUEUED}
    assert row.next_at > store.now()


def test_two_daemons_that_trim_at_once(store, schedule, monkeypatch):  # noqa: F811
    row, now = schedule(), store.now()
    Slot.objects.bulk_create(
        Slot(schedule=row, at=now - n * MINUTE, outcome=Outcome.MISSED, decided=now)
        for n in range(7)
    )
    others = ["another"]
    # The other daemon trims between the count and the look at what is too old.
    real = type(Slot.objects.all()).order_by

    def order_by(self, *names):
        if names == ("-at",) and others:
            others.clear()
            store.schedules.trim(keep=5)
        return real(self, *names)

    monkeypatch.setattr(type(Slot.objects.all()), "order_by", order_by)
    assert store.schedules.trim(keep=5) == 0
    assert Slot.objects.count() == 5


def test_old_slots_are_removed_in_portions(store, schedule):  # noqa: F811
    """The newest are kept."""
    row = schedule(every=HOUR)
    ended = [row.next_at - n * HOUR for n in range(10)]
    Slot.objects.bulk_create(
        Slot(schedule=row, at=at, decided=at, outcome=Outcome.ENQUEUED) for at in ended
    )
    assert [store.schedules.trim(keep=3, limit=5) for _ in range(3)] == [5, 2, 0]
    assert Slot.objects.order_by("at").first().at == row.next_at - 2 * HOUR
