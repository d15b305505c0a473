"""Tests of ``manage.py atp import-beat``, which imports schedules of django-celery-beat."""

from datetime import datetime, timedelta

import pytest
from django.core.management.base import CommandError
from django.db import connection

from atp import queue
from atp.models import Schedule
from atp.schedules import shell as beat

from .populated import HOSTILE
from .test_commands_atp import document, keys, run, section

# The columns of django-celery-beat 2.9 that the command reads, and some that it does not read.
TABLES = {
    beat.TASKS: (
        "id integer, name varchar(200), task varchar(200), interval_id integer, "
        "crontab_id integer, solar_id integer, clocked_id integer, args text, kwargs text, "
        "queue varchar(200), exchange varchar(200), routing_key varchar(200), headers text, "
        "priority integer, expires timestamp, expire_seconds integer, one_off boolean, "
        "start_time timestamp, enabled boolean, total_run_count integer, description text"
    ),
    beat.TIMINGS["crontab_id"]: (
        "id integer, minute varchar(240), hour varchar(96), day_of_month varchar(124), "
        "month_of_year varchar(64), day_of_week varchar(64), timezone varchar(63)"
    ),
    beat.TIMINGS["interval_id"]: "id integer, every integer, period varchar(24)",
    beat.TIMINGS["solar_id"]: "id integer, event varchar(24)",
}
USUAL = {"task": "tests.echo", "args": "[]", "kwargs": "{}", "headers": "{}"}
USUAL |= {"one_off": False, "enabled": True, "total_run_count": 3, "description": ""}
NIGHTLY = {"id": 1, "minute": "30", "hour": "2", "day_of_month": "*", "month_of_year": "*"}
NIGHTLY |= {"day_of_week": "mon,fri", "timezone": "Europe/Vienna"}


def insert(table, **values):
    marks = ", ".join(["%s"] * len(values))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", [*values.values()]
        )


def task(name, **values):
    insert(beat.TASKS, name=name, **(USUAL | values))


@pytest.fixture(autouse=True)
def tables(world):
    queue.register_all()
    with connection.cursor() as cursor:
        for table, columns in TABLES.items():
            cursor.execute(f"CREATE TABLE {table} ({columns})")
    insert(beat.TIMINGS["crontab_id"], **NIGHTLY)
    insert(beat.TIMINGS["interval_id"], id=1, every=10, period="minutes")


def test_crontab_is_imported_with_its_time_zone():
    task("Nightly: mail", crontab_id=1, kwargs='{"a": 1}')
    # Celery needs a match of both day fields. These have a cron expression for the same days.
    days = {
        2: ("1-31", "mon", "30 2 * * MON"),
        3: ("13", "0-6", "30 2 13 * *"),
        4: ("*/2", "mon", "30 2 */2 * MON"),
        5: ("13", "*/2", "30 2 13 * */2"),
    }
    for id, (day_of_month, day_of_week, _) in days.items():
        fields = {"id": id, "day_of_month": day_of_month, "day_of_week": day_of_week}
        insert(beat.TIMINGS["crontab_id"], **(NIGHTLY | fields))
        task(f"mail{id}", crontab_id=id)
    assert document("import-beat", "--write")["written"]
    row = queue.get_schedule("nightly-mail")
    assert (row.cron, row.timezone, row.data) == ("30 2 * * mon,fri", "Europe/Vienna", '{"a":1}')
    assert row.type.identifier == "tests.echo"
    assert row.who.endswith("via shell")
    for id, (*_, cron) in days.items():
        assert queue.get_schedule(f"mail{id}").cron == cron


def test_interval_is_imported_even_if_its_row_is_disabled_or_expires():
    """The schedule of a disabled row is paused."""
    task("later", interval_id=1, expires=datetime(2999, 1, 1))
    task("off", interval_id=1, enabled=False)
    task("often", interval_id=1, expire_seconds=60)
    rows = document("import-beat", "--write")["rows"]
    assert {row["outcome"] for row in rows} == {"taken"}
    assert rows[-1]["remarks"] == []
    often = queue.get_schedule("often")
    assert (often.every, often.start_before) == (timedelta(minutes=10), timedelta(seconds=60))
    assert queue.get_schedule("off").paused_reason == beat.DISABLED


@pytest.mark.slow
def test_type_option_maps_a_celery_task_to_a_type():
    """Wrong arguments and missing tables are reported."""
    task("often", interval_id=1, task="proj.tasks.echo")
    found = document("import-beat")
    assert "proj.tasks.echo" in found["rows"][0]["remarks"][0]
    with pytest.raises(CommandError, match=r"no row has this task\. Did you mean 'proj.tasks.e"):
        run("import-beat", "--write", "--type", "proj.tasks.ecko=tests.echo")
    assert not Schedule.objects.filter(identifier="often").exists()
    run("import-beat", "--write", "--type", "proj.tasks.echo=tests.echo")
    assert queue.get_schedule("often").type.identifier == "tests.echo"
    assert [key for key in keys(found) if f"`{key}`" not in section("import-beat")] == []
    for given, told in (
        (["--type", "a.b"], "must have the form TASK=TYPE"),
        (["--from", "elsewhere"], "no database 'elsewhere'"),
    ):
        with pytest.raises(CommandError, match=told):
            run("import-beat", *given)
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {beat.TASKS}")
    with pytest.raises(CommandError, match=f"no table {beat.TASKS}"):
        run("import-beat")


def test_import_without_the_write_option_only_reports():
    """The report names ignored columns. An existing schedule is kept."""
    task("often", interval_id=1, queue="mails", expire_seconds=60, headers='{"x": 1}')
    task("there", interval_id=1)
    queue.create_schedule("there", "tests.echo", cron="@daily")
    row, there = document("import-beat")["rows"]
    assert row["outcome"] == "taken"
    assert [remark.split()[0] for remark in row["remarks"]] == ["queue=mails", "headers"]
    assert there["remarks"] == ["there is a schedule there already"]
    task("off", interval_id=1, enabled=False)
    task(HOSTILE, interval_id=1, task=HOSTILE)
    dry = document("import-beat")
    assert [row.identifier for row in Schedule.objects.filter(is_set=True)] == ["there"]
    shown = run("import-beat")
    assert "2 taken, 2 not. Nothing was written" in shown
    assert not [c for c in shown if not c.isprintable() and c != "\n"]
    assert document("import-beat", "--write")["rows"] == dry["rows"]
    assert queue.get_schedule("there").every is None


def test_row_without_equivalent_is_reported_and_other_rows_are_imported():
    insert(beat.TIMINGS["crontab_id"], **(NIGHTLY | {"id": 2, "day_of_month": "13"}))
    insert(beat.TIMINGS["crontab_id"], **(NIGHTLY | {"id": 3, "timezone": "Mars/Base"}))
    insert(beat.TIMINGS["interval_id"], id=2, every=10, period="moons")
    insert(beat.TIMINGS["interval_id"], id=3, every=2**31 - 1, period="days")
    insert(beat.TIMINGS["solar_id"], id=1, event="sunset")
    cases = [
        ({"solar_id": 1}, "ATP has no equivalent for the timing 'solar'"),
        ({"solar_id": 7}, "it has no timing"),
        ({"one_off": True, "interval_id": 1}, "one_off"),
        ({"args": "[5]", "interval_id": 1}, "move them to kwargs"),
        ({"kwargs": "[5]", "interval_id": 1}, "must be a JSON object"),
        ({"kwargs": "{", "interval_id": 1}, "kwargs={ is not JSON"),
        ({"start_time": datetime(2031, 1, 1), "interval_id": 1}, "start_time=2031"),
        ({"expires": datetime(2020, 1, 1), "interval_id": 1}, "expires=2020-01-01 00:00:00 has p"),
        ({"crontab_id": 1, "interval_id": 1}, "more than one"),
        ({"crontab_id": 2}, "cron would run it on either"),
        ({"crontab_id": 3}, "Mars/Base"),
        ({"interval_id": 2}, "period='moons' is unknown"),
        ({"interval_id": 3}, "days=2147483647"),
        ({"kwargs": "[" * 100_000, "interval_id": 1}, "nested too deeply"),
        ({"kwargs": '{"n": 1e400}', "interval_id": 1}, "1e400 is too large"),
    ]
    for number, (values, _) in enumerate(cases, 10):
        task(f"bad one {number}", **values)
    task("often", interval_id=1)
    *bad, good = sorted(document("import-beat", "--write")["rows"], key=lambda row: row["name"])
    assert good["outcome"] == "taken"
    for row, (_, words) in zip(bad, cases, strict=True):
        assert (row["outcome"], words in row["remarks"][0]) == ("not taken", True), row
    assert [row.identifier for row in Schedule.objects.filter(is_set=True)] == ["often"]
