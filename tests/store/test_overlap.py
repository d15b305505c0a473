"""Schedules whose Instances wait for each other: overlap "queue" and "cancel" (G16, G17)."""

import pytest

from atp import messages
from atp.exceptions import IllegalSchedule
from atp.models import Edge, Instance, Node, Schedule, Slot, Task
from atp.schedules.models import Outcome
from atp.states import Event, Reason, State

from ..helpers import at_once, open_transaction
from ..nonsense import is_made_by, tells
from . import hooks
from .schedules import NAME, prepare, spec
from .world import DAY, HOUR, ONE, finish_of, needs_row_locks, registration


class Line:
    """A schedule under test, and those of its Instances that are live."""

    def __init__(self, world):
        self.world, self.store = world, world.store
        self.host = world.host()

    def create(self, overlap="queue", **given):
        given |= {"every": HOUR, "late_after": DAY, "window": 30 * DAY}
        return self.store.schedules.set(spec(overlap=overlap, **given), who="tests")

    def plan(self, slots=1):
        """Let so many more slots be due, and plan them; returns the keys of what was enqueued."""
        row = Schedule.objects.get()
        first = Slot.objects.order_by("at").first()
        # Earlier than all that were decided: those behind them are known.
        start = (first.at if first else row.next_at) - slots * HOUR
        before = set(Instance.objects.values_list("pk", flat=True))
        slots_of = [start + number * HOUR for number in range(slots)]
        Schedule.objects.update(next_at=start, due_at=start, late_after=3650 * DAY)
        self.planned = self.store.schedules.plan(who="host")
        found = Slot.objects.filter(at__in=slots_of, outcome=Outcome.ENQUEUED).order_by("at")
        made = [slot.instance_id for slot in found if slot.instance_id not in before]
        assert made == [] or Schedule.objects.get().last_id != row.last_id
        return made

    def claim(self):
        self.last = self.host.claim()
        return [case.instance for case in self.last]

    def end(self, event=Event.FINISH, **details):
        """End what was claimed last."""
        for case in self.last:
            self.host.move(case, Event.START, event, **details)


@pytest.fixture
def line(world):
    prepare(world)
    return Line(world)


def test_slots_that_are_due_together_run_in_their_order(line):
    """G17: each after the one before, also once the schedule was deleted.

    G12: no graph is left, and each Instance is removed when its retention is over.
    """
    line.create()
    keys = line.plan(4)
    assert keys == sorted(keys)
    ran = []
    while line.claim():
        assert len(line.last) == 1
        ran.append(line.last[0].instance)
        if ran == keys[:1]:
            line.store.schedules.delete(NAME)
        line.end()
    assert ran == keys
    assert (Node.objects.count(), Edge.objects.count()) == (0, 0)
    assert line.store.removal.purge(instances=keys) == 4


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_one_waits_for_what_runs_behind_a_cancelled_one_or_since_before_the_policy(
    line, is_cancelled
):
    """G17: what was enqueued beside others, before the policy, may be claimed already."""
    line.create("queue" if is_cancelled else "allow")
    first, *others = line.plan(1 + is_cancelled)
    assert line.claim() == [first]
    line.store.control.cancel(others)
    line.create("queue")
    [last] = line.plan()
    assert line.world.task(last).waits == 1
    line.end()
    assert line.claim() == [last]


def test_no_more_wait_than_most(line):
    """The others are SKIPPED, and the message says why."""
    line.create(most=2)
    assert len(line.plan(5)) == 3
    skipped = Slot.objects.filter(outcome=Outcome.SKIPPED)
    told = messages.slot_full(2)
    assert [tells(slot.message, told) for slot in skipped] == [True, True]
    assert line.plan() == []


def test_cancel_ends_what_waits_and_asks_who_holds_the_other(line):
    line.create("queue")
    first, second, third = line.plan(3)
    assert line.claim() == [first]
    line.create("cancel")
    [last] = line.plan()
    states = [line.world.get(key) for key in (second, third)]
    assert {(row.state, row.reason) for row in states} == {(State.FAILED, Reason.CANCELLED)}
    assert line.world.task(first).request == "cancel"
    assert line.world.task(last).waits == 1
    assert {record.who for record in line.world.log(second)[-1:]} == {f"schedule {NAME}"}
    line.end(Event.FAIL, reason=Reason.CANCELLED)
    assert line.claim() == [last]


def test_a_lost_record_of_a_slot_cancels_nothing(line):
    """G16: its Instance is there, and is the one of its slot."""
    line.create("cancel")
    [key] = line.plan()
    at = Slot.objects.get().at
    Slot.objects.all().delete()
    Schedule.objects.update(next_at=at, due_at=at)
    line.store.schedules.plan()
    assert Instance.objects.get().pk == key
    assert line.world.state(key) == State.ACCEPTED
    assert Slot.objects.get(at=at).instance_id == key


@pytest.mark.parametrize("overlap", ["queue", "cancel"])
def test_run_now_stands_in_the_line(line, overlap):
    line.create(overlap)
    [first] = line.plan()
    assert line.claim() == [first]
    key = line.store.schedules.run(NAME, who="ann").pk
    assert line.world.task(key).waits == 1
    assert (line.world.task(first).request == "cancel") == (overlap == "cancel")
    [second] = line.plan()
    assert (line.world.state(key) == State.FAILED) == (overlap == "cancel")
    assert line.world.task(second).waits == (1 if overlap == "cancel" else 2)


@pytest.mark.slow
def test_a_backfill_that_does_not_fit_into_the_line_is_refused(line):
    """G13: before anything is written."""
    row = line.create()
    slots = [row.next_at - number * HOUR for number in range(103, 1, -1)]
    with pytest.raises(IllegalSchedule, match="101 Instances would wait"):
        line.store.schedules.backfill(NAME, slots, who="ann")
    assert Instance.objects.count() == 0
    assert line.store.schedules.backfill(NAME, slots[1:], who="ann").enqueued == 101
    assert sorted(Task.objects.values_list("waits", flat=True)) == list(range(101))
    told = Slot.objects.order_by("at").last().message
    assert is_made_by(told, messages.slot_backfilled, "backfilled, waits behind 100")
    with pytest.raises(IllegalSchedule, match="101 Instances would wait"):
        line.store.schedules.run(NAME, who="ann")


@needs_row_locks
@pytest.mark.django_db(transaction=True)
def test_a_line_that_somebody_has_locked_is_planned_later(line):
    """G11, G16: nobody waits for him, and no slot is lost."""
    line.create("cancel")
    [first] = line.plan()

    with open_transaction(lambda: line.store.control.cancel([first])):
        assert line.plan() == []
        assert (line.planned.decided, line.planned.is_whole) == (0, True)
    assert line.store.schedules.plan().enqueued == 1
    assert Task.objects.get().waits == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("overlap", ["queue", "cancel"])
def test_a_slot_is_planned_while_the_last_one_ends(line, overlap):
    """G17: on two connections; whoever comes first, the next one is free when both are done."""
    line.create(overlap)
    [first] = line.plan()
    for _ in range(4):
        line.claim()
        [case] = line.last
        finish = finish_of(line.world, case)
        kept = {}

        def plan(kept=kept):
            kept["made"] = line.plan()

        at_once(lambda: line.host.record(finish), plan)  # noqa: B023
        made = kept["made"]
        while not made:  # somebody had locked the line
            line.store.schedules.plan(who="host")
            made = list(Task.objects.exclude(pk=case.instance).values_list("pk", flat=True))
        assert line.world.state(first) == State.FINISHED
        assert line.world.task(made[0]).waits == 0
        first = made[0]


@pytest.mark.django_db(transaction=True)
def test_two_daemons_plan_at_once(line):
    """G16: and each Instance is in the line once."""
    line.create()
    row = Schedule.objects.get()
    start = row.next_at - 5 * HOUR
    Schedule.objects.update(next_at=start, due_at=start)
    at_once(*[lambda: line.store.schedules.plan()] * 2)
    line.store.schedules.plan()
    assert sorted(Task.objects.values_list("waits", flat=True)) == [0, 1, 2, 3, 4]


@needs_row_locks
def test_an_end_that_had_looked_before_is_settled_as_a_node(line, monkeypatch):
    """G17: it has hooks, and is taken into a line between the look at what ends and the end."""
    line.store.types.register([registration(ONE, hooks=hooks.BOTH), *hooks.HOOK_TYPES])
    line.create(overlap="allow")
    [first] = line.plan()
    line.claim()
    line.create()
    graphs = line.world.store.graph_ends
    look, made = graphs.lock_ends, []

    def plan_after(*args, **given):
        found = look(*args, **given)
        if not made:
            made.extend(line.plan())
        return found

    monkeypatch.setattr(graphs, "lock_ends", plan_after)
    line.end()
    [second] = made
    assert [type for type, _ in hooks.hooks_of(first)] == [hooks.INDEX]
    assert line.claim() == [second]
    hooks.check()
