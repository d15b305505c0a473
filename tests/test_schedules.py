"""Tests of the operations on schedules (docs/schedules.md)."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from atp import queue
from atp.exceptions import (
    IllegalSchedule,
    InvalidInputs,
    InvalidSchedule,
    ScheduleChanged,
    UnknownSchedule,
    UnknownType,
)
from atp.models import Instance, Schedule, Slot, Type
from atp.schedules.declaring import declared_schedules, schedule
from atp.states import Event, Reason

from .app.tasks import echo
from .app.tasks_hooks import hook

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NIGHTLY = {"cron": "30 2 * * *", "timezone": "Europe/Vienna"}


@pytest.fixture(autouse=True)
def registered(world):
    queue.register_all()


@pytest.fixture
def nightly():
    return queue.create_schedule("nightly", "tests.echo", by="ann", **NIGHTLY, inputs={"a": 1})


@pytest.fixture
def code():
    """Return a function that declares a schedule in code; remove all declarations at the end."""
    names = []

    def make(name, type=echo, **given):
        names.append(name)
        return schedule(name, type, **given)

    yield make
    for name in names:
        declared_schedules.remove(name)


def test_create_schedule_stores_a_schedule_that_code_does_not_declare(nightly):
    row = queue.get_schedule("nightly")
    assert (row.cron, row.timezone, row.is_set, row.who) == (*NIGHTLY.values(), True, "ann")
    assert row.next_at > datetime.now(UTC)
    assert [each.identifier for each in queue.schedules()].count("nightly") == 1
    assert queue.timing(**NIGHTLY).after(row.since) == row.next_at
    with pytest.raises(ScheduleChanged, match="already"):
        queue.create_schedule("nightly", "tests.echo", every=HOUR)
    # No code declares this schedule.
    with pytest.raises(IllegalSchedule, match="No code declares"):
        queue.leave_schedule("nightly")
    assert "nightly" not in queue.retire_schedules()


def test_change_schedule_keeps_parameters_that_are_not_given(nightly):
    row = queue.change_schedule("nightly", missed="all", most=7, by="bob")
    assert (row.cron, row.missed, row.most, row.who) == ("30 2 * * *", "all", 7, "bob")
    assert json.loads(row.data) == {"a": 1}
    assert row.next_at == nightly.next_at
    row = queue.change_schedule("nightly", every=HOUR, start_before=60, timeout=5, on_failed=hook)
    assert (row.cron, row.every) == ("", HOUR)
    row = queue.change_schedule("nightly", cron="@daily")
    assert (row.cron, row.every) == ("@daily", None)
    assert (row.start_before, row.timeout) == (timedelta(minutes=1), timedelta(seconds=5))
    assert [each["type"] for each in row.hooks] == ["chaos.hook"]
    row = queue.change_schedule("nightly", start_before=None, timeout=None, on_failed=None)
    assert (row.start_before, row.timeout, row.hooks) == (None, None, None)


def test_schedule_passes_its_options_to_its_instances(code):
    """The options are arguments of the schedule, or of ``using()`` of the Type."""
    options = {"start_before": 600, "timeout": 90, "on_finished": hook, "on_failed": [hook]}
    code("given", every=HOUR, **options)
    code("of-the-type", echo.using(**options | {"start_before": timedelta(minutes=10)}), every=HOUR)
    queue.register_all()
    for name in ("given", "of-the-type"):
        row = queue.get_schedule(name)
        assert (row.start_before, row.timeout) == (timedelta(minutes=10), timedelta(seconds=90))
        hooks = [{"on": on, "type": "chaos.hook"} for on in ("on_finished", "on_failed")]
        assert row.hooks == hooks
        assert queue.run_schedule(name).own == {"timeout": 90, "hooks": hooks}


def test_hook_of_a_schedule_is_enqueued_even_if_its_type_was_not_registered(world):
    Type.objects.filter(identifier__startswith="chaos.").delete()
    queue.create_schedule("often", "tests.echo", every=HOUR, on_failed=hook)
    instance = queue.run_schedule("often")
    host = world.host("tests.echo")
    [case] = host.claim()
    host.move(case, Event.START, Event.FAIL, reason=Reason.ERROR)
    made = Instance.objects.get(type__identifier="chaos.hook")
    assert made.own["hook_of"] == str(instance.uuid)


def test_backfill_passes_the_time_of_each_slot_to_its_instance():
    row = queue.create_schedule("hourly", "daemon.slot", every=HOUR, inputs={"path": "x"})
    first = row.next_at - 4 * HOUR
    planned = queue.backfill_schedule("hourly", first, row.next_at - 2 * HOUR, by="ann")
    assert planned.enqueued == 3
    assert [slot.at for slot in queue.slots("hourly")] == [first + n * HOUR for n in (2, 1, 0)]
    instances = Instance.objects.filter(created_by="schedule hourly").order_by("pk")
    assert [queue.inputs(each).value["slot"] for each in instances] == [
        first + n * HOUR for n in (0, 1, 2)
    ]
    assert queue.backfill_schedule("hourly", first, row.next_at - 2 * HOUR).enqueued == 0
    assert queue.inputs(queue.run_schedule("hourly")).value["slot"] is None
    given = queue.change_schedule("hourly", inputs={"path": "x", "slot": None})
    assert not given.takes_slot


def test_schedule_declared_in_code_can_be_reset_to_it_and_deleted_once_retired(code):
    """Its Instances are kept. A schedule that code declares again after its removal runs again."""
    code("weekly", cron="@weekly")
    queue.register_all()
    queue.change_schedule("weekly", cron="@daily", by="ann")
    with pytest.raises(IllegalSchedule, match="declared in code"):
        queue.delete_schedule("weekly")
    declared_schedules.remove("weekly")
    assert queue.retire_schedules(by="migrate") == ["weekly"]
    row = queue.get_schedule("weekly")
    assert (row.retired is None, row.due_at) == (False, None)
    code("weekly", cron="@monthly")
    queue.register_all()
    row = queue.get_schedule("weekly")
    assert (row.retired, row.due_at is None) == (None, False)
    assert (row.cron, row.is_set) == ("@daily", True)
    row = queue.leave_schedule("weekly", by="ann")
    assert (row.cron, row.is_set) == ("@monthly", False)
    instance = queue.run_schedule("weekly", by="ann")
    assert (instance.created_by, instance.identifier) == ("ann", None)
    declared_schedules.remove("weekly")
    queue.retire_schedules()
    queue.delete_schedule("weekly", by="ann")
    with pytest.raises(UnknownSchedule):
        queue.get_schedule("weekly")
    assert Instance.objects.filter(pk=instance.pk).exists()


NAIVE = datetime(2026, 1, 1)
BAD = [
    ({}, "either cron"),
    ({"cron": "@daily", "every": HOUR}, "cron"),
    ({"cron": "61 2 * * *"}, "'61' is not a valid minute"),
    ({"every": 0.5}, "from 1 s"),
    ({"every": "1h"}, "a number of seconds or a timedelta"),
    ({"every": HOUR, "timezone": "Europe/Wien"}, "Did you mean 'Europe/Vienna'|no time zone"),
    ({"every": HOUR, "missed": "al"}, "Did you mean 'all'"),
    ({"every": HOUR, "overlap": "wait"}, "must be one of"),
    ({"every": HOUR, "most": 0}, "from 1 to 10000"),
    ({"every": HOUR, "late_after": 10, "window": 5}, "late_after must not be longer"),
    ({"every": HOUR, "jitter": float("nan")}, "from 0 s"),
    ({"every": HOUR, "start_before": 0.5}, "from 1 s"),
    ({"every": HOUR, "start_before": NAIVE}, "a number of seconds or a timedelta"),
    ({"every": HOUR, "start_before": 60, "jitter": 60}, "start_before must be longer than jitter"),
    ({"every": HOUR, "timeout": 0}, "timeout=0: must be from"),
    ({"every": HOUR, "on_failed": "chaos.hook"}, "Give the Type itself, not its name"),
    ({"crn": "@daily"}, "no parameter 'crn'. Did you mean 'cron'"),
]


def test_create_schedule_rejects_invalid_parameters():
    before = Schedule.objects.count()
    for given, told in BAD:
        with pytest.raises(InvalidSchedule, match=told):
            queue.create_schedule("nightly", "tests.echo", **given)
    for name in ("", "a b", "a" * 171, None, "x@y/z"):
        with pytest.raises(InvalidSchedule, match="identifier="):
            queue.create_schedule(name, "tests.echo", every=HOUR)
    assert Schedule.objects.count() == before


def test_error_of_a_schedule_operation_names_the_parameter_or_a_similar_name(nightly):
    """G13: a form can therefore show the error at the right field, and nothing is written."""
    for name, given, error, told in (
        ("tests.ecko", {}, UnknownType, r"Did you mean 'tests\.echo'"),
        ("tests.add", {}, InvalidInputs, "missing"),
        ("tests.add", {"inputs": {"first": 1, "frist": 2}}, InvalidInputs, "unexpected"),
        ("atp.delete", {}, UnknownType, "belongs to ATP"),
    ):
        with pytest.raises(error, match=told):
            queue.create_schedule("other", name, every=HOUR, **given)
    with pytest.raises(UnknownSchedule, match="Did you mean 'nightly'"):
        queue.run_schedule("nigthly")
    now = queue.create_schedule("hourly", "tests.echo", every=HOUR).since
    for start, end, told in (
        (-HOUR, -2 * HOUR, "start=.* is later than end"),
        (HOUR, None, "start=.* has not passed"),
        (-HOUR, HOUR, "end=.* has not passed"),
        (-900 * DAY, None, "start=.* more than 10,000 slots"),
    ):
        with pytest.raises(InvalidSchedule, match=told) as refused:
            queue.backfill_schedule("hourly", now + start, end and now + end)
        assert refused.value.parameter == told.split("=")[0]
    for verb, parameter, value in (
        (queue.pause_schedule, "until", NAIVE),
        (queue.pause_schedule, "until", datetime(2020, 1, 1, tzinfo=UTC)),
        (queue.pause_schedule, "reason", "a\nb"),
        (queue.backfill_schedule, "start", NAIVE),
        (queue.change_schedule, "priority", 101),
        (queue.change_schedule, "collection", "a\nb"),
        (queue.change_schedule, "start_before", 0),
        (queue.change_schedule, "timeout", -1),
        (queue.change_schedule, "on_failed", 5),
    ):
        with pytest.raises(InvalidSchedule) as refused:
            verb("nightly", **{parameter: value})
        assert refused.value.parameter == parameter
    assert queue.get_schedule("nightly").paused_since is None
    assert not Slot.objects.exists()
