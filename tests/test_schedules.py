"""The verbs of schedules (docs/schedules.md)."""

from datetime import UTC, datetime, timedelta

import pytest

from atp import queue
from atp.authoring.schedule import schedule
from atp.exceptions import (
    IllegalSchedule,
    InvalidInputs,
    InvalidSchedule,
    ScheduleChanged,
    UnknownSchedule,
)
from atp.exceptions import UnknownType as NoSuchType
from atp.models import Inputs, Instance, Schedule, Slot, Type
from atp.payload import codec
from atp.payload.codec import Payload
from atp.states import Event, Reason
from atp.verbs.schedules import declared

from .app.tasks import add, echo
from .app.tasks_hooks import hook

pytestmark = pytest.mark.usefixtures("world")

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
    """Declare schedules as code does, and forget them in the end."""
    names = []

    def make(name, type=echo, **given):
        names.append(name)
        return schedule(name, type, **given)

    yield make
    for name in names:
        declared.remove(name)


def decoded(instance):
    stored = Inputs.objects.get(instance=instance.pk)
    return codec.decode(Payload(stored.format, stored.data))


def test_create(nightly):
    row = queue.get_schedule("nightly")
    assert (row.cron, row.timezone, row.is_set, row.who) == (*NIGHTLY.values(), True, "ann")
    assert row.next_at > datetime.now(UTC)
    assert [each.identifier for each in queue.schedules()].count("nightly") == 1


def test_create_of_one_that_is_there(nightly):
    with pytest.raises(ScheduleChanged, match="already"):
        queue.create_schedule("nightly", "tests.echo", every=HOUR)


def test_change_keeps_what_is_not_given(nightly):
    row = queue.change_schedule("nightly", missed="all", most=7, by="bob")
    assert (row.cron, row.missed, row.most, row.who) == ("30 2 * * *", "all", 7, "bob")
    assert codec.decode(Payload(row.format, row.data)) == {"a": 1}
    assert row.next_at == nightly.next_at


def test_every_takes_the_place_of_cron(nightly):
    row = queue.change_schedule("nightly", every=HOUR)
    assert (row.cron, row.every) == ("", HOUR)
    row = queue.change_schedule("nightly", cron="@daily")
    assert (row.cron, row.every) == ("@daily", None)


def test_two_edits_at_once(nightly):
    queue.change_schedule("nightly", jitter=60, expected=nightly.revision)
    with pytest.raises(ScheduleChanged, match="revision 2"):
        queue.change_schedule("nightly", jitter=5, expected=nightly.revision)
    assert queue.get_schedule("nightly").jitter == timedelta(seconds=60)


def test_the_options_of_its_instances(code):
    """As given, or as the Type is given with."""
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


def test_a_change_keeps_options_that_are_not_given_and_removes_those_that_are_none(nightly):
    queue.change_schedule("nightly", start_before=60, timeout=5, on_failed=hook)
    row = queue.change_schedule("nightly", jitter=7)
    assert (row.start_before, row.timeout) == (timedelta(minutes=1), timedelta(seconds=5))
    assert [each["type"] for each in row.hooks] == ["chaos.hook"]
    row = queue.change_schedule("nightly", start_before=None, timeout=None, on_failed=None)
    assert (row.start_before, row.timeout, row.hooks) == (None, None, None)


def test_a_hook_of_a_schedule_is_enqueued_at_the_end_also_if_nobody_had_registered_it(world):
    Type.objects.filter(identifier__startswith="chaos.").delete()
    queue.create_schedule("often", "tests.echo", every=HOUR, on_failed=hook)
    instance = queue.run_schedule("often")
    host = world.host("tests.echo")
    [case] = host.claim()
    host.move(case, Event.START, Event.FAIL, reason=Reason.ERROR)
    made = Instance.objects.get(type__identifier="chaos.hook")
    assert made.own["hook_of"] == str(instance.uuid)


def test_a_schedule_without_options_is_declared_as_by_an_older_release(code):
    assert not code("plain", every=HOUR).document().keys() & {"start_before", "timeout", "hooks"}


def test_pause_until(nightly):
    until = timedelta(days=2)
    row = queue.pause_schedule("nightly", reason="storage moves", until=until, by="ann")
    assert row.paused_until - row.paused_since == pytest.approx(until, abs=HOUR)
    assert (row.paused_by, row.paused_reason) == ("ann", "storage moves")
    row = queue.resume_schedule("nightly", by="bob")
    assert (row.paused_since, row.paused_reason) == (None, "")


def test_run_now(nightly):
    instance = queue.run_schedule("nightly", by="ann")
    assert (instance.created_by, instance.identifier) == ("ann", None)
    assert decoded(instance) == {"a": 1}
    assert queue.slots("nightly") == []


def test_a_backfill_has_the_time_of_each_slot():
    row = queue.create_schedule("hourly", "daemon.slot", every=HOUR, inputs={"path": "x"})
    first = row.next_at - 4 * HOUR
    planned = queue.backfill_schedule("hourly", first, row.next_at - 2 * HOUR, by="ann")
    assert planned.enqueued == 3
    assert [slot.at for slot in queue.slots("hourly")] == [first + n * HOUR for n in (2, 1, 0)]
    instances = Instance.objects.filter(created_by="schedule hourly").order_by("pk")
    assert [decoded(each)["slot"] for each in instances] == [first + n * HOUR for n in (0, 1, 2)]
    assert queue.backfill_schedule("hourly", first, row.next_at - 2 * HOUR).enqueued == 0


def test_run_now_has_no_slot():
    queue.create_schedule("hourly", "daemon.slot", every=HOUR, inputs={"path": "x"})
    assert decoded(queue.run_schedule("hourly"))["slot"] is None


def test_a_given_slot_is_the_one_that_is_given():
    given = {"path": "x", "slot": None}
    row = queue.create_schedule("hourly", "daemon.slot", every=HOUR, inputs=given)
    assert not row.takes_slot


@pytest.mark.parametrize(
    ("start", "end", "told"),
    [
        (timedelta(hours=-1), timedelta(hours=-2), "start=.* is later than end"),
        (timedelta(hours=1), None, "start=.* has not passed"),
        (timedelta(hours=-1), timedelta(hours=1), "end=.* has not passed"),
        (timedelta(days=-900), None, "start=.* more than 10000 slots"),
    ],
)
def test_a_backfill_of_what_makes_no_sense(start, end, told):
    """G13."""
    now = queue.create_schedule("hourly", "tests.echo", every=HOUR).since
    with pytest.raises(InvalidSchedule, match=told) as refused:
        queue.backfill_schedule("hourly", now + start, None if end is None else now + end)
    assert refused.value.parameter == told.split("=")[0]
    assert not Slot.objects.exists()


def test_delete(nightly):
    instance = queue.run_schedule("nightly")
    queue.delete_schedule("nightly", by="ann")
    with pytest.raises(UnknownSchedule):
        queue.get_schedule("nightly")
    assert Instance.objects.filter(pk=instance.pk).exists()


def test_what_code_declares_is_not_deleted(code):
    code("weekly", cron="@weekly")
    queue.register_all()
    with pytest.raises(IllegalSchedule, match="declared by code"):
        queue.delete_schedule("weekly")
    declared.remove("weekly")
    assert queue.retire_schedules(by="migrate") == ["weekly"]
    queue.delete_schedule("weekly")


def test_an_edit_outlives_a_deploy_until_it_is_left_to_the_code(code):
    code("weekly", cron="@weekly")
    queue.register_all()
    queue.change_schedule("weekly", cron="@daily", by="ann")
    declared.remove("weekly")
    code("weekly", cron="@monthly")
    queue.register_all()
    row = queue.get_schedule("weekly")
    assert (row.cron, row.is_set) == ("@daily", True)
    row = queue.leave_schedule("weekly", by="ann")
    assert (row.cron, row.is_set) == ("@monthly", False)


def test_what_no_code_declares_is_not_left_to_it(nightly):
    with pytest.raises(IllegalSchedule, match="No code declares"):
        queue.leave_schedule("nightly")


def test_what_comes_back_into_the_code_runs_again(code):
    code("weekly", cron="@weekly")
    queue.register_all()
    declared.remove("weekly")
    queue.retire_schedules()
    row = queue.get_schedule("weekly")
    assert row.retired is not None
    assert row.due_at is None
    code("weekly", cron="@weekly")
    queue.register_all()
    row = queue.get_schedule("weekly")
    assert row.retired is None
    assert row.due_at is not None


def test_what_an_operator_has_made_is_not_retired(nightly):
    assert "nightly" not in queue.retire_schedules()


def test_declared_twice(code):
    code("weekly", cron="@weekly")
    with pytest.raises(InvalidSchedule, match="declared twice"):
        code("weekly", type=add, cron="@weekly", inputs={"first": 1})


BAD = [
    ({}, "either cron"),
    ({"cron": "@daily", "every": HOUR}, "either cron"),
    ({"cron": "61 2 * * *"}, "'61' is no minute"),
    ({"cron": "0 0 2 * * *"}, "six fields"),
    ({"cron": "@dayly"}, "Did you mean '@daily'"),
    ({"cron": "0 0 31 2 *"}, "no date"),
    ({"every": 0.5}, "from 1 s"),
    ({"every": "1h"}, "seconds, or a timedelta"),
    ({"every": timedelta(seconds=1.5)}, r"every=1\.5 s: .* whole seconds"),
    ({"every": timedelta(0)}, "every=0 s: "),
    ({"cron": ""}, "five fields"),
    ({"every": HOUR, "timezone": "Europe/Wien"}, "Did you mean 'Europe/Vienna'|no time zone"),
    ({"every": HOUR, "missed": "al"}, "Did you mean 'all'"),
    ({"every": HOUR, "overlap": "wait"}, "must be one of"),
    ({"every": HOUR, "most": 0}, "from 1 to 10000"),
    ({"every": HOUR, "most": True}, "whole number"),
    ({"every": HOUR, "late_after": 10, "window": 5}, "late_after must not be longer"),
    ({"every": HOUR, "jitter": -1}, "from 0 s"),
    ({"every": HOUR, "jitter": float("nan")}, "from 0 s"),
    ({"every": HOUR, "priority": 101}, "from -100 to 100"),
    ({"every": HOUR, "collection": "a\nb"}, "printable"),
    ({"every": HOUR, "start_before": 0.5}, "from 1 s"),
    ({"every": HOUR, "start_before": datetime(2100, 1, 1, tzinfo=UTC)}, "seconds, or a timedelta"),
    ({"every": HOUR, "start_before": 60, "jitter": 60}, "start_before must be longer than jitter"),
    ({"every": HOUR, "timeout": 0}, "timeout=0: must be from"),
    ({"every": HOUR, "on_failed": "chaos.hook"}, "Give the Type itself, not its name"),
    ({"crn": "@daily"}, "no parameter 'crn'. Did you mean 'cron'"),
]
NAIVE = datetime(2026, 1, 1)


@pytest.mark.parametrize(("given", "told"), BAD, ids=[str(given)[:60] for given, _ in BAD])
def test_bad_parameters(given, told):
    """G13: nothing is written."""
    before = Schedule.objects.count()
    with pytest.raises(InvalidSchedule, match=told):
        queue.create_schedule("nightly", "tests.echo", **given)
    assert Schedule.objects.count() == before


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        (lambda: queue.pause_schedule("nightly", until=NAIVE), "until"),
        (lambda: queue.pause_schedule("nightly", reason="a\nb"), "reason"),
        (lambda: queue.backfill_schedule("nightly", NAIVE), "start"),
        (lambda: queue.backfill_schedule("nightly", timedelta(hours=-1), NAIVE), "end"),
        (lambda: queue.change_schedule("nightly", priority=101), "priority"),
        (lambda: queue.change_schedule("nightly", collection="a\nb"), "collection"),
        (lambda: queue.change_schedule("nightly", start_before=0), "start_before"),
        (lambda: queue.change_schedule("nightly", timeout=-1), "timeout"),
        (lambda: queue.change_schedule("nightly", on_failed=5), "on_failed"),
    ],
)
def test_an_error_names_its_parameter(nightly, call, parameter):
    """G13: a form shows it at its field."""
    with pytest.raises(InvalidSchedule) as refused:
        call()
    assert refused.value.parameter == parameter


@pytest.mark.parametrize("name", ["", "a b", "a" * 171, None, "x@y/z"])
def test_bad_identifiers(name):
    """G13."""
    with pytest.raises(InvalidSchedule, match="identifier="):
        queue.create_schedule(name, "tests.echo", every=HOUR)


def test_inputs_that_do_not_fit():
    """G13: an Instance that cannot run is not enqueued each night."""
    with pytest.raises(InvalidInputs, match="missing"):
        queue.create_schedule("sums", "tests.add", every=HOUR)
    with pytest.raises(InvalidInputs, match="unexpected"):
        queue.create_schedule("sums", "tests.add", every=HOUR, inputs={"first": 1, "frist": 2})


def test_types_and_schedules_that_are_not_there(nightly):
    """G13."""
    with pytest.raises(NoSuchType, match=r"Did you mean 'tests\.echo'"):
        queue.create_schedule("other", "tests.ecko", every=HOUR)
    with pytest.raises(NoSuchType, match="belongs to ATP"):
        queue.create_schedule("other", "atp.delete", every=HOUR)
    with pytest.raises(UnknownSchedule, match="Did you mean 'nightly'"):
        queue.run_schedule("nigthly")


def test_a_pause_that_is_over(nightly):
    """G13."""
    with pytest.raises(InvalidSchedule, match="has passed"):
        queue.pause_schedule("nightly", until=datetime(2020, 1, 1, tzinfo=UTC))
    assert queue.get_schedule("nightly").paused_since is None


def test_its_first_slot_is_as_said_beforehand():
    row = queue.create_schedule("nightly", "tests.echo", **NIGHTLY)
    assert queue.timing(**NIGHTLY).after(row.since) == row.next_at
