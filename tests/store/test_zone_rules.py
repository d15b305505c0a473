"""The rules of time zones change while a slot is to come: each slot is decided once (G16).

A zone with other rules stands in for new rules: the column is changed as nobody but new data of the
host could, without planning anew.
"""

from datetime import timedelta

import pytest

from atp.models import LogRecord, Schedule, Slot
from atp.rows.schedule import Outcome

from .test_planning import DAY, HOUR, NAME, SECOND, outcomes, schedule, store  # noqa: F401

pytestmark = pytest.mark.django_db

# The offsets of these zones are +1, +2 and +3 hours.
PLUS_1, PLUS_2, PLUS_3 = "Etc/GMT-1", "Etc/GMT-2", "Etc/GMT-3"


@pytest.fixture
def nightly(store, schedule):  # noqa: F811
    """Make a schedule of one slot a day, which comes in three hours by the rules of PLUS_2."""

    def make(**given):
        local = store.now() + 5 * HOUR
        return schedule(cron=f"{local.minute} {local.hour} * * *", timezone=PLUS_2, **given)

    return make


def change_rules(zone):
    Schedule.objects.update(timezone=zone)


def test_a_slot_that_moves_earlier_runs_at_its_new_time(store, nightly):  # noqa: F811
    row = nightly()
    change_rules(PLUS_3)
    assert store.schedules.follow_rules() == [NAME]
    assert store.schedules.follow_rules() == []
    found = Schedule.objects.get()
    assert found.next_at == found.due_at == row.next_at - HOUR
    store.schedules.plan(now=found.next_at + SECOND)
    assert [slot.at for slot in Slot.objects.all()] == [row.next_at - HOUR]
    assert outcomes() == [(Outcome.ENQUEUED, 1)]
    assert Schedule.objects.get().next_at == row.next_at - HOUR + DAY
    assert LogRecord.objects.filter(detail="rules", subject=f"schedule:{NAME}").count() == 1


@pytest.mark.parametrize(
    ("missed", "outcome"), [("one", Outcome.ENQUEUED), ("skip", Outcome.MISSED)]
)
def test_a_slot_whose_new_time_has_passed_is_late(store, nightly, missed, outcome):  # noqa: F811
    row = nightly(missed=missed)
    change_rules(PLUS_3)
    store.schedules.follow_rules()
    store.schedules.plan(now=row.next_at - HOUR / 2)
    assert [(slot.at, slot.outcome) for slot in Slot.objects.all()] == [
        (row.next_at - HOUR, outcome)
    ]


def test_planning_itself_notices_that_the_slot_has_passed(store, nightly):  # noqa: F811
    """As where a daemon on a host with old data has planned meanwhile."""
    row = nightly()
    change_rules(PLUS_3)
    store.schedules.plan(now=row.next_at)
    assert [slot.at for slot in Slot.objects.all()] == [row.next_at - HOUR]
    assert outcomes() == [(Outcome.ENQUEUED, 1)]


def test_a_slot_that_moves_later_waits_for_its_new_time(store, nightly):  # noqa: F811
    row = nightly()
    change_rules(PLUS_1)
    store.schedules.plan(now=row.next_at)
    assert outcomes() == []
    assert Schedule.objects.get().next_at == row.next_at + HOUR
    store.schedules.plan(now=row.next_at + HOUR)
    assert [slot.at for slot in Slot.objects.all()] == [row.next_at + HOUR]


@pytest.mark.parametrize(("zone", "moved"), [(PLUS_1, HOUR), (PLUS_3, -HOUR)])
def test_a_time_of_the_clock_that_was_planned_is_not_planned_again(store, nightly, zone, moved):  # noqa: F811
    """The new rules put the time that has run an hour later: it is not another slot."""
    row = nightly()
    store.schedules.plan(now=row.next_at + SECOND)
    change_rules(zone)
    assert store.schedules.follow_rules() == [NAME]
    assert Schedule.objects.get().next_at == row.next_at + DAY + moved
    store.schedules.plan(now=row.next_at + 2 * HOUR)
    assert outcomes() == [(Outcome.ENQUEUED, 1)]


def test_what_moves_in_a_pause_is_paused(store, nightly):  # noqa: F811
    row = nightly()
    store.schedules.pause(NAME)
    change_rules(PLUS_3)
    store.schedules.follow_rules()
    store.schedules.plan(now=row.next_at - HOUR / 2)
    assert [(slot.at, slot.outcome) for slot in Slot.objects.all()] == [
        (row.next_at - HOUR, Outcome.PAUSED)
    ]


def test_an_interval_follows_no_rules(store, schedule):  # noqa: F811
    row = schedule(every=HOUR, timezone=PLUS_2)
    change_rules(PLUS_1)
    assert store.schedules.follow_rules() == []
    store.schedules.plan(now=row.next_at + SECOND)
    assert [slot.at for slot in Slot.objects.all()] == [row.next_at]


def test_what_an_older_release_has_planned_is_not_planned_again(store, schedule):  # noqa: F811
    """Such a release does not write up to where it has planned."""
    row = schedule(cron="0 * * * *", ago=HOUR)
    store.schedules.plan()
    Schedule.objects.update(planned_until=row.next_at - SECOND)
    assert store.schedules.follow_rules() == []
    found = Schedule.objects.get()
    assert found.next_at == row.next_at + HOUR
    assert found.planned_until > row.next_at
    Schedule.objects.update(planned_until=None)
    assert store.schedules.follow_rules() == []
    assert Schedule.objects.get().planned_until is not None


def test_a_slot_in_a_zone_that_the_host_lacks_is_recorded_when_the_zone_changes(store, schedule):  # noqa: F811
    """Its name is no more, as Europe/Kiev may be: the next slot is all that is known."""
    row = schedule(cron="0 * * * *", ago=HOUR)
    Schedule.objects.update(timezone="Europe/Atlantis")
    store.schedules.plan()
    assert Schedule.objects.get().trouble
    schedule(cron="0 * * * *", timezone="Europe/Kyiv")
    assert [(slot.at, slot.outcome) for slot in Slot.objects.all()] == [
        (row.next_at, Outcome.MISSED)
    ]
    assert Schedule.objects.get().next_at > store.now()


def test_a_slot_that_is_due_too_early_by_hand_is_not_lost(store, schedule):  # noqa: F811
    row = schedule(every=HOUR)
    Schedule.objects.update(due_at=store.now() - timedelta(seconds=1))
    store.schedules.plan()
    found = Schedule.objects.get()
    assert (found.next_at, found.due_at) == (row.next_at, row.next_at)
