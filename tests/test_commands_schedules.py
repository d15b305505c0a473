"""``manage.py atp schedules`` and ``schedule`` (docs/shell.md)."""

import re
from datetime import timedelta

import pytest
from django.core.management.base import CommandError

from atp import queue
from atp.models import Instance, Schedule, Slot
from atp.rows.schedule import Outcome
from atp.store import get_store

from .test_commands_atp import DOCS, document, keys, run

pytestmark = pytest.mark.usefixtures("world")
NIGHTLY = ["nightly", "tests.echo", "--cron", "30 2 * * *", "--timezone", "Europe/Vienna"]


@pytest.fixture(autouse=True)
def registered(world):
    queue.register_all()


@pytest.fixture
def nightly():
    run("schedule", "create", *NIGHTLY)
    return queue.get_schedule("nightly")


def row():
    return queue.get_schedule("nightly")


def test_create_and_show(nightly):
    assert nightly.who.endswith("via shell")
    shown = run("schedule", "show", "nightly")
    assert shown.startswith("at 02:30 every day")
    assert "T02:30:00+0" in shown


def test_create_with_everything():
    more = "--missed all --most 7 --window 2d --late-after 5m --overlap skip --jitter 90s"
    run("schedule", "create", *NIGHTLY, "--inputs", '{"a": 1}', "--priority", "3", *more.split())
    found = row()
    assert (found.missed, found.most, found.overlap, found.priority) == ("all", 7, "skip", 3)
    assert (found.window, found.late_after) == (timedelta(days=2), timedelta(minutes=5))
    assert (found.jitter, found.data) == (timedelta(seconds=90), '{"a":1}')


def test_the_list_tells_what_became_of_the_last_slot(nightly):
    at = nightly.next_at - timedelta(days=1)
    Slot.objects.create(schedule=nightly, at=at, outcome=Outcome.MISSED, decided=at)
    [line] = [line for line in run("schedules").splitlines() if line.startswith("nightly")]
    assert "MISSED" in line
    assert line.endswith("active")
    assert document("schedules")["schedules"][0]["identifier"] == "nightly"


def test_the_list_tells_what_was_not_run_in_the_last_day(nightly):
    """Also behind a last slot that was run; an outage that began before counts if it lasted."""
    now, hour, day = get_store().now(), timedelta(hours=1), timedelta(days=1)
    old = {"at": now - 3 * day, "until": now - 5 * hour, "count": 7, "outcome": Outcome.MISSED}
    older = {"at": now - 9 * day, "until": now - 8 * day, "count": 5, "outcome": Outcome.MISSED}
    skipped = {"at": now - 2 * hour, "outcome": Outcome.SKIPPED}
    enqueued = {"at": now - hour, "outcome": Outcome.ENQUEUED}
    for values in (older, old, skipped, enqueued):
        Slot.objects.create(schedule=nightly, decided=now, **values)
    [line] = [line for line in run("schedules").splitlines() if line.startswith("nightly")]
    assert re.search(r"ENQUEUED +7 missed, 1 skipped +active$", line)


def test_a_pause_that_is_over_is_not_shown(nightly):
    run("schedule", "pause", "nightly", "--reason", "disk", "--until", "2h")
    past = get_store().now() - timedelta(minutes=1)
    Schedule.objects.filter(pk=nightly.pk).update(paused_until=past)
    found = document("schedule", "show", "nightly")
    assert (found["state"], found["paused_since"], found["paused_until"]) == ("active", None, None)
    assert "paused" not in run("schedule", "show", "nightly")


def test_try_begins_at_a_given_time():
    nights = ("--cron", "30 2 * * *", "--timezone", "Europe/Vienna")
    found = document("schedule", "try", *nights, "--from", "2027-03-28T01:00+01:00")["upcoming"]
    assert found[0]["local"] == "2027-03-28T03:00:00+02:00"
    assert "the clock goes forward" in found[0]["remark"]
    daily = document("schedule", "try", "--every", "1d", "--from", "2027-03-28T00:00Z")
    assert str(daily["upcoming"][0]["at"]).startswith("2027-03-28T00:00:00")


def test_all_keys_are_documented(nightly):
    at = nightly.next_at - timedelta(days=1)
    Slot.objects.create(schedule=nightly, at=at, outcome=Outcome.MISSED, decided=at)
    section = re.search(r"^### `schedule`$(.*?)^##", DOCS, re.M | re.S).group(1)
    for args in (["show", "nightly"], ["try", "--every", "10m"], ["run", "nightly"]):
        found = set(keys(document("schedule", *args)))
        assert [key for key in sorted(found) if f"`{key}`" not in section] == []


def test_it_says_that_no_daemon_plans(nightly, world):
    assert run("schedules").endswith("No daemon is alive: no slot is planned.\n")
    assert document("schedules")["problems"] == ["No daemon is alive: no slot is planned."]
    world.host()
    assert "No daemon" not in run("schedules")
    assert document("schedules")["problems"] == []


def test_try_writes_nothing():
    before = Schedule.objects.count()
    shown = run("schedule", "try", "--cron", "30 2 * * *", "--timezone", "Europe/Vienna")
    assert shown.startswith("at 02:30 every day")
    assert len(document("schedule", "try", "--every", "15m")["upcoming"]) == 10
    assert Schedule.objects.count() == before


def test_pause_and_resume(nightly):
    assert "paused" in run("schedule", "pause", "nightly", "--reason", "disk", "--until", "2h")
    assert (row().paused_reason, row().paused_until is None) == ("disk", False)
    assert document("schedule", "show", "nightly")["state"] == "paused"
    assert "next slot" in run("schedule", "resume", "nightly")
    assert row().paused_since is None


def test_show_tells_why_it_is_paused_and_which_revision_an_edit_expects(nightly):
    run("schedule", "pause", "nightly", "--reason", "disk", "--until", "2030-01-31T18:00")
    shown = run("schedule", "show", "nightly")
    assert re.search(r"^paused_reason +disk$", shown, re.M)
    assert re.search(r"^paused_until +2030-01-31 18:00:00$", shown, re.M)
    assert re.search(rf"^revision +{row().revision}$", shown, re.M)


def test_run_now(nightly):
    told = run("schedule", "run", "nightly")
    assert str(Instance.objects.get().uuid) in told


def test_change(nightly):
    run("schedule", "change", "nightly", "--cron", "@daily", "--expected", "1")
    assert row().cron == "@daily"
    with pytest.raises(CommandError, match="revision 2"):
        run("schedule", "change", "nightly", "--cron", "@weekly", "--expected", "1")


def test_backfill():
    run("schedule", "create", "hourly", "tests.echo", "--every", "1h")
    end = queue.get_schedule("hourly").next_at - timedelta(minutes=61)
    start = end - timedelta(hours=2)
    given = ("--start", start.isoformat(), "--end", end.isoformat())
    told = run("schedule", "backfill", "hourly", *given)
    assert told.strip() == "Instances enqueued: 2."
    assert Instance.objects.count() == 2


def test_leave_and_delete(nightly):
    run("schedule", "change", "of-the-code", "--cron", "@daily")
    run("schedule", "leave", "of-the-code")
    assert queue.get_schedule("of-the-code").cron == "@yearly"
    assert "removed" in run("schedule", "delete", "nightly")
    assert not Schedule.objects.filter(identifier="nightly").exists()


BAD = [
    ([], "required"),
    (["shwo", "nightly"], "invalid choice"),
    (["show", "nigthly"], "Did you mean 'nightly'"),
    (["try"], "either cron"),
    (["try", "--cron", "61 * * * *"], "no minute"),
    (["try", "--cron", ""], "five fields"),
    (["try", "--every", "0s"], "from 1 s"),
    (["try", "--every", "5"], "'5' is not a delay as 90s"),
    (["try", "--cron", "@daily", "--every", "1h"], "either cron"),
    (["try", "--cron", "@daily", "--timezone", "Mars/Base"], "no time zone"),
    (["create", "hourly", "tests.ecko", "--every", "1h"], "Did you mean"),
    (["create", "nightly", "tests.echo", "--every", "1h"], "already"),
    (["create", "hour ly", "tests.echo", "--every", "1h"], "identifier="),
    (["create", "hourly", "tests.add", "--every", "1h"], "missing"),
    (["create", "hourly", "tests.echo", "--every", "soon"], "delay"),
    (["create", "hourly", "tests.echo", "--every", "1h", "--inputs", "{"], "JSON"),
    (["create", "hourly", "tests.echo", "--every", "1h", "--missed", "two"], "two"),
    (["change", "nightly"], "Nothing to change"),
    (["change", "nightly", "--jitter", "-1s"], "delay|expected one argument"),
    (["pause", "nightly", "--until", "2020-01-01"], "has passed"),
    (["resume", "nightly"], "not paused"),
    (["leave", "nightly"], "No code declares|cannot"),
    (["delete", "of-the-code"], "declared by code|cannot"),
    (["backfill", "nightly"], "required|start"),
    (["backfill", "nightly", "--start", "1h"], "a delay from now"),
    (["create", "hourly", "tests.echo", "--every", "1h", "--overlap", "wait"], "'wait' is none"),
    (["create", "h", "tests.echo", "--every", "1h", "--overlap", "queue", "--most", "101"], "100"),
    (["backfill", "nightly", "--start", "2099-01-01"], "has not passed"),
    (["run"], "required"),
]


@pytest.mark.parametrize(("args", "told"), BAD, ids=[" ".join(args)[:60] for args, _ in BAD])
def test_bad_input_is_an_error_and_nothing_is_written(nightly, args, told):
    """G13."""
    before = list(Schedule.objects.order_by("pk").values())
    with pytest.raises(CommandError, match=told):
        run("schedule", *args)
    assert list(Schedule.objects.order_by("pk").values()) == before
    assert not Instance.objects.exists()
