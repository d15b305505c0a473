"""Planning: each slot of a schedule is decided once, and its outcome is kept (G16)."""

from datetime import UTC, timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F

from atp.exceptions import IllegalSchedule, ScheduleChanged, TypeInUse
from atp.models import Instance, LogRecord, Schedule, Slot, Task
from atp.payload.codec import Payload
from atp.rows.schedule import Outcome
from atp.rows.task import HOOKED
from atp.store.values import ScheduleSpec, Scope
from atp.words import schedule_messages

from ..clock import wait_for_moment
from ..nonsense import tells
from .world import ONE, TWO, registration

pytestmark = pytest.mark.django_db

NAME = "nightly"
SECOND, MINUTE, HOUR, DAY = (timedelta(**{n: 1}) for n in ("seconds", "minutes", "hours", "days"))


@pytest.fixture
def store(world):
    # Those that the code of the tests declares.
    Schedule.objects.all().delete()
    world.store.register([registration(ONE), registration(TWO)])
    # A minute that began in the middle of a test would be one slot more; and a slot of ten minutes
    # or of an hour that has just come would be in time.
    wait_for_moment(world.store.now, _is_within, "a moment well within a minute and hour")
    return world.store


def _is_within(now):
    return now.second < 52 and now.minute % 10 > 0


@pytest.fixture
def schedule(store):
    """Make schedules: ``schedule(every=HOUR)``; with ``ago`` its next slot is so long ago."""

    def make(identifier=NAME, *, ago=None, type=ONE, **given):
        if "cron" not in given:
            given.setdefault("every", MINUTE)
        spec = ScheduleSpec(identifier=identifier, type=type, inputs=Payload("json", "{}"), **given)
        row = store.schedules.set(spec, who="tests")
        if ago is not None:
            past = spec.timing.after(store.now() - ago)
            Schedule.objects.filter(pk=row.pk).update(next_at=past, due_at=past)
        return Schedule.objects.get(pk=row.pk)

    return make


def outcomes(identifier=NAME):
    found = Slot.objects.filter(schedule__identifier=identifier).order_by("at")
    return [(slot.outcome, slot.count) for slot in found]


def test_a_slot_is_enqueued_once_it_is_due(store, schedule):
    row = schedule()
    assert store.schedules.plan().decided == 0
    past = row.next_at - MINUTE
    Schedule.objects.update(next_at=past, due_at=past)
    planned = store.schedules.plan(who="host")
    assert (planned.decided, planned.enqueued, planned.is_whole) == (1, 1, True)
    [slot] = Slot.objects.all()
    instance = Instance.objects.get(pk=slot.instance_id)
    assert (slot.at, slot.outcome, slot.who) == (past, Outcome.ENQUEUED, "host")
    assert instance.identifier == f"nightly@{past:%Y-%m-%dT%H:%M:%SZ}"
    assert instance.created_by == "schedule nightly"
    row.refresh_from_db()
    assert (row.next_at, row.last_id) == (past + MINUTE, instance.pk)
    assert store.schedules.plan().decided == 0


def test_a_slot_that_comes_again_is_not_run_again(store, schedule):
    """G16: as when the row was restored, or moved back by hand."""
    row = schedule(ago=MINUTE)
    store.schedules.plan()
    Schedule.objects.update(next_at=row.next_at, due_at=row.next_at)
    store.schedules.plan()
    assert Instance.objects.count() == 1
    assert outcomes() == [(Outcome.ENQUEUED, 1)]


def test_an_instance_that_is_there_is_the_one_of_its_slot(store, schedule):
    """G16: also if the record of the slot was lost."""
    row = schedule(ago=MINUTE)
    store.schedules.plan()
    Slot.objects.all().delete()
    Schedule.objects.update(next_at=row.next_at, due_at=row.next_at)
    store.schedules.plan()
    assert Instance.objects.count() == 1
    assert outcomes() == [(Outcome.ENQUEUED, 1)]


def test_what_is_not_committed_was_not_planned(store, schedule):
    """G16: killed before the commit, nothing was; the next one plans it."""
    schedule(ago=MINUTE)
    with transaction.atomic():
        store.schedules.plan()
        transaction.set_rollback(True)
    assert outcomes() == []
    store.schedules.plan()
    assert outcomes() == [(Outcome.ENQUEUED, 1)]


@pytest.mark.parametrize(
    ("missed", "most", "enqueued"), [("skip", 100, 0), ("one", 100, 1), ("all", 7, 7)]
)
def test_three_days_without_a_daemon(store, schedule, missed, most, enqueued):
    """G16: skip, one or all of what was missed, and one row for the rest."""
    schedule(every=HOUR, ago=3 * DAY, missed=missed, most=most, late_after=MINUTE)
    store.schedules.plan()
    found = outcomes()
    late = [pair for pair in found if pair[0] == Outcome.MISSED]
    assert len(late) == 1
    assert Instance.objects.count() == enqueued
    assert sum(count for _, count in found) in (72, 73)
    [row] = Slot.objects.filter(outcome=Outcome.MISSED)
    assert row.until == row.at + (row.count - 1) * HOUR


@pytest.mark.parametrize("overlap", ["allow", "queue"])
def test_all_instances_of_a_schedule_have_its_options(store, schedule, overlap):
    """Those of its slots, of a backfill, and of run now; the last two have no time of a slot."""
    hooks = [{"on": "on_failed", "type": TWO}]
    given = {"start_before": HOUR, "timeout": 90 * SECOND, "hooks": hooks, "overlap": overlap}
    row = schedule(every=MINUTE, ago=MINUTE, **given)
    before = store.now()
    store.schedules.plan()
    planned = Instance.objects.get()
    assert planned.start_before == row.next_at + HOUR
    store.schedules.backfill(NAME, [row.next_at - DAY])
    store.schedules.run(NAME)
    asked = Instance.objects.exclude(pk=planned.pk)
    assert all(before + HOUR <= each.start_before <= store.now() + HOUR for each in asked)
    assert [each.own for each in Instance.objects.all()] == [{"timeout": 90, "hooks": hooks}] * 3
    waits = [HOOKED] * 3 if overlap == "allow" else [0, 1, 2]
    assert [task.waits for task in Task.objects.order_by("pk")] == waits


@pytest.mark.parametrize(
    ("missed", "start_before", "enqueued"),
    [("one", MINUTE, 0), ("all", MINUTE, 0), ("one", 3 * HOUR, 1), ("all", 3 * HOUR, 3)],
)
def test_a_slot_whose_instance_could_not_start_in_time_is_missed(
    store, schedule, missed, start_before, enqueued
):
    schedule(every=HOUR, ago=DAY, missed=missed, start_before=start_before)
    store.schedules.plan()
    assert Instance.objects.count() == enqueued
    assert outcomes()[0] == (Outcome.MISSED, 24 - enqueued)


def test_a_slot_may_not_be_late_and_yet_too_late_to_start(store, schedule):
    schedule(every=10 * MINUTE, ago=HOUR, late_after=DAY, start_before=20 * MINUTE)
    store.schedules.plan()
    assert outcomes() == [(Outcome.MISSED, 4), (Outcome.ENQUEUED, 1), (Outcome.ENQUEUED, 1)]


E, S, M = Outcome.ENQUEUED, Outcome.SKIPPED, Outcome.MISSED


@pytest.mark.parametrize(
    ("missed", "overlap", "expected"),
    [
        ("skip", "allow", [(M, 2), (E, 1)]),
        ("skip", "skip", [(M, 2), (E, 1)]),
        ("skip", "queue", [(M, 2), (E, 1)]),
        ("skip", "cancel", [(M, 2), (E, 1)]),
        ("one", "allow", [(M, 1), (E, 1), (E, 1)]),
        ("one", "skip", [(M, 1), (S, 1), (E, 1)]),
        ("one", "queue", [(M, 1), (E, 1), (E, 1)]),
        ("one", "cancel", [(M, 1), (S, 1), (E, 1)]),
        ("all", "allow", [(E, 1), (E, 1), (E, 1)]),
        ("all", "skip", [(S, 1), (S, 1), (E, 1)]),
        ("all", "queue", [(E, 1), (E, 1), (E, 1)]),
        ("all", "cancel", [(S, 1), (S, 1), (E, 1)]),
    ],
)
def test_a_slot_in_time_runs_whatever_late_ones_are_due_with_it(
    store, schedule, missed, overlap, expected
):
    """G16: two slots are late, and the third is in time."""
    row = schedule(every=HOUR, missed=missed, overlap=overlap)
    store.schedules.plan(now=row.next_at + 2 * HOUR + SECOND)
    assert outcomes() == expected
    for slot in Slot.objects.filter(outcome=S):
        assert tells(slot.message, schedule_messages.slot_passed_over(overlap))


def test_the_slot_in_time_gets_the_last_place_in_the_line(store, schedule):
    row = schedule(every=HOUR, missed="one", overlap="queue", most=1)
    store.schedules.run(NAME)
    store.schedules.plan(now=row.next_at + HOUR + SECOND)
    assert outcomes() == [(S, 1), (E, 1)]


def test_the_slot_in_time_gets_the_last_room_of_its_type(store, schedule):
    row = schedule(every=HOUR, missed="one", overlap="allow")
    store.limit(Scope(type=row.type), max_waiting=1)
    store.schedules.plan(now=row.next_at + HOUR + SECOND)
    assert outcomes() == [(S, 1), (E, 1)]


def test_all_is_no_older_than_the_window(store, schedule):
    schedule(every=HOUR, ago=3 * DAY, missed="all", window=5 * HOUR)
    store.schedules.plan()
    assert Instance.objects.count() == 5


def test_a_gap_of_a_year_is_one_row(store, schedule):
    schedule(every=timedelta(seconds=10), ago=365 * DAY, missed="one")
    store.schedules.plan()
    (first, _), *others = outcomes()
    assert first == Outcome.MISSED
    assert {outcome for outcome, _ in others} == {Outcome.ENQUEUED}
    assert Slot.objects.get(outcome=Outcome.MISSED).is_more


def once_more(row):
    """Let the slot before that of ``row`` be due, too."""
    before = row.next_at - HOUR
    Schedule.objects.update(next_at=before, due_at=before, late_after=DAY)


@pytest.mark.parametrize(("overlap", "count"), [("allow", 2), ("skip", 1)])
def test_while_the_last_one_has_not_ended(store, schedule, overlap, count):
    row = schedule(every=HOUR, ago=HOUR, late_after=DAY, overlap=overlap)
    store.schedules.plan()
    first = Instance.objects.get()
    once_more(row)
    store.schedules.plan()
    assert Instance.objects.count() == count
    skipped = Slot.objects.filter(outcome=Outcome.SKIPPED)
    assert [slot.instance_id for slot in skipped] == [first.pk] * (overlap == "skip")


def test_the_next_one_runs_when_the_last_has_ended(store, schedule):
    row = schedule(every=HOUR, ago=HOUR, late_after=DAY, overlap="skip")
    store.schedules.plan()
    store.cancel([Instance.objects.get().pk])
    once_more(row)
    store.schedules.plan()
    assert [outcome for outcome, _ in outcomes()] == [Outcome.ENQUEUED] * 2


def test_slots_that_pass_in_a_pause_are_one_row(store, schedule):
    row = schedule()
    store.schedules.pause(NAME, who="ann", reason="storage moves")
    Schedule.objects.update(paused_since=row.next_at - HOUR)
    for _ in range(3):
        last = Schedule.objects.get().next_at - 4 * MINUTE
        Schedule.objects.update(next_at=last, due_at=last)
        Slot.objects.filter(until__isnull=False).update(until=last - MINUTE)
        store.schedules.plan()
    [slot] = Slot.objects.all()
    assert slot.outcome == Outcome.PAUSED
    assert slot.count >= 3
    assert Instance.objects.count() == 0


def test_a_pause_ends_by_itself(store, schedule):
    row = schedule(ago=3 * MINUTE, late_after=HOUR)
    until = row.next_at + MINUTE
    Schedule.objects.update(paused_since=row.next_at - MINUTE, paused_until=until)
    store.schedules.plan()
    assert outcomes()[0] == (Outcome.PAUSED, 1)
    assert {outcome for outcome, _ in outcomes()[1:]} == {Outcome.ENQUEUED}
    assert Schedule.objects.get().paused_since is None


def test_resumed_it_goes_on_after_now(store, schedule):
    """G16: never at once; the outcomes of the slots before are kept."""
    schedule(ago=HOUR)
    store.schedules.pause(NAME, who="ann")
    back = store.now() - 10 * MINUTE
    Schedule.objects.update(paused_since=back)
    row = store.schedules.resume(NAME, who="ann")
    assert row.next_at > store.now()
    assert store.schedules.plan().decided == 0
    assert [outcome for outcome, _ in outcomes()] == [Outcome.MISSED, Outcome.PAUSED]
    assert sum(count for _, count in outcomes()) == 60


def test_a_slot_that_waits_for_its_jitter_outlives_a_pause(store, schedule):
    row = schedule(every=HOUR, jitter=HOUR)
    came, due = row.next_at - HOUR, store.now() + MINUTE
    Schedule.objects.update(next_at=came, due_at=due)
    store.schedules.pause(NAME)
    row = store.schedules.resume(NAME)
    assert (row.next_at, row.due_at) == (came, due)


def test_a_second_pause_tells_its_own_reason(store, schedule):
    schedule(every=HOUR, ago=5 * HOUR)
    store.schedules.pause(NAME, who="ann", reason="storage moves")
    back = store.now() - DAY
    Schedule.objects.update(paused_since=back)
    store.schedules.pause(NAME, who="bob", reason="disk broken")
    # As if an hour passed.
    Slot.objects.update(at=F("at") - HOUR, until=F("until") - HOUR)
    Schedule.objects.update(next_at=F("next_at") - HOUR, due_at=F("due_at") - HOUR)
    store.schedules.resume(NAME)
    told = Slot.objects.order_by("at").values_list("count", "message")
    assert [*told] == [(5, "paused by ann: storage moves"), (1, "paused by bob: disk broken")]


def test_a_pause_that_is_over_is_followed_by_one_of_its_own(store, schedule):
    schedule(every=HOUR)
    store.schedules.pause(NAME, who="ann", until=store.now() + HOUR)
    over = store.now() - MINUTE
    Schedule.objects.update(paused_since=over - MINUTE, paused_until=over)
    row = store.schedules.pause(NAME, who="bob")
    assert row.paused_since > over
    assert row.was_paused is None


def test_an_edit_of_its_times_goes_on_after_now(store, schedule):
    schedule(ago=HOUR)
    row = schedule(every=timedelta(minutes=7))
    assert row.next_at > store.now()
    assert row.next_at.timestamp() % 420 == 0
    assert outcomes() == [(Outcome.MISSED, 60)]


def test_an_edit_of_its_jitter_alone_loses_no_slot(store, schedule):
    row = schedule(every=HOUR, jitter=HOUR)
    came = row.next_at - HOUR
    Schedule.objects.update(next_at=came, due_at=store.now() + MINUTE)
    row = schedule(every=HOUR, jitter=MINUTE)
    assert row.next_at == came
    assert came <= row.due_at <= came + MINUTE


def test_what_was_mended_is_in_trouble_no_more(store, schedule):
    schedule(cron="30 2 * * *", ago=MINUTE)
    Schedule.objects.update(cron="61 2 * * *", due_at=store.now())
    store.schedules.plan()
    assert Schedule.objects.get().trouble
    schedule(cron="@yearly")
    assert Schedule.objects.get().trouble == ""


def test_what_an_operator_has_set_runs_again_when_it_is_declared_again(store, schedule):
    declared = ScheduleSpec(identifier=NAME, type=ONE, inputs=Payload("json", "{}"), every=HOUR)
    store.schedules.declare([declared])
    schedule(every=MINUTE)
    store.schedules.retire(set())
    store.schedules.declare([declared])
    row = Schedule.objects.get()
    assert (row.retired, row.is_set) == (None, True)
    store.schedules.plan()
    row.refresh_from_db()
    assert store.now() < row.due_at <= store.now() + MINUTE


def test_a_retired_schedule_is_neither_paused_nor_resumed(store, schedule):
    declared = ScheduleSpec(identifier=NAME, type=ONE, inputs=Payload("json", "{}"), every=HOUR)
    store.schedules.declare([declared])
    store.schedules.pause(NAME)
    store.schedules.retire(set())
    for verb in (store.schedules.pause, store.schedules.resume):
        with pytest.raises(IllegalSchedule, match="no code declares it"):
            verb(NAME)
    assert Schedule.objects.get().due_at is None


@pytest.mark.parametrize("expected", [0, None])
def test_two_that_make_it_at_once(store, schedule, monkeypatch, expected):
    """On PostgreSQL there is no row yet that the second could wait for."""
    spec = ScheduleSpec(identifier=NAME, type=ONE, inputs=Payload("json", "{}"), every=HOUR)
    set_, others = store.schedules._set, ["other"]

    def late(*args):
        if others:
            set_(spec, others.pop(), None)
            raise IntegrityError
        return set_(*args)

    monkeypatch.setattr(store.schedules, "_set", late)
    if expected is None:
        assert store.schedules.set(spec).revision == 2
    else:
        with pytest.raises(ScheduleChanged):
            store.schedules.set(spec, expected=expected)


def test_two_edits_at_once(store, schedule):
    row = schedule()
    spec = ScheduleSpec(identifier=NAME, type=ONE, inputs=Payload("json", "{}"), every=HOUR)
    store.schedules.set(spec, expected=row.revision)
    with pytest.raises(ScheduleChanged, match="revision 2"):
        store.schedules.set(spec, expected=row.revision)
    with pytest.raises(ScheduleChanged, match="already"):
        store.schedules.set(spec, expected=0)


def test_what_an_operator_has_set_outlives_a_deploy(store, schedule):
    declared = ScheduleSpec(identifier=NAME, type=ONE, inputs=Payload("json", "{}"), every=HOUR)
    store.schedules.declare([declared])
    schedule(every=MINUTE)
    store.schedules.declare([declared])
    assert Schedule.objects.get().every == MINUTE
    store.schedules.leave(NAME, who="ann")
    store.schedules.declare([declared])
    row = Schedule.objects.get()
    assert (row.every, row.is_set) == (HOUR, False)


def test_a_declaration_that_is_the_same_writes_nothing(store, django_assert_num_queries):
    declared = ScheduleSpec(identifier=NAME, type=ONE, inputs=Payload("json", "{}"), every=HOUR)
    store.schedules.declare([declared])
    count = LogRecord.objects.count()
    with django_assert_num_queries(1):
        store.schedules.declare([declared])
    assert LogRecord.objects.count() == count


def test_what_no_code_declares_is_retired(store, schedule):
    declared = ScheduleSpec(identifier=NAME, type=ONE, inputs=Payload("json", "{}"), every=MINUTE)
    store.schedules.declare([declared])
    schedule("by an operator")
    assert store.schedules.retire({"another"}) == [NAME]
    row = Schedule.objects.get(identifier=NAME)
    assert (row.next_at, row.due_at) == (None, None)
    store.schedules.declare([declared])
    assert Schedule.objects.get(identifier=NAME).next_at is not None


def test_slots_that_nobody_has_planned_before_it_retires_are_missed(store, schedule):
    declared = ScheduleSpec(identifier=NAME, type=ONE, inputs=Payload("json", "{}"), every=MINUTE)
    store.schedules.declare([declared])
    past = Schedule.objects.get().next_at - 3 * MINUTE
    Schedule.objects.update(next_at=past, due_at=past)
    store.schedules.retire(set())
    assert outcomes() == [(Outcome.MISSED, 3)]
    assert Schedule.objects.get().next_at is None


def test_a_row_broken_by_hand_keeps_no_other_waiting(store, schedule):
    schedule("broken", cron="30 2 * * *", ago=MINUTE)
    Schedule.objects.update(cron="61 2 * * *", due_at=store.now())
    schedule(ago=MINUTE)
    store.schedules.plan()
    assert outcomes() == [(Outcome.ENQUEUED, 1)]
    broken = Schedule.objects.get(identifier="broken")
    assert broken.trouble
    assert broken.due_at > store.now()


@pytest.mark.parametrize(
    "broken",
    [{"takes_slot": True, "data": "{"}, {"takes_slot": True, "data": "[1]"}],
    ids=["no JSON", "no object"],
)
def test_what_fails_in_another_way_keeps_no_other_waiting(store, schedule, broken):
    """G16."""
    schedule("broken", ago=MINUTE)
    Schedule.objects.update(**broken)
    schedule(ago=MINUTE)
    assert store.schedules.plan().enqueued == 1
    assert outcomes() == [(Outcome.ENQUEUED, 1)]
    row = Schedule.objects.get(identifier="broken")
    assert row.trouble
    assert row.due_at > store.now()
    assert outcomes("broken") == []


def test_jitter_delays_a_slot(store, schedule):
    schedule(jitter=30 * DAY)
    row = Schedule.objects.get()
    assert row.next_at < row.due_at <= row.next_at + 30 * DAY
    Schedule.objects.update(next_at=row.next_at - MINUTE, due_at=row.next_at - MINUTE)
    assert store.schedules.plan().decided == 0


def test_a_slot_whose_jitter_is_long_is_not_left_out(store, schedule):
    """G16: although the next one would be due before it."""
    schedule(every=10 * SECOND, jitter=HOUR, ago=2 * HOUR, late_after=DAY)
    first = Schedule.objects.get().next_at
    store.schedules.plan()
    found = [slot.at for slot in Slot.objects.order_by("at")]
    assert found == [first + number * 10 * SECOND for number in range(len(found))]
    row = Schedule.objects.get()
    assert row.next_at == found[-1] + 10 * SECOND
    assert row.next_at < store.now()


def test_a_next_slot_that_is_none_is_passed_over(store, schedule):
    """As when the rules of a time zone were changed: it is not due for ever."""
    row = schedule(every=HOUR)
    odd = store.now() - SECOND
    Schedule.objects.update(next_at=odd, due_at=odd)
    store.schedules.plan()
    found = Schedule.objects.get()
    assert (found.next_at, found.due_at) == (row.next_at, row.next_at)
    assert outcomes() == []


def test_a_slot_that_waits_for_the_jitter_of_another_is_not_late(store, schedule):
    """G16: and none is left out, or decided twice."""
    schedule(every=10 * SECOND, jitter=HOUR, ago=2 * HOUR, missed="skip")
    first = Schedule.objects.get().next_at
    store.schedules.plan()
    found = list(Slot.objects.order_by("at"))
    next_at = first
    for slot in found:
        assert slot.at == next_at
        next_at = (slot.until or slot.at) + 10 * SECOND
    assert Schedule.objects.get().next_at == next_at
    assert [slot.outcome for slot in found].count(Outcome.MISSED) <= 1


def test_missed_before_and_after_a_pause_are_two_rows(store, schedule):
    row = schedule(ago=HOUR, missed="skip")
    since, until = row.next_at + 10 * MINUTE, row.next_at + 20 * MINUTE
    Schedule.objects.update(paused_since=since, paused_until=until)
    store.schedules.plan()
    found = [slot.outcome for slot in Slot.objects.order_by("at")][:3]
    assert found == [Outcome.MISSED, Outcome.PAUSED, Outcome.MISSED]
    first, paused, _ = outcomes()[:3]
    assert (first[1], paused[1]) == (10, 10)


def test_run_now_is_of_no_slot(store, schedule):
    row = schedule()
    instance = store.schedules.run(NAME, who="ann via shell")
    assert (instance.identifier, instance.created_by) == (None, "ann via shell")
    assert outcomes() == []
    assert Schedule.objects.get().next_at == row.next_at


def test_a_backfill_runs_what_was_not_run(store, schedule):
    schedule(every=HOUR, ago=5 * HOUR, missed="one")
    store.schedules.plan()
    now = store.now()
    timing = ScheduleSpec(
        identifier=NAME, type=ONE, inputs=Payload("json", "{}"), every=HOUR
    ).timing
    slots, at = [], timing.after(now - 10 * HOUR)
    while at <= now:
        slots.append(at)
        at = timing.after(at)
    planned = store.schedules.backfill(NAME, slots, who="ann")
    assert planned.enqueued == len(slots) - 1
    assert Instance.objects.count() == len(slots)
    assert store.schedules.backfill(NAME, slots, who="ann").enqueued == 0


def test_a_row_says_how_many_slots_are_left_after_a_backfill(store, schedule):
    row = schedule(every=HOUR, ago=DAY, missed="skip")
    store.schedules.plan()
    store.schedules.backfill(NAME, [row.next_at + number * HOUR for number in range(11)])
    [slot] = Slot.objects.filter(outcome=Outcome.MISSED)
    assert slot.at == row.next_at + 11 * HOUR
    late = (slot.decided - slot.at).total_seconds()
    assert slot.message == f"{slot.count} slots not planned in time, the first {late:.0f} s late"


def test_what_is_backfilled_before_it_was_decided(store, schedule):
    row = schedule(every=HOUR, ago=5 * HOUR, missed="skip")
    store.schedules.backfill(NAME, [row.next_at], who="ann")
    store.schedules.plan()
    assert outcomes() == [(Outcome.ENQUEUED, 1), (Outcome.MISSED, 4)]


def test_a_backfill_counts_what_it_enqueues(store, schedule):
    row = schedule(ago=MINUTE)
    store.schedules.plan()
    Slot.objects.all().delete()
    planned = store.schedules.backfill(NAME, [row.next_at], who="ann")
    assert (planned.enqueued, planned.instances) == (0, ())


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ((0, 1), (2, 8)),
        ((8, 9), (0, 8)),
        ((3, 5), (0, 8)),
        ((0, 9), (1, 8)),
        (tuple(range(9)), (9, 1)),
        (tuple(range(1, 10)), (0, 1)),
    ],
)
def test_what_a_row_of_many_slots_stands_for_after_a_backfill(store, schedule, taken, left):
    row = schedule(every=HOUR, ago=10 * HOUR, missed="skip")
    slots = [row.next_at + number * HOUR for number in range(10)]
    store.schedules.plan()
    store.schedules.backfill(NAME, [slots[number] for number in taken])
    missed = Slot.objects.get(outcome=Outcome.MISSED)
    assert (missed.at, missed.count) == (slots[left[0]], left[1])
    assert sum(count for _, count in outcomes()) == 10


def test_a_backfill_leaves_rows_of_other_times_alone(store, schedule):
    schedule(every=HOUR, ago=5 * HOUR, missed="skip")
    store.schedules.plan()
    row = schedule(cron="30 * * * *")
    store.schedules.backfill(NAME, [row.next_at - number * HOUR for number in (3, 2, 1)])
    assert (Outcome.MISSED, 5) in outcomes()


def test_no_more_slots_are_kept_than_needed(store, schedule):
    row = schedule()
    now = store.now()
    Slot.objects.bulk_create(
        Slot(schedule=row, at=now - number * MINUTE, outcome=Outcome.MISSED, decided=now)
        for number in range(7)
    )
    assert store.schedules.trim(keep=5) == 2
    assert Slot.objects.order_by("at").first().at == (now - 4 * MINUTE).astimezone(UTC)


def test_where_no_slot_is_too_many_one_statement_tells(store, schedule, django_assert_num_queries):
    for number in range(3):
        schedule(f"each-{number}", ago=MINUTE)
    store.schedules.plan()
    with django_assert_num_queries(1):
        assert store.schedules.trim(keep=5) == 0


def test_a_type_with_a_schedule_is_in_use(store, schedule):
    schedule(type=TWO)
    with pytest.raises(TypeInUse, match="nightly enqueues it"):
        store.unregister(TWO)


def test_an_outlook_tells_when_the_next_slot_is_due(store, schedule):
    assert store.outlook([ONE]).planned is None
    schedule(every=HOUR)
    assert 0 < store.outlook([ONE]).planned <= 3600
    schedule("late", ago=MINUTE)
    assert store.outlook([ONE]).planned <= 0


@pytest.mark.skipif(connection.vendor == "sqlite", reason="there are no locks of rows")
@pytest.mark.django_db(transaction=True)
def test_the_many_schedules_of_a_locked_type_keep_no_other_waiting(store, schedule):
    """G9, G16: also where more of them are due than a look takes, and for longer."""
    for number in range(3):
        schedule(f"locked {number}", ago=HOUR)
    schedule("free", type=TWO, ago=MINUTE)
    other = connection.copy()
    other.set_autocommit(False)
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT FROM atp_type WHERE identifier = %s FOR UPDATE", [ONE])
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '200ms'")  # as the sessions of a daemon
        planned = store.schedules.plan(limit=2)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")
        other.rollback()
        other.close()
    assert (planned.decided, outcomes("free")) == (1, [(Outcome.ENQUEUED, 1)])
    store.schedules.plan()
    assert outcomes("locked 2")
