"""The judges of pauses, hooks (G6), schedules (G16, G17), steps and graphs (G17) find faults."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Group

from atp import queue
from atp.graphs.models import Condition
from atp.models import Instance, Kind, LogRecord, Schedule, Slot
from atp.schedules.models import Outcome
from atp.states import Event, Reason, State

from ..app.tasks_chaos import slot, steps
from ..app.tasks_hooks import hooked
from . import graphs, hooks, slots
from .record import Line, executions
from .slots import SECOND
from .steps import broken_of

NAME = "counted"
FIRST = datetime(2020, 1, 1, tzinfo=UTC)


def line(instance, event, time, attempt=1, place=0, **more):
    facts = {"instance": str(instance), "attempt": attempt, "pid": 1, "place": place}
    return Line(event=event, time=time, **facts, **more)


# Slots (G16), and those that wait for each other (G17)


@pytest.fixture
def planned(world):
    """Four slots of a schedule; the last two fall into a pause."""
    queue.register_all()
    row = queue.create_schedule(NAME, slots.TYPE, every=SECOND)
    Schedule.objects.filter(pk=row.pk).update(next_at=FIRST + 4 * SECOND)
    queue.backfill_schedule(NAME, FIRST, FIRST + SECOND)
    span = {"at": FIRST + 2 * SECOND, "until": FIRST + 3 * SECOND, "count": 2}
    Slot.objects.create(schedule=row, outcome=Outcome.PAUSED, decided=FIRST, **span)


def test_judge_finds_missing_and_duplicate_slots(planned):
    def broken():
        return list(slots.broken_of(NAME, FIRST))

    assert broken() == []
    row, of_schedule = Slot.objects.filter, Schedule.objects.filter(identifier=NAME)
    for rows, spoilt, told in (
        (row(at=FIRST + 2 * SECOND), {"count": 3}, "3 slots are counted"),
        (row(at=FIRST), {"decided": FIRST - SECOND}, "before its time"),
        (of_schedule, {"next_at": FIRST + 5 * SECOND}, "is to be"),
    ):
        [whole] = rows.values(*spoilt)
        rows.update(**spoilt)
        [words] = broken()
        assert told in words
        rows.update(**whole)
    again = slot.using(created_by=f"schedule {NAME}").enqueue(slot=None)
    [words] = broken()
    assert "2 slots were enqueued, and 3 Instances" in words
    queue.delete(again, cancel=True)
    row(at=FIRST + SECOND).delete()
    gap, instances = broken()
    assert "the slot after 2020-01-01 00:00:00" in gap
    assert "1 slots were enqueued, and 2 Instances" in instances


def test_judge_finds_slots_that_were_missed_before_they_were_late(planned):
    """A slot is late 60 seconds after its time."""
    row = Slot.objects.get(at=FIRST + SECOND)
    queue.delete(Instance.objects.get(pk=row.instance_id), cancel=True)
    for seconds, told in ((60, True), (61, False)):
        decided = FIRST + SECOND + timedelta(seconds=seconds)
        Slot.objects.filter(pk=row.pk).update(outcome=Outcome.MISSED, decided=decided)
        words = list(slots.broken_of(NAME, FIRST))
        assert ["was not late" in each for each in words] == [True] * told


@pytest.fixture
def lined(world, tmp_path):
    """A function that backfills three slots of a schedule and returns the Instances in order."""

    def make(name):
        queue.register_all()
        first = slots.create_line(name, tmp_path / "record")
        queue.backfill_schedule(name, first - 4 * SECOND, first - 2 * SECOND)
        return list(Instance.objects.order_by("pk"))

    return make


def test_judge_finds_overlapping_and_misordered_instances(lined):
    a, b, c = lined("chaos-queue-1.4")

    def broken(*spans):
        times = [(row, (("start", since), ("end", until))) for row, since, until in spans]
        lines = [line(row.uuid, event, time) for row, each in times for event, time in each]
        return list(slots.broken_lines("chaos-queue-1.4", executions(lines)))

    assert broken((a, 1, 2), (b, 2, 3), (c, 4, 5)) == []
    for spans, told in (
        (((a, 1, 2), (b, 1.5, 3)), "began 0.500 s before the end"),
        (((a, 4, 5), (b, 2, 3)), "before the end"),
    ):
        [words] = broken(*spans)
        assert told in words


def test_judge_finds_an_instance_that_was_not_cancelled(lined):
    first, second, _ = lined("chaos-cancel-60.0")
    queue.cancel(second)
    [words] = slots.broken_lines("chaos-cancel-60.0", {})
    assert "was to be cancelled, and is ACCEPTED" in words
    queue.cancel(first)
    assert list(slots.broken_lines("chaos-cancel-60.0", {})) == []


# Steps (G17)


def test_judge_finds_a_step_that_ran_twice_or_never_and_a_wrong_row_count(world):
    """The Instance has finished in its second attempt."""
    queue.register_all()
    instance = steps.enqueue(path="nowhere", seconds=0)
    host = world.host("chaos.steps")
    for event in (Event.RELEASE, Event.FINISH):
        [case] = host.claim()
        host.move(case, Event.START, event)

    def broken(*said):
        lines = [line(instance.uuid, each[0], 0, each[1], nonce="".join(each[2:])) for each in said]
        return list(broken_of(executions(lines)))

    def book(attempt):
        Group.objects.create(name=f"{instance.uuid}/{attempt}")

    once = ("charged", 1), ("paid", 2, "1")
    [words] = broken(*once)
    assert "has 0 rows" in words
    book(2)
    assert broken(*once) == []
    for said, told in (
        ((("charged", 1), ("paid", 2, "9")), "was told of the charge of {'9'}"),
        ((*once, ("charged", 1)), "charged twice in [1]"),
        ((("charged", 1), ("charged", 2)), "charged again by {2}"),
        ((), "was not charged"),
    ):
        [words] = broken(*said)
        assert told in words
    record = {"kind": Kind.STEP, "detail": "charge", "attempt": 2, "level": 30}
    LogRecord.objects.create(instance=instance, time=instance.created, **record)
    assert broken(("charged", 1), ("charged", 2), ("paid", 2, "2")) == []
    book(1)
    [words] = broken(*once)
    assert "has 2 rows" in words


# Hooks


def test_judge_finds_missing_and_surplus_hooks(world, monkeypatch):
    # There is no receiver: what it is told of is another test's.
    monkeypatch.setattr(hooks, "TYPES", (hooks.HOOK.identifier,))
    queue.register_all()
    ended = hooked.enqueue()
    queue.cancel(ended)
    [hook] = Instance.objects.filter(type__identifier="chaos.hook")
    queue.cancel(hook)
    uuid = str(ended.uuid)

    def broken(*ids):
        return list(hooks.broken_of({*ids}))

    def add(uuid, state):
        facts = {"uuid": uuid, "type": "chaos.hooked", "state": state, "reason": "CANCELLED"}
        made = hooks.HOOK.enqueue(**facts)
        queue.cancel(made)
        return made

    message = {"time": ended.created, "kind": Kind.MESSAGE, "state": "FAILED", "level": 20}
    LogRecord.objects.create(instance=ended, **message)  # is no end
    assert broken() == []
    with monkeypatch.context() as patch:
        patch.setattr(hooks, "WEBHOOK", hooks.HOOK.identifier)
        assert broken() == [f"the receiver has never got {hook.uuid}"]
        assert broken(str(hook.uuid)) == []
    again, odd = add(uuid, "FAILED"), add("odd", "FINISHED")
    assert broken() == [
        f"{uuid}: 1 × FAILED, and 2 hooks of chaos.hook",
        "odd: 0 × FINISHED, and 1 hooks of chaos.hook",
    ]
    queue.delete(hook, again, odd)
    assert broken() == [f"{uuid}: 1 × FAILED, and 0 hooks of chaos.hook"]
    queue.redrive(ended)
    assert f"{ended.uuid} is ACCEPTED" in broken()


# Graphs (G17): two nodes, one after the other


def node(number, begun, ended, **facts):
    lines = line("", "start", begun), line("", "end", ended, outcome="returned")
    log = [(begun, Event.CLAIM, State.SCHEDULED), (ended, Event.FINISH, State.FINISHED)]
    shape = graphs.Shape(number, "returns", (), runs_anyhow=False)
    own = {"uuid": f"uuid-{number}", "graph": "graph", "shape": shape, "attempt": 1, "log": log}
    own |= {"attempts": executions(lines)[""], "state": State.FINISHED, "reason": ""}
    return graphs.FoundNode(**own | {"value": number} | facts)


def failed(node, reason, at):
    """Return a node in the state FAILED."""
    log = [*node.log[:-1], (at, Event.FAIL, State.FAILED)]
    return replace(node, state=State.FAILED, reason=reason, value=None, log=log)


def test_judge_finds_nodes_that_start_early_never_end_or_have_a_wrong_result():
    up, ended = node(1, 10.0, 11.0), Condition.ENDED
    cancelled = failed(up, Reason.CANCELLED, 11.0)
    for first, second, on, told in (
        (up, node(2, 12.0, 13.0), None, ""),
        (up, node(2, 12.0, 13.0, value=1), ended, ""),
        (up, node(2, 10.9, 13.0), None, "started before node-1 had returned"),
        (cancelled, node(2, 12.0, 13.0, value=1), None, "started before node-1 had returned"),
        (up, node(2, 10.5, 13.0, value=1), ended, "was claimed before node-1 had ended"),
        (up, node(2, 12.0, 13.0, state=State.ACCEPTED), None, "is ACCEPTED at the end"),
        (up, node(2, 12.0, 13.0, value=1), None, "has the result 1, not 2"),
        (
            up,
            failed(node(2, 12.0, 13.0), Reason.FATAL, 13.0),
            None,
            "is FATAL, and its handler never is",
        ),
    ):
        second.after.append((first, on or Condition.FINISHED))
        words = [each.partition(") ")[2] for each in graphs.broken_of([first, second])]
        assert words == ([told] if told else [])
    for at, is_right in ((11.0, True), (20.0, False)):
        down = failed(node(2, 12.0, 13.0, attempts={}), Reason.UPSTREAM, 13.0)
        down.after.append((failed(up, Reason.CANCELLED, at), Condition.FINISHED))
        assert bool([*graphs.broken_of([down])]) != is_right
