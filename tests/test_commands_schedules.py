"""Tests of ``manage.py atp schedules`` and ``manage.py atp schedule`` (docs/shell.md)."""

import re
from datetime import timedelta

import pytest

from atp import queue
from atp.models import Schedule, Slot
from atp.schedules.models import Outcome
from atp.store import get_store

from .test_commands_atp import document, run

NIGHTLY = ["nightly", "tests.echo", "--cron", "30 2 * * *", "--timezone", "Europe/Vienna"]


@pytest.fixture
def nightly(world):
    queue.register_all()
    run("schedule", "create", *NIGHTLY)
    return queue.get_schedule("nightly")


def test_schedule_subcommand_creates_and_shows_a_schedule(nightly):
    assert nightly.who.endswith("via shell")
    shown = run("schedule", "show", "nightly")
    assert shown.startswith("at 02:30 every day")
    assert "T02:30:00+0" in shown
    more = "--missed all --most 7 --window 2d --late-after 5m --overlap skip --jitter 90s"
    given = "--inputs", '{"a": 1}', "--priority", "3", *more.split()
    run("schedule", "create", "other", *NIGHTLY[1:], *given)
    found = queue.get_schedule("other")
    assert (found.missed, found.most, found.overlap, found.priority) == ("all", 7, "skip", 3)
    assert (found.window, found.late_after) == (timedelta(days=2), timedelta(minutes=5))
    assert (found.jitter, found.data) == (timedelta(seconds=90), '{"a":1}')


def test_schedules_subcommand_shows_problems_and_slots_missed_in_the_last_day(nightly, world):
    """Missed slots count even if the last slot was run. An outage counts if it ended that day."""
    now, hour, day = get_store().now(), timedelta(hours=1), timedelta(days=1)
    old = {"at": now - 3 * day, "until": now - 5 * hour, "count": 7, "outcome": Outcome.MISSED}
    older = {"at": now - 9 * day, "until": now - 8 * day, "count": 5, "outcome": Outcome.MISSED}
    skipped = {"at": now - 2 * hour, "outcome": Outcome.SKIPPED}
    enqueued = {"at": now - hour, "outcome": Outcome.ENQUEUED}
    for values in (older, old, skipped, enqueued):
        Slot.objects.create(schedule=nightly, decided=now, **values)
    lines = run("schedules").splitlines()
    [line] = [line for line in lines if line.startswith("nightly")]
    assert re.search(r"ENQUEUED +7 missed, 1 skipped +active$", line)
    found = document("schedules")
    assert found["schedules"][0]["identifier"] == "nightly"
    assert lines[-1:] == found["problems"] == ["No daemon is alive: no slot is planned."]
    world.host()
    assert document("schedules")["problems"] == []


def test_schedule_subcommand_shows_a_pause_until_it_ends(nightly):
    run("schedule", "pause", "nightly", "--reason", "disk", "--until", "2030-01-31T18:00")
    shown = run("schedule", "show", "nightly")
    assert re.search(r"^paused_reason +disk$", shown, re.M)
    assert re.search(r"^paused_until +2030-01-31 18:00:00$", shown, re.M)
    assert re.search(rf"^revision +{queue.get_schedule('nightly').revision}$", shown, re.M)
    past = get_store().now() - timedelta(minutes=1)
    Schedule.objects.filter(pk=nightly.pk).update(paused_until=past)
    found = document("schedule", "show", "nightly")
    assert (found["state"], found["paused_since"], found["paused_until"]) == ("active", None, None)
    assert "paused" not in run("schedule", "show", "nightly")


def test_subcommand_schedule_try_lists_slots_from_the_given_time(world):
    nights = ("--cron", "30 2 * * *", "--timezone", "Europe/Vienna")
    found = document("schedule", "try", *nights, "--from", "2027-03-28T01:00+01:00")["upcoming"]
    assert found[0]["local"] == "2027-03-28T03:00:00+02:00"
    assert "the clock goes forward" in found[0]["remark"]
    daily = document("schedule", "try", "--every", "1d", "--from", "2027-03-28T00:00Z")
    assert str(daily["upcoming"][0]["at"]).startswith("2027-03-28T00:00:00")
