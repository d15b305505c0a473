"""Tests that each time argument can be naive only if USE_TZ is off."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from atp import Throttled, queue
from atp.exceptions import ATPError
from atp.models import Schedule
from atp.store import get_store

from .app.tasks import echo
from .app.tasks_downstream import call
from .populated import populate
from .test_commands_atp import undone

HOUR = timedelta(hours=1)


def change(time):
    instance = echo.enqueue()
    queue.change(instance, due=time)
    return queue.task(instance).due_at


def until_of(plan):
    return datetime.fromisoformat(plan.selection.until)


def slot_of(planned):
    [uuid] = planned.instances
    return datetime.fromisoformat(queue.get(uuid).identifier.split("@")[1])


# Calls with a time argument, by their names. Each returns the time that ATP has used.
FUTURE = {
    "run_after": lambda time: queue.task(echo.using(run_after=time).enqueue()).due_at,
    "start_before": lambda time: echo.using(start_before=time).enqueue().start_before,
    "change": change,
    "hold": lambda time: queue.hold("tests.echo", until=time).until,
    "drop": lambda time: queue.drop("tests.echo", until=time).until,
    "pause": lambda time: queue.pause_schedule("hourly", until=time).paused_until,
    "mute": lambda time: queue.mute(queue.error_groups()[0], until=time).muted_until,
    "throttled": lambda time: get_store().now() + timedelta(seconds=Throttled(after=time).asked),
}
ALL = {"all": True, "dry_run": True}
PAST = {
    "redrive": lambda time: until_of(queue.redrive_matching(**ALL, ended_before=time)),
    "delete": lambda time: until_of(queue.delete_matching(**ALL, ended_before=time)),
    "cancel": lambda time: until_of(queue.cancel_matching(**ALL, created_before=time)),
    "backfill": lambda time: slot_of(queue.backfill_schedule("hourly", time, time)),
    "backfill to": lambda time: slot_of(
        queue.backfill_schedule("hourly", time - timedelta(minutes=1), time)
    ),
}


@pytest.fixture
def made(world):
    """Create an error group, and a schedule with slots on the hour."""
    populated = populate(world)
    populated.error()
    queue.create_schedule("hourly", "tests.echo", every=HOUR)
    Schedule.objects.filter(identifier="hourly").update(next_at=get_store().now() + HOUR)


def given(name):
    """Return a UTC time for the named call: a future time, or a past slot of the schedule."""
    now = get_store().now()
    return now.replace(minute=0, second=0, microsecond=0) - HOUR if name in PAST else now + HOUR / 2


def is_same(found, time):
    return abs(found - time) < timedelta(seconds=10)


@pytest.mark.usefixtures("made")
def test_naive_time_is_local_if_use_tz_is_off(settings):
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Vienna"
    for name, use in (FUTURE | PAST).items():
        time = given(name)
        naive = timezone.make_naive(time, ZoneInfo("Europe/Vienna"))
        for each in (naive, time.astimezone(ZoneInfo("Asia/Tokyo"))):
            with undone():
                assert is_same(use(each), time), name


@pytest.mark.usefixtures("made")
def test_aware_time_is_accepted_and_naive_time_refused_if_use_tz_is_on():
    told = r"has no time zone, and USE_TZ is on: use django\.utils"
    for name, use in (FUTURE | PAST).items():
        with undone():
            time = given(name)
            assert is_same(use(time.astimezone(ZoneInfo("Asia/Tokyo"))), time), name
        if name != "throttled":
            with undone(), pytest.raises(ATPError, match=told):
                use(given(name).replace(tzinfo=None))


@pytest.mark.usefixtures("made")
def test_expected_time_and_current_time_can_be_naive_if_use_tz_is_off(settings):
    """ATP does not store ``expected`` of a gate or ``now`` of a report."""
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Vienna"

    def local(time):
        return timezone.make_naive(time, ZoneInfo("Europe/Vienna"))

    assert queue.open_gate("tests.echo", expected=local(queue.hold("tests.echo").since))
    queue.register(call)
    row = queue.get_downstream("relay")
    assert queue.downstream(row.name, ceiling=5, expected=local(row.since)).ceiling == 5
    queue.hold("tests.echo", until=get_store().now() + HOUR)
    now = local(datetime.now(UTC))
    assert [gate.mode for gate in queue.gates(now=now)] == ["hold"]
    assert queue.gates(now=now + 2 * HOUR) == []
    assert isinstance(queue.suspicions(now=now), list)
