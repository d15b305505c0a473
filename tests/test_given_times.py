"""Each time that is given to ATP may be naive if USE_TZ is off, and may not if it is on."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from atp import Throttled, queue
from atp.exceptions import ATPError
from atp.models import Schedule, Task
from atp.store import get_store

from .app.tasks import echo
from .app.tasks_downstream import call
from .populated import populate

HOUR = timedelta(hours=1)


def run_after(time):
    return Task.objects.get(pk=echo.using(run_after=time).enqueue().pk).due_at


def start_before(time):
    return echo.using(start_before=time).enqueue().start_before


def change(time):
    instance = echo.enqueue()
    queue.change(instance, due=time)
    return Task.objects.get(pk=instance.pk).due_at


def hold(time):
    return queue.hold("tests.echo", until=time).until


def drop(time):
    return queue.drop("tests.echo", until=time).until


def pause_schedule(time):
    return queue.pause_schedule("hourly", until=time).paused_until


def mute(time):
    return queue.mute(queue.error_groups()[0], until=time).muted_until


def throttled(time):
    return get_store().now() + timedelta(seconds=Throttled(after=time).asked)


def until_of(plan):
    return datetime.fromisoformat(plan.selection.until)


def redrive_matching(time):
    return until_of(queue.redrive_matching(all=True, ended_before=time, dry_run=True))


def delete_matching(time):
    return until_of(queue.delete_matching(all=True, ended_before=time, dry_run=True))


def cancel_matching(time):
    return until_of(queue.cancel_matching(all=True, created_before=time, dry_run=True))


def backfill(time):
    [uuid] = queue.backfill_schedule("hourly", time, time).instances
    return datetime.fromisoformat(queue.get(uuid).identifier.split("@")[1])


def backfill_end(time):
    [uuid] = queue.backfill_schedule("hourly", time - timedelta(minutes=1), time).instances
    return datetime.fromisoformat(queue.get(uuid).identifier.split("@")[1])


FUTURE = [run_after, start_before, change, hold, drop, pause_schedule, mute, throttled]
PAST = [redrive_matching, delete_matching, cancel_matching, backfill, backfill_end]


@pytest.fixture
def made(world):
    """A failure whose error group is counted, and a schedule with slots on the hour."""
    populated = populate(world)
    populated.error()
    queue.create_schedule("hourly", "tests.echo", every=HOUR)
    Schedule.objects.filter(identifier="hourly").update(next_at=get_store().now() + HOUR)


def given(use):
    """Return the time in UTC that a verb is given, after now or before; a past one is a slot."""
    now = get_store().now()
    return now.replace(minute=0, second=0, microsecond=0) - HOUR if use in PAST else now + HOUR / 2


def is_same(found, time):
    return abs(found - time) < timedelta(seconds=10)


@pytest.mark.parametrize("use", FUTURE + PAST)
@pytest.mark.usefixtures("made")
def test_a_naive_time_is_local_where_use_tz_is_off(use, settings):
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Vienna"
    time = given(use)
    assert is_same(use(timezone.make_naive(time, ZoneInfo("Europe/Vienna"))), time)


@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.parametrize("use", FUTURE + PAST)
@pytest.mark.usefixtures("made")
def test_an_aware_time_is_taken_whatever_use_tz_is(use, use_tz, settings):
    settings.USE_TZ = use_tz
    time = given(use)
    assert is_same(use(time.astimezone(ZoneInfo("Asia/Tokyo"))), time)


@pytest.mark.parametrize("use", [use for use in FUTURE + PAST if use is not throttled])
@pytest.mark.usefixtures("made")
def test_a_naive_time_is_refused_where_use_tz_is_on(use):
    with pytest.raises(ATPError, match=r"has no time zone, and USE_TZ is on: use django\.utils"):
        use(given(use).replace(tzinfo=None))


@pytest.mark.usefixtures("made")
def test_the_time_that_a_gate_is_expected_to_have_may_be_naive(settings):
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Vienna"
    since = timezone.make_naive(queue.hold("tests.echo").since, ZoneInfo("Europe/Vienna"))
    assert queue.open_gate("tests.echo", expected=since)
    queue.register(call)
    row = queue.get_downstream("relay")
    since = timezone.make_naive(row.since, ZoneInfo("Europe/Vienna"))
    assert queue.downstream(row.name, ceiling=5, expected=since).ceiling == 5


@pytest.mark.usefixtures("made")
def test_the_time_now_may_be_naive(settings):
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Vienna"
    queue.hold("tests.echo", until=get_store().now() + HOUR)
    now = timezone.make_naive(datetime.now(UTC), ZoneInfo("Europe/Vienna"))
    assert [gate.mode for gate in queue.gates(now=now)] == ["hold"]
    assert queue.gates(now=now + 2 * HOUR) == []
    assert isinstance(queue.suspicions(now=now), list)
