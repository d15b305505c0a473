"""Planning: each slot of a schedule is decided once, and its outcome is kept (G16)."""

import random
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from atp import messages
from atp.exceptions import ScheduleChanged
from atp.models import HOOKED, Instance, LogRecord, Schedule, Slot, Task
from atp.schedules.models import Outcome
from atp.store.facts import Scope

from ..helpers import open_transaction
from ..nonsense import tells
from .broken import execute
from .schedules import NAME, prepare, spec
from .world import DAY, HOUR, ONE, SECOND, TWO, needs_row_locks

MINUTE = timedelta(minutes=1)
E, S, M, P = Outcome.ENQUEUED, Outcome.SKIPPED, Outcome.MISSED, Outcome.PAUSED


@pytest.fixture
def store(world):
    prepare(world)
    return world.store


@pytest.fixture
def schedule(store):
    """Make schedules: ``schedule(every=HOUR)``; with ``ago`` its next slot is so long ago."""

    def make(identifier=NAME, *, ago=None, type=ONE, **given):
        if "cron" not in given:
            given.setdefault("every", MINUTE)
        asked = spec(identifier, type=type, **given)
        row = store.schedules.set(asked, who="tests")
        if ago is not None:
            set_due(row, asked.timing.after(store.now() - ago))
        return Schedule.objects.get(pk=row.pk)

    return make


def outcomes(identifier=NAME):
    found = Slot.objects.filter(schedule__identifier=identifier).order_by("at")
    return [(slot.outcome, slot.count) for slot in found]


def told(outcome):
    """Return the rows of an outcome: first slot, last slot, number."""
    rows = Slot.objects.filter(outcome=outcome).order_by("at")
    return [(row.at, row.until or row.at, row.count) for row in rows]


def set_due(row, at):
    """Let a slot of the schedule be the next one."""
    Schedule.objects.filter(pk=row.pk).update(next_at=at, due_at=at)


def test_a_slot_is_enqueued_once_it_is_due(store, schedule):
    row = schedule()
    assert store.schedules.plan().decided == 0
    past = row.next_at - MINUTE
    set_due(row, past)
    planned = store.schedules.plan(who="host")
    assert (planned.decided, planned.enqueued, planned.is_whole) == (1, 1, True)
    [slot], [instance] = Slot.objects.all(), Instance.objects.all()
    assert (slot.at, slot.outcome, slot.who) == (past, E, "host")
    assert instance.identifier == f"nightly@{past:%Y-%m-%dT%H:%M:%SZ}"
    assert instance.created_by == "schedule nightly"
    row.refresh_from_db()
    assert (row.next_at, row.last_id, slot.instance_id) == (past + MINUTE, *[instance.pk] * 2)
    assert store.schedules.plan().decided == 0


def test_a_slot_is_decided_once_whatever_was_rolled_back_or_lost(store, schedule):
    """G16: killed before the commit, nothing was planned; its Instance is the one of its slot."""
    row = schedule(ago=MINUTE)
    with transaction.atomic():
        store.schedules.plan()
        transaction.set_rollback(True)
    assert outcomes() == []
    for _ in range(2):
        store.schedules.plan()
        assert Instance.objects.count() == 1
        assert outcomes() == [(E, 1)]
        Slot.objects.all().delete()
        set_due(row, row.next_at)


@pytest.mark.parametrize(
    ("missed", "more", "enqueued"),
    [
        *(("skip", {}, 0), ("one", {}, 1), ("all", {"most": 7}, 7)),
        *(("one", {"start_before": MINUTE}, 0), ("all", {"start_before": 3 * HOUR}, 3)),
    ],
)
def test_three_days_without_a_daemon(store, schedule, missed, more, enqueued):
    """G16: skip, one or all that can start in time; and one row for what was missed."""
    schedule(every=HOUR, ago=3 * DAY, missed=missed, late_after=MINUTE, **more)
    store.schedules.plan()
    assert Instance.objects.count() == enqueued
    assert sum(count for _, count in outcomes()) in (72, 73)
    [(first, last, count)] = told(M)
    assert (outcomes()[0], last) == ((M, count), first + (count - 1) * HOUR)


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


IN_TIME = {
    ("skip", "allow"): [(M, 2), (E, 1)],
    ("skip", "cancel"): [(M, 2), (E, 1)],
    ("one", "skip"): [(M, 1), (S, 1), (E, 1)],
    ("one", "queue"): [(M, 1), (E, 1), (E, 1)],
    ("one", "cancel"): [(M, 1), (S, 1), (E, 1)],
    ("all", "allow"): [(E, 1), (E, 1), (E, 1)],
    ("all", "skip"): [(S, 1), (S, 1), (E, 1)],
    ("all", "queue"): [(E, 1), (E, 1), (E, 1)],
}


def test_a_slot_in_time_runs_whatever_late_ones_are_due_with_it(world, store, schedule):
    """G16: two slots are late, and the third is in time."""
    for (missed, overlap), expected in IN_TIME.items():
        with world.case((missed, overlap)):
            row = schedule(every=HOUR, missed=missed, overlap=overlap)
            store.schedules.plan(now=row.next_at + 2 * HOUR + SECOND)
            assert outcomes() == expected
            for slot in Slot.objects.filter(outcome=S):
                assert tells(slot.message, messages.slot_passed_over(overlap))


def test_the_slot_in_time_gets_the_last_place_in_the_line_or_room_of_its_type(world, schedule):
    for overlap, more in (("queue", {"most": 1}), ("allow", {})):
        with world.case(overlap):
            row = schedule(every=HOUR, missed="one", overlap=overlap, **more)
            if overlap == "queue":
                world.store.schedules.run(NAME)
            else:
                world.store.control.limit(Scope(type=row.type), max_waiting=1)
            world.store.schedules.plan(now=row.next_at + HOUR + SECOND)
            assert outcomes() == [(S, 1), (E, 1)]


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_gap_of_very_many_slots_is_one_row(store, schedule, is_paused):
    row = schedule(every=SECOND * 10, ago=365 * DAY, missed="one")
    if is_paused:
        Schedule.objects.update(paused_since=row.next_at - HOUR, paused_by="ann")
        store.schedules.resume(NAME)
    else:
        store.schedules.plan()
    first, *others = [outcome for outcome, _ in outcomes()]
    assert (first, set(others)) == ((P, set()) if is_paused else (M, {E}))
    found = Slot.objects.order_by("at").first()
    assert found.is_more
    assert found.at == row.next_at or not is_paused


def test_one_is_skipped_while_the_last_one_has_not_ended(store, schedule):
    row = schedule(every=HOUR, ago=HOUR, late_after=DAY, overlap="skip")
    store.schedules.plan()
    set_due(row, row.next_at - HOUR)
    store.schedules.plan()
    assert Slot.objects.get(outcome=S).instance_id == Instance.objects.get().pk


@pytest.mark.parametrize("is_paused_anew", [False, True])
def test_a_pause_ends_by_itself(store, schedule, is_paused_anew):
    """Each slot has the outcome that it would have had, had a daemon been there."""
    row = schedule(every=10 * MINUTE, ago=2 * HOUR + MINUTE, missed="one")
    first = row.next_at
    Schedule.objects.update(
        paused_since=first - MINUTE, paused_until=first + 25 * MINUTE, paused_by="ann"
    )
    if is_paused_anew:
        row = store.schedules.pause(NAME, who="bob")
        assert row.paused_since > first + 25 * MINUTE
    else:
        store.schedules.plan()
        assert Schedule.objects.get().paused_since is None
    assert [count for _, _, count in told(P)] == [3]
    assert "ann" in Slot.objects.get(outcome=P).message
    assert len(told(E)) == 1


def test_slots_of_one_pause_are_one_row_and_those_of_the_next_pause_another(store, schedule):
    """Each row says who has paused the schedule, and why."""
    row = schedule(every=HOUR)
    for who, slots in (("ann", 3), ("bob", 1)):
        store.schedules.pause(NAME, who=who, reason="storage moves")
        for _ in range(slots):
            store.schedules.plan(now=Schedule.objects.get().next_at)
    told = Slot.objects.order_by("at").values_list("at", "count", "message")
    assert [*told] == [
        (row.next_at, 3, "paused by ann: storage moves"),
        (row.next_at + 3 * HOUR, 1, "paused by bob: storage moves"),
    ]


@pytest.mark.parametrize("is_edited", [False, True])
def test_resumed_or_edited_it_goes_on_after_now(store, schedule, is_edited):
    """G16: never at once; the outcomes of the slots before are kept."""
    schedule(ago=HOUR)
    if is_edited:
        row = schedule(every=7 * MINUTE)
        assert row.next_at.timestamp() % 420 == 0
    else:
        store.schedules.pause(NAME, who="ann")
        Schedule.objects.update(paused_since=store.now() - 10 * MINUTE)
        row = store.schedules.resume(NAME, who="ann")
    assert row.next_at > store.now()
    assert store.schedules.plan().decided == 0
    expected = [M] if is_edited else [M, P]
    assert [outcome for outcome, _ in outcomes()] == expected
    assert sum(count for _, count in outcomes()) == 60


def test_a_slot_that_came_a_moment_before_an_edit_is_not_missed(store, schedule):
    """A daemon would have planned it."""
    schedule(every=10 * SECOND, ago=12 * SECOND)
    row = schedule(every=70 * SECOND)
    assert {outcome for outcome, _ in outcomes()} == {E}
    assert row.next_at > store.now()


@pytest.mark.parametrize("expected", [0, None])
def test_two_that_make_it_at_once(store, schedule, monkeypatch, expected):
    """On PostgreSQL there is no row yet that the second could wait for."""
    asked = spec(every=HOUR)
    set_, others = store.schedules._set, ["other"]

    def late(*args):
        if others:
            set_(asked, others.pop(), None)
            raise IntegrityError
        return set_(*args)

    monkeypatch.setattr(store.schedules, "_set", late)
    if expected is None:
        assert store.schedules.set(asked).revision == 2
    else:
        with pytest.raises(ScheduleChanged):
            store.schedules.set(asked, expected=expected)


def test_what_an_operator_has_set_outlives_a_deploy(store, schedule, django_assert_num_queries):
    """And a declaration that is the same writes nothing."""
    declared = spec(every=MINUTE)
    store.schedules.declare([declared])
    count = LogRecord.objects.count()
    with django_assert_num_queries(1):
        store.schedules.declare([declared])
    assert LogRecord.objects.count() == count
    schedule(every=HOUR)
    store.schedules.declare([declared])
    assert Schedule.objects.get().every == HOUR
    store.schedules.leave(NAME, who="ann")
    store.schedules.declare([declared])
    row = Schedule.objects.get()
    assert (row.every, row.is_set) == (MINUTE, False)


def test_what_no_code_declares_is_retired(store, schedule):
    """Its slots that nobody has planned before are missed."""
    declared = spec(every=MINUTE)
    store.schedules.declare([declared])
    row = Schedule.objects.get()
    set_due(row, row.next_at - 3 * MINUTE)
    schedule("by an operator")
    assert store.schedules.retire({"another"}) == [NAME]
    row = Schedule.objects.get(identifier=NAME)
    assert (row.next_at, row.due_at) == (None, None)
    assert outcomes() == [(M, 3)]
    store.schedules.declare([declared])
    assert Schedule.objects.get(identifier=NAME).next_at is not None


@pytest.mark.parametrize("broken", [{"takes_slot": True, "data": "{"}, {"every": None}])
def test_a_row_broken_by_hand_keeps_no_other_waiting(store, schedule, broken):
    """G16."""
    schedule("broken", ago=MINUTE)
    Schedule.objects.update(**broken)
    schedule(ago=MINUTE)
    assert store.schedules.plan().enqueued == 1
    assert outcomes() == [(E, 1)]
    row = Schedule.objects.get(identifier="broken")
    assert row.trouble
    assert row.due_at > store.now()
    assert outcomes("broken") == []


def test_jitter_delays_a_slot_and_leaves_none_out(store, schedule):
    """G16: although the next one would be due before it."""
    row = schedule(jitter=30 * DAY)
    assert row.next_at < row.due_at <= row.next_at + 30 * DAY
    Schedule.objects.update(next_at=row.next_at - MINUTE, due_at=row.next_at - MINUTE)
    assert store.schedules.plan().decided == 0
    row.delete()
    first = schedule(every=10 * SECOND, jitter=HOUR, ago=2 * HOUR, late_after=DAY).next_at
    store.schedules.plan()
    found = [slot.at for slot in Slot.objects.order_by("at")]
    assert found == [first + number * 10 * SECOND for number in range(len(found))]
    row = Schedule.objects.get()
    assert row.next_at == found[-1] + 10 * SECOND
    assert row.next_at < store.now()


def test_run_now_and_a_backfill_of_what_is_to_be_decided(store, schedule):
    row = schedule(every=HOUR, ago=5 * HOUR, missed="skip")
    instance = store.schedules.run(NAME, who="ann via shell")
    assert (instance.identifier, instance.created_by) == (None, "ann via shell")
    assert (outcomes(), Schedule.objects.get().next_at) == ([], row.next_at)
    store.schedules.backfill(NAME, [row.next_at], who="ann")
    store.schedules.plan()
    assert outcomes() == [(E, 1), (M, 4)]


@needs_row_locks
@pytest.mark.django_db(transaction=True)
def test_the_many_schedules_of_a_locked_type_keep_no_other_waiting(store, schedule):
    """G9, G16: also where more of them are due than a look takes, and for longer."""
    for number in range(3):
        schedule(f"locked {number}", ago=HOUR)
    schedule("free", type=TWO, ago=MINUTE)
    lock = "SELECT FROM atp_type WHERE identifier = %s FOR UPDATE"
    with open_transaction(lambda: execute(lock, ONE)):
        store.limit_waiting(0.2)
        planned = store.schedules.plan(limit=2)
        store.limit_waiting(0)
    assert (planned.decided, outcomes("free")) == (1, [(E, 1)])
    store.schedules.plan()
    assert outcomes("locked 2")


# No slot loses its outcome, and none runs for the wrong reason (G16)


@pytest.mark.parametrize("seed", range(2))
def test_backfills_in_any_order(store, schedule, seed):
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
        assert told(M) == ([(left[0], left[-1], len(left))] if left else [])


def test_a_backfill_of_a_slot_at_which_an_older_row_begins(store, schedule):
    """That row stands for slots of other times, from before a change."""
    now = store.now()
    row = schedule(every=HOUR)
    wanted = row.next_at - 3 * HOUR
    until = wanted + 100 * MINUTE
    Slot.objects.create(schedule=row, at=wanted, until=until, count=11, outcome=M, decided=now)
    store.schedules.backfill(NAME, [wanted])
    assert told(E) == [(wanted, wanted, 1)]
    assert told(M) == [(until, until, 10)]


def test_missed_slots_begin_behind_one_that_was_backfilled_while_it_waited(
    store, schedule, monkeypatch
):
    """It waited for its jitter, so planning begins with it when daemons are back."""
    delay = 50 * MINUTE
    monkeypatch.setattr("atp.store.common.slots.jitter", lambda *args: delay)
    given = {"jitter": HOUR, "missed": "skip", "late_after": MINUTE}
    came = schedule(every=10 * MINUTE, **given).next_at - 10 * MINUTE
    Schedule.objects.update(next_at=came, due_at=came + delay)
    store.schedules.backfill(NAME, [came])
    store.schedules.plan(now=came + delay + 245 * MINUTE)
    assert told(E) == [(came, came, 1)]
    assert told(M) == [(came + 10 * MINUTE, came + 240 * MINUTE, 24)]


def test_a_slot_whose_planning_fails_once_is_not_late_by_that(store, schedule, monkeypatch):
    row = schedule(cron="0 * * * *", missed="skip")
    with monkeypatch.context() as patch:
        patch.setattr(store.schedules._runs, "enqueue", lambda *args, **given: 1 / 0)
        store.schedules.plan(now=row.next_at + SECOND)
    found = Schedule.objects.get()
    assert "ZeroDivisionError" in found.trouble
    store.schedules.plan(now=found.due_at + SECOND)
    assert outcomes() == [(E, 1)]


def test_a_slot_that_waits_for_its_jitter_outlasts_a_pause_of_others(store, schedule, monkeypatch):
    """Another slot came in a pause, which is over."""
    delay = 50 * MINUTE
    monkeypatch.setattr("atp.store.common.slots.jitter", lambda *args: delay)
    came = schedule(every=10 * MINUTE, jitter=HOUR, missed="skip").next_at - 20 * MINUTE
    Schedule.objects.update(next_at=came, due_at=came + delay)
    store.schedules.pause(NAME)
    Schedule.objects.update(paused_since=came + 5 * MINUTE)
    store.schedules.resume(NAME)
    row = Schedule.objects.get()
    assert (row.next_at, row.is_paused(store.now())) == (came, False)
    for minutes, outcome in ((0, E), (11, P), (21, E)):
        store.schedules.plan(now=came + minutes * MINUTE + delay)
        assert outcomes()[-1] == (outcome, 1)
    assert outcomes() == [(E, 1), (P, 1), (E, 1)]
    assert Schedule.objects.get().paused_since is None


def test_old_slots_are_removed_in_portions(store, schedule):
    """The newest are kept."""
    row = schedule(every=HOUR)
    ended = [row.next_at - n * HOUR for n in range(10)]
    Slot.objects.bulk_create(Slot(schedule=row, at=at, decided=at, outcome=E) for at in ended)
    assert [store.schedules.trim(keep=3, limit=5) for _ in range(3)] == [5, 2, 0]
    assert Slot.objects.order_by("at").first().at == row.next_at - 2 * HOUR


# The rules of a zone change (G16): another zone stands in for new rules


# The offsets of these zones are +1, +2 and +3 hours.
PLUS_1, PLUS_2, PLUS_3 = "Etc/GMT-1", "Etc/GMT-2", "Etc/GMT-3"


@pytest.fixture
def nightly(store, schedule):
    """Make a schedule of one slot a day, which comes in three hours by the rules of PLUS_2."""

    def make(**given):
        local = store.now() + 5 * HOUR
        return schedule(cron=f"{local.minute} {local.hour} * * *", timezone=PLUS_2, **given)

    return make


def change_rules(zone):
    Schedule.objects.update(timezone=zone)


@pytest.mark.parametrize(
    ("zone", "moved", "late", "outcome"),
    [
        pytest.param(PLUS_3, -HOUR, SECOND, E, id="earlier"),
        pytest.param(PLUS_3, -HOUR, HOUR / 2, M, id="earlier, and that has passed"),
        pytest.param(PLUS_1, HOUR, SECOND, E, id="later"),
    ],
)
def test_a_slot_comes_at_its_new_time(store, nightly, zone, moved, late, outcome):
    row = nightly(missed="skip")
    change_rules(zone)
    if zone == PLUS_1:  # planning finds it, too
        store.schedules.plan(now=row.next_at)
        assert outcomes() == []
    else:
        assert store.schedules.follow_rules() == [NAME]
        assert LogRecord.objects.filter(detail="rules", subject=f"schedule:{NAME}").count() == 1
    assert store.schedules.follow_rules() == []
    found, new = Schedule.objects.get(), row.next_at + moved
    assert found.next_at == found.due_at == new
    store.schedules.plan(now=new + late)
    assert [slot.at for slot in Slot.objects.all()] == [new]
    assert outcomes() == [(outcome, 1)]
    assert Schedule.objects.get().next_at == new + DAY


@pytest.mark.parametrize(("zone", "moved"), [(PLUS_1, HOUR), (PLUS_3, -HOUR)])
def test_a_time_of_the_clock_that_was_planned_is_not_planned_again(store, nightly, zone, moved):
    """The new rules put the time that has run an hour later: it is not another slot."""
    row = nightly()
    store.schedules.plan(now=row.next_at + SECOND)
    change_rules(zone)
    assert store.schedules.follow_rules() == [NAME]
    assert Schedule.objects.get().next_at == row.next_at + DAY + moved
    store.schedules.plan(now=row.next_at + 2 * HOUR)
    assert outcomes() == [(E, 1)]


def test_what_an_older_release_has_planned_is_not_planned_again(store, schedule):
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


def test_a_slot_in_a_zone_that_the_host_lacks_is_recorded_when_the_zone_changes(store, schedule):
    """Its name is no more, as Europe/Kiev may be: the next slot is all that is known."""
    row = schedule(cron="0 * * * *", ago=HOUR)
    change_rules("Europe/Atlantis")
    store.schedules.plan()
    assert Schedule.objects.get().trouble
    schedule(cron="0 * * * *", timezone="Europe/Kyiv")
    assert told(M) == [(row.next_at, row.next_at, 1)]
    assert Schedule.objects.get().next_at > store.now()
