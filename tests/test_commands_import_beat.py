"""``manage.py atp import-beat``: the tables of django-celery-beat become schedules."""

from datetime import datetime, timedelta

import pytest
from django.core.management.base import CommandError
from django.db import connection

from atp import queue
from atp.models import Schedule
from atp.shell.importing import beat

from .populated import ESCAPE, HOSTILE
from .test_commands_atp import DOCS, document, keys, run

# The columns of django-celery-beat 2.9 that are read, and some that are not.
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


def test_a_cron_expression_in_its_zone():
    task("Nightly: mail", crontab_id=1, kwargs='{"a": 1}')
    told = document("import-beat", "--write")
    assert told["written"]
    row = queue.get_schedule("nightly-mail")
    assert (row.cron, row.timezone, row.data) == ("30 2 * * mon,fri", "Europe/Vienna", '{"a":1}')
    assert row.type.identifier == "tests.echo"
    assert row.who.endswith("via shell")


@pytest.mark.parametrize(
    ("day_of_month", "day_of_week", "cron"),
    [
        ("1-31", "mon", "30 2 * * MON"),
        ("13", "0-6", "30 2 13 * *"),
        ("*/2", "mon", "30 2 */2 * MON"),
        ("13", "*/2", "30 2 13 * */2"),
    ],
)
def test_days_that_match_both_fields_where_cron_has_such_days(day_of_month, day_of_week, cron):
    days = {"day_of_month": day_of_month, "day_of_week": day_of_week}
    insert(beat.TIMINGS["crontab_id"], **(NIGHTLY | days | {"id": 2}))
    task("mail", crontab_id=2)
    run("import-beat", "--write")
    assert queue.get_schedule("mail").cron == cron


def test_an_interval():
    task("often", interval_id=1)
    run("import-beat", "--write")
    assert queue.get_schedule("often").every == timedelta(minutes=10)


def test_a_type_of_another_name():
    task("often", interval_id=1, task="proj.tasks.echo")
    assert "proj.tasks.echo" in document("import-beat")["rows"][0]["remarks"][0]
    run("import-beat", "--write", "--type", "proj.tasks.echo=tests.echo")
    assert queue.get_schedule("often").type.identifier == "tests.echo"


def test_a_type_for_a_task_that_no_row_has():
    task("often", interval_id=1, task="proj.tasks.echo")
    with pytest.raises(
        CommandError, match=r"no row has this task\. Did you mean 'proj.tasks.echo'"
    ):
        run("import-beat", "--write", "--type", "proj.tasks.ecko=tests.echo")
    assert not Schedule.objects.filter(identifier="often").exists()


def test_one_that_expires_later_is_taken():
    task("often", interval_id=1, expires=datetime(2999, 1, 1))
    assert document("import-beat")["rows"][0]["outcome"] == "taken"


def test_what_is_disabled_is_paused():
    task("off", interval_id=1, enabled=False)
    run("import-beat", "--write")
    assert queue.get_schedule("off").paused_reason == beat.DISABLED


def test_without_write_nothing_is_written_and_the_same_is_told():
    task("often", interval_id=1)
    task("off", interval_id=1, enabled=False)
    task("strange", interval_id=1, task="nobody.knows")
    dry = document("import-beat")
    assert not Schedule.objects.filter(is_set=True).exists()
    assert [row["outcome"] for row in dry["rows"]] == ["taken", "taken", "not taken"]
    assert "2 taken, 1 not. Nothing was written" in run("import-beat")
    assert document("import-beat", "--write")["rows"] == dry["rows"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"solar_id": 1}, "it has no timing"),
        ({"one_off": True, "interval_id": 1}, "one_off"),
        ({"args": "[5]", "interval_id": 1}, "move them to kwargs"),
        ({"kwargs": "[5]", "interval_id": 1}, "is no object"),
        ({"kwargs": "{", "interval_id": 1}, "kwargs={ is not JSON"),
        ({"start_time": datetime(2031, 1, 1), "interval_id": 1}, "start_time=2031"),
        ({"expires": datetime(2020, 1, 1), "interval_id": 1}, "expires=2020-01-01 00:00:00 has p"),
        ({"crontab_id": 1, "interval_id": 1}, "more than one"),
        ({"interval_id": 7}, "it has no timing"),
        ({"crontab_id": 2}, "cron would run it on either"),
        ({"crontab_id": 3}, "Mars/Base"),
        ({"interval_id": 2}, "period='moons' is unknown"),
        ({"interval_id": 3}, "days=2147483647"),
        ({"kwargs": "[" * 100_000, "interval_id": 1}, "nested too deeply"),
        ({"kwargs": '{"n": 1e400}', "interval_id": 1}, "1e400 is too large"),
    ],
)
def test_what_has_no_equivalent_is_named_and_stops_no_other_row(values, words):
    insert(beat.TIMINGS["crontab_id"], **(NIGHTLY | {"id": 2, "day_of_month": "13"}))
    insert(beat.TIMINGS["crontab_id"], **(NIGHTLY | {"id": 3, "timezone": "Mars/Base"}))
    insert(beat.TIMINGS["interval_id"], id=2, every=10, period="moons")
    insert(beat.TIMINGS["interval_id"], id=3, every=2**31 - 1, period="days")
    task("a bad one", **values)
    task("often", interval_id=1)
    bad, good = document("import-beat", "--write")["rows"]
    assert (bad["outcome"], good["outcome"]) == ("not taken", "taken")
    assert words in bad["remarks"][0]
    assert [row.identifier for row in Schedule.objects.filter(is_set=True)] == ["often"]


def test_a_solar_schedule_is_named():
    insert(beat.TIMINGS["solar_id"], id=1, event="sunset")
    task("dusk", solar_id=1)
    assert document("import-beat")["rows"][0]["remarks"] == ["solar: ATP has no such schedule"]


def test_what_is_left_out_of_a_row_is_named():
    task("often", interval_id=1, queue="mails", expire_seconds=60, headers='{"x": 1}')
    [row] = document("import-beat", "--write")["rows"]
    assert row["outcome"] == "taken"
    assert [remark.split()[0] for remark in row["remarks"]] == [
        *("queue=mails", "headers"),
    ]


def test_expire_seconds_is_the_time_to_start():
    task("often", interval_id=1, expire_seconds=60)
    [row] = document("import-beat", "--write")["rows"]
    assert (row["outcome"], row["remarks"]) == ("taken", [])
    assert queue.get_schedule("often").start_before == timedelta(seconds=60)


def test_a_schedule_that_is_there_is_left_alone():
    task("often", interval_id=1)
    queue.create_schedule("often", "tests.echo", cron="@daily")
    [row] = document("import-beat", "--write")["rows"]
    assert row["remarks"] == ["there is a schedule often already"]
    assert queue.get_schedule("often").every is None


def test_all_keys_are_documented():
    task("often", interval_id=1)
    section = DOCS[DOCS.index("### `import-beat`") : DOCS.index("### `graphs`")]
    assert [key for key in keys(document("import-beat")) if f"`{key}`" not in section] == []


def test_text_shows_nothing_that_moves_a_cursor():
    task(HOSTILE, interval_id=1, task=HOSTILE)
    shown = run("import-beat")
    assert ESCAPE not in shown
    assert not [c for c in shown if not c.isprintable() and c != "\n"]


def test_wrong_arguments_are_named():
    with pytest.raises(CommandError, match="write it as TASK=TYPE"):
        run("import-beat", "--type", "a.b")
    with pytest.raises(CommandError, match="no database 'elsewhere'"):
        run("import-beat", "--from", "elsewhere")
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {beat.TASKS}")
    with pytest.raises(CommandError, match=f"no table {beat.TASKS}"):
        run("import-beat")
