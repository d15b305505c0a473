"""The rows of django-celery-beat, translated to schedules.

The tables are read with SQL, so django-celery-beat need not be installed any more.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db import connections
from django.utils.text import slugify

from ...exceptions import ATPError, NotSerializable
from ...payload import tagged_json
from ...reports import overview
from ...timing.expression import parse
from ...words.wording import shorten

TASKS = "django_celery_beat_periodictask"
# The tables with the times of tasks, by the column of TASKS that refers to them.
TIMINGS = {
    "crontab_id": "django_celery_beat_crontabschedule",
    "interval_id": "django_celery_beat_intervalschedule",
    "solar_id": "django_celery_beat_solarschedule",
    "clocked_id": "django_celery_beat_clockedschedule",
}
PERIODS = ("days", "hours", "minutes", "seconds", "microseconds")
DISABLED = "disabled in django-celery-beat"
# Columns without an equivalent, each with a remark. A row is taken over without them.
LEFT_OUT = {
    "queue": "a collection, or atpd --type, may take its place",
    "exchange": "ATP has none",
    "routing_key": "ATP has none",
    "priority": "in Celery it depends on the broker; set it by hand",
    "expires": "pause or delete the schedule then",
}


class NoTables(ATPError):
    """The database has no tables of django-celery-beat."""


@dataclass
class Entry:
    """A row of django-celery-beat as a schedule, or the ``trouble`` why it cannot be one."""

    name: str
    task: str = ""
    schedule: str = ""
    type: str = ""
    given: dict = field(default_factory=dict)
    is_enabled: bool = True
    trouble: str = ""
    remarks: list[str] = field(default_factory=list)


def entries(alias, types):
    """Return an :class:`Entry` for each row, in the order of names. Raises NoTables.

    ``types`` maps the names of Celery's tasks to Types; by default the names are the same.
    """
    connection = connections[alias]
    if TASKS not in connection.introspection.table_names():
        raise NoTables(f"There is no table {TASKS} in the database {alias!r}.")
    timings = {
        column: {row["id"]: row for row in _rows(connection, table)}
        for column, table in TIMINGS.items()
        if table in connection.introspection.table_names()
    }
    rows = sorted(_rows(connection, TASKS), key=lambda row: row["name"])
    return [_entry(row, timings, types) for row in rows]


def _rows(connection, table):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")  # noqa: S608
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _entry(row, timings, types):
    entry = Entry(
        name=row["name"],
        task=row["task"],
        schedule=slugify(row["name"]),
        type=types.get(row["task"], row["task"]),
        is_enabled=bool(row["enabled"]),
    )
    try:
        entry.given = _timing(row, timings) | {"inputs": _inputs(row)}
        if row.get("expire_seconds"):
            entry.given["start_before"] = row["expire_seconds"]
    except RecursionError:
        entry.trouble = "its args or kwargs are nested too deep"
    except (ValueError, OverflowError) as error:
        entry.trouble = str(error)
    entry.remarks = [
        f"{name}={row[name]} is left out: {why}"
        for name, why in LEFT_OUT.items()
        if row.get(name) not in (None, "")
    ]
    if row.get("headers") not in (None, "", "{}"):
        entry.remarks.append("headers are left out: ATP has none")
    if not entry.is_enabled:
        entry.remarks.append("it is disabled: the schedule is paused")
    return entry


def _timing(row, timings):
    """Return the timing parameters of a row: cron or every. Raises ValueError if it has none."""
    if row["one_off"]:
        raise ValueError("one_off: enqueue it once, with run_after")
    if _has_passed(row.get("expires")):
        raise ValueError(f"expires={row['expires']} has passed: Celery does not run it any more")
    if row.get("start_time") is not None:
        raise ValueError(f"start_time={row['start_time']}: a schedule has none; clear it if past")
    [column, *more] = [name for name in TIMINGS if row.get(name) is not None] or [None]
    found = timings.get(column, {}).get(row.get(column))
    if column is None or more or found is None:
        raise ValueError("it has no timing, or more than one")
    if column == "crontab_id":
        return _cron(found)
    if column == "interval_id":
        if found["period"] not in PERIODS:
            raise ValueError(f"period={found['period']!r} is unknown")
        return {"every": timedelta(**{found["period"]: found["every"]})}
    kind = column.removesuffix("_id")
    raise ValueError(f"{kind}: ATP has no such schedule")


def _has_passed(time):
    """Return whether a time has passed; without a zone, as SQLite has it, it is in UTC."""
    if time is None:
        return False
    found = datetime.fromisoformat(time) if isinstance(time, str) else time
    return (found if found.tzinfo else found.replace(tzinfo=UTC)) <= overview.now()


def _cron(found):
    fields = [
        str(found[name]).replace(" ", "")
        for name in ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    ]
    cron = " ".join(fields)
    if fields[2] != "*" and fields[4] != "*":
        both = parse(cron).on_both()
        if both is None:
            raise ValueError(
                f"day_of_month={fields[2]} and day_of_week={fields[4]}: Celery runs it on days "
                "that match both, and cron would run it on either. Restrict one of them, and let "
                "the handler check the other"
            )
        cron = both
    return {"cron": cron, "timezone": str(found["timezone"])}


def _inputs(row):
    if _parsed(row, "args", "[]"):
        raise ValueError(f"args={row['args']}: inputs have names; move them to kwargs")
    inputs = _parsed(row, "kwargs", "{}")
    if not isinstance(inputs, dict):
        raise ValueError(f"kwargs={row['kwargs']} is no object")
    return inputs


def _parsed(row, name, empty):
    try:
        return tagged_json.parse(row[name] or empty)
    except NotSerializable as error:
        raise ValueError(f"{name}={shorten(row[name], 200)} is {error}") from None
