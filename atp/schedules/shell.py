"""The subcommands ``schedules`` and ``schedule``, and ``import-beat`` for django-celery-beat."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.text import slugify

from .. import queue, text
from ..conf import settings
from ..exceptions import ATPError, NotSerializable, ScheduleChanged
from ..operations.hooks import HOOK_PARAMETERS as HOOKS
from ..operations.table import OPERATIONS, SCHEDULE
from ..options import resolve_time
from ..payload import json as tagged_json
from ..reports import overview
from ..reports.documents import Document
from ..shell import arguments, present
from ..shell.base import Subcommand, actor
from ..shell.operations import add_operation, add_parameters, given_values
from ..text import NO_DAEMON, did_you_mean, shorten
from . import reports
from .operations import PARAMETERS
from .timing import parse_cron

# The most slots, and the most next runs, that ``schedule show`` prints.
_MAX_SLOTS, _MAX_RUNS = 20, 10
_TIMES, _DURATIONS = ("next_at", "paused_since", "paused_until"), ("start_before", "timeout")
_FACTS = (
    *("identifier", "type", "state", "paused_since", "paused_until", "paused_by", "paused_reason"),
    *("next_at", "missed", "overlap", "start_before", "timeout", *HOOKS, "who", "revision"),
    "trouble",
)


class Schedules(Subcommand):
    name = "schedules"
    help = "The schedules: the next run and the last slot of each."

    def run(self, options: dict[str, Any]) -> Document:
        documents, now = reports.documents(), overview.now()
        return {"time": now, "problems": _problems(documents, now), "schedules": documents}

    def text(self, document: Document) -> str:
        if not document["schedules"]:
            return "There is no schedule."
        headings = ["schedule", "type", "when", "next", "last slot", "last day", "state"]
        table = present.table(headings, [_schedule_row(each) for each in document["schedules"]])
        return "\n\n".join([table, *document["problems"]])


def _problems(documents: Sequence[Document], now: datetime) -> list[str]:
    """Return a sentence in a list if no daemon is alive to plan slots; otherwise []."""
    if all(document["state"] == "retired" for document in documents):
        return []
    alive = [row for row in overview.daemons() if overview.condition(row, now) != "lost"]
    return [] if alive else [f"{NO_DAEMON}: no slot is planned."]


def _schedule_row(document: Document) -> list[object]:
    last = document["last_slot"]
    not_run = {"missed": document["missed_lately"], "skipped": document["skipped_lately"]}
    return [
        document["identifier"],
        document["type"],
        document["words"],
        text.moment(document["next_at"]) if document["next_at"] else "",
        f"{text.moment(last['at'])} {last['outcome']}" if last else "",
        ", ".join(f"{count} {word}" for word, count in not_run.items() if count),
        document["state"],
    ]


class Schedule(Subcommand):
    name = "schedule"
    help = "Show or create a schedule, show when one would run, or perform an operation on one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        words = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        show = add_operation(words, "show", "Its parameters, its next runs and its last slots.")
        show.add_argument("schedule", type=arguments.text)
        trial = add_operation(words, "try", "Show when a schedule would run; nothing is written.")
        trial.add_argument("--cron", type=arguments.text, help="five fields, or a name like @daily")
        trial.add_argument("--every", type=arguments.delay, help="for example 90s, 10m, 2h or 1d")
        trial.add_argument("--timezone", type=arguments.text, help="for example Europe/Vienna")
        trial.add_argument(
            "--from",
            dest="since",
            type=arguments.moment,
            metavar="WHEN",
            help="show runs from this time on (2030-01-31T18:00, or a delay like 1d); default: now",
        )
        create = add_operation(
            words, "create", "Create a schedule for a Type that this process declares."
        )
        create.add_argument("schedule", type=arguments.text, help="its identifier")
        create.add_argument("type", type=arguments.text, help="the Type")
        add_parameters(create, PARAMETERS)
        for operation in OPERATIONS[SCHEDULE].values():
            added = add_operation(words, operation.name, operation.explanation)
            added.add_argument("schedule", type=arguments.text, help="its identifier")
            add_parameters(added, operation.parameters)

    def run(self, options: dict[str, Any]) -> Document:
        name = options["verb"]
        if name == "try":
            values = {key: options[key] for key in ("cron", "every", "timezone")}
            timing = queue.timing(**{key: v for key, v in values.items() if v is not None})
            since = resolve_time("--from", options["since"], overview.now)
            upcoming = reports.upcoming(timing, _MAX_RUNS, since)
            return {"words": timing.words(), "upcoming": upcoming}
        if name == "create":
            values = given_values(PARAMETERS, options)
            row = queue.create_schedule(options["schedule"], options["type"], by=actor(), **values)
            return reports.document(row)
        row = queue.get_schedule(options["schedule"])
        if name == "show":
            return reports.document(row) | {
                "upcoming": reports.upcoming_of(row, _MAX_RUNS),
                "slots": reports.slots(queue.slots(row.identifier, limit=_MAX_SLOTS)),
            }
        operation = OPERATIONS[SCHEDULE][name]
        values = given_values(operation.parameters, options)
        if name == "change" and not values:
            raise CommandError("Nothing to change: give a parameter, see --help.")
        return {"outcome": operation.perform(row, actor(), **values).told}

    def text(self, document: Document) -> str:
        if "outcome" in document:
            return present.printable(document["outcome"])
        lines = [document["words"]]
        if "identifier" in document:
            facts = {name: document[name] for name in _FACTS}
            facts |= {name: text.moment(document[name]) for name in _TIMES}
            facts |= {name: text.duration(document[name]) for name in _DURATIONS if document[name]}
            facts |= {name: ", ".join(document[name]) for name in HOOKS}
            known = {name: value for name, value in facts.items() if value not in (None, "")}
            lines += [f"{name:<13} {present.printable(value)}" for name, value in known.items()]
        if "upcoming" in document:
            rows = [
                [text.moment(run["at"]), run["local"], run["remark"]]
                for run in document["upcoming"]
            ]
            lines += ["", present.table(["next", "in its zone", "remark"], rows)]
        if document.get("slots"):
            rows = [
                [text.moment(slot["at"]), slot["outcome"], slot["count"], slot["message"]]
                for slot in document["slots"]
            ]
            lines += ["", present.table(["slot", "outcome", "count", ""], rows)]
        return "\n".join(lines)


# ``import-beat``: translate the rows of django-celery-beat to schedules.
#
# The command reads the tables with SQL, so django-celery-beat need not be installed any more.

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
# Columns without an equivalent, each with a remark. A row is imported without them.
LEFT_OUT = {
    "queue": "a collection, or atpd --type, may take its place",
    "exchange": "ATP has none",
    "routing_key": "ATP has none",
    "priority": "in Celery it depends on the broker; set it by hand",
    "expires": "pause or delete the schedule then",
}
TAKEN, REFUSED = "taken", "not taken"
# The rows of the tables with times, by column and primary key.
Timings = dict[str, dict[int, dict[str, Any]]]


class NoTables(ATPError):
    """The database does not contain the tables of django-celery-beat."""


@dataclass
class Entry:
    """A row of django-celery-beat, translated to a schedule.

    ``parameters`` are the keyword arguments for :func:`atp.queue.create_schedule`. ``trouble`` says
    why the row cannot be translated, or is "".
    """

    name: str
    task: str = ""
    schedule: str = ""
    type: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    is_enabled: bool = True
    trouble: str = ""
    remarks: list[str] = field(default_factory=list)


def _read_entries(alias: str, types: Mapping[str, str]) -> list[Entry]:
    """Return an :class:`Entry` for each row of django-celery-beat, by name. Raises NoTables.

    ``types`` maps the names of Celery tasks to the identifiers of Types; by default they are equal.
    """
    connection = connections[alias]
    if TASKS not in connection.introspection.table_names():
        raise NoTables(f"There is no table {TASKS} in the database {alias!r}.")
    timings: Timings = {
        column: {row["id"]: row for row in _read_rows(connection, table)}
        for column, table in TIMINGS.items()
        if table in connection.introspection.table_names()
    }
    rows = sorted(_read_rows(connection, TASKS), key=lambda row: row["name"])
    return [_make_entry(row, timings, types) for row in rows]


def _read_rows(connection: BaseDatabaseWrapper, table: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")  # noqa: S608
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _make_entry(row: Mapping[str, Any], timings: Timings, types: Mapping[str, str]) -> Entry:
    entry = Entry(
        name=row["name"],
        task=row["task"],
        schedule=slugify(row["name"]),
        type=types.get(row["task"], row["task"]),
        is_enabled=bool(row["enabled"]),
    )
    try:
        entry.parameters = _read_timing(row, timings) | {"inputs": _read_inputs(row)}
        if row.get("expire_seconds"):
            entry.parameters["start_before"] = row["expire_seconds"]
    except RecursionError:
        entry.trouble = "args or kwargs are nested too deeply"
    except (ValueError, OverflowError) as error:
        entry.trouble = str(error)
    entry.remarks = [
        f"{name}={row[name]} is left out: {why}"
        for name, why in LEFT_OUT.items()
        if row.get(name) not in (None, "")
    ]
    if row.get("headers") not in (None, "", "{}"):
        entry.remarks.append("headers are left out, because ATP has none")
    if not entry.is_enabled:
        entry.remarks.append("the row is disabled, so the schedule is paused")
    return entry


def _read_timing(row: Mapping[str, Any], timings: Timings) -> dict[str, Any]:
    """Return the cron or every parameter for a row. Raises ValueError if ATP has no equivalent."""
    if row["one_off"]:
        raise ValueError("one_off is set; instead, enqueue an Instance once, with run_after")
    if _has_passed(row.get("expires")):
        raise ValueError(f"expires={row['expires']} has passed, so Celery does not run it any more")
    if row.get("start_time") is not None:
        raise ValueError(
            f"start_time={row['start_time']} has no equivalent; clear it if it has passed"
        )
    columns = [name for name in TIMINGS if row.get(name) is not None]
    column = columns[0] if len(columns) == 1 else ""
    timing = timings.get(column, {}).get(row.get(column, 0))
    if timing is None:
        raise ValueError("it has no timing, or more than one")
    if column == "crontab_id":
        return _read_cron(timing)
    if column == "interval_id":
        if timing["period"] not in PERIODS:
            raise ValueError(f"period={timing['period']!r} is unknown")
        return {"every": timedelta(**{timing["period"]: timing["every"]})}
    kind = column.removesuffix("_id")
    raise ValueError(f"ATP has no equivalent for the timing {kind!r}")


def _has_passed(value: datetime | str | None) -> bool:
    """Return True if a time has passed; a time without a zone, as in SQLite, is in UTC."""
    if value is None:
        return False
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return (time if time.tzinfo else time.replace(tzinfo=UTC)) <= overview.now()


def _read_cron(timing: Mapping[str, Any]) -> dict[str, Any]:
    fields = [
        str(timing[name]).replace(" ", "")
        for name in ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    ]
    cron = " ".join(fields)
    if fields[2] != "*" and fields[4] != "*":
        both = parse_cron(cron).on_both()
        if both is None:
            raise ValueError(
                f"day_of_month={fields[2]} and day_of_week={fields[4]}: Celery runs it on days "
                "that match both, and cron would run it on either. Restrict one of them, and let "
                "the handler check the other"
            )
        cron = both
    return {"cron": cron, "timezone": str(timing["timezone"])}


def _read_inputs(row: Mapping[str, Any]) -> dict[str, Any]:
    if _parse(row, "args", "[]"):
        raise ValueError(f"args={row['args']}: inputs need names, so move them to kwargs")
    inputs = _parse(row, "kwargs", "{}")
    if not isinstance(inputs, dict):
        raise ValueError(f"kwargs={row['kwargs']} must be a JSON object")
    return inputs


def _parse(row: Mapping[str, Any], name: str, empty: str) -> Any:
    try:
        return tagged_json.parse_json(row[name] or empty)
    except NotSerializable as error:
        raise ValueError(f"{name}={shorten(row[name], 200)} is {error}") from None


class ImportBeat(Subcommand):
    name = "import-beat"
    help = (
        "Import the schedules of django-celery-beat. Without --write the command only shows what "
        "it would do with each row."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--type",
            action="append",
            default=[],
            metavar="TASK=TYPE",
            help="the Type for a task of Celery, if their names differ",
        )
        parser.add_argument(
            "--from",
            dest="alias",
            default=DEFAULT_DB_ALIAS,
            help="the alias of the database with the tables of django-celery-beat",
        )
        parser.add_argument("--write", action="store_true", help="create the schedules")

    def run(self, options: dict[str, Any]) -> Document:
        alias = options["alias"]
        if alias not in connections:
            raise CommandError(
                f"--from: there is no database {alias!r}. The databases are: "
                f"{', '.join(connections)}."
            )
        types = _parse_types(options["type"])
        entries = _read_entries(alias, types)
        tasks = {entry.task for entry in entries}
        for unknown in types.keys() - tasks:
            hint = did_you_mean(unknown, tasks)
            raise CommandError(f"--type {unknown}=…: no row has this task.{hint}")
        with transaction.atomic(settings.DATABASE):
            rows = [_import_entry(entry) for entry in entries]
            if not options["write"]:
                transaction.set_rollback(True, settings.DATABASE)
        return {"written": options["write"], "rows": rows}

    def text(self, document: Document) -> str:
        rows = document["rows"]
        if not rows:
            return "django-celery-beat has no schedules."
        headings = ["row", "schedule", "type", "outcome", ""]
        names = ("name", "schedule", "type", "outcome")
        table = present.table(
            headings, [[*(row[name] for name in names), "; ".join(row["remarks"])] for row in rows]
        )
        counts = Counter(row["outcome"] for row in rows)
        summary = f"{counts[TAKEN]} taken, {counts[REFUSED]} not."
        if not document["written"]:
            summary += (
                " Nothing was written; --write creates these schedules. Stop beat before that."
            )
        return f"{table}\n\n{summary}"


def _parse_types(pairs: Sequence[str]) -> dict[str, str]:
    """Parse ``TASK=TYPE`` options into a dict of Types by Celery task. Raises CommandError."""
    types = {}
    for pair in pairs:
        task, separator, type = pair.partition("=")
        if not separator:
            raise CommandError(f"--type {pair}: must have the form TASK=TYPE.")
        types[task] = type
    return types


def _import_entry(entry: Entry) -> Document:
    """Create the schedule for an Entry if this is possible; return the outcome as a document."""
    trouble = entry.trouble or _create_schedule(entry)
    return {
        "name": entry.name,
        "schedule": entry.schedule,
        "type": entry.type,
        "outcome": REFUSED if trouble else TAKEN,
        "remarks": [trouble] if trouble else entry.remarks,
    }


def _create_schedule(entry: Entry) -> str:
    """Create the schedule for an Entry. Return "", or the reason why it cannot be created."""
    try:
        with transaction.atomic(settings.DATABASE):
            queue.create_schedule(entry.schedule, entry.type, by=actor(), **entry.parameters)
            if not entry.is_enabled:
                queue.pause_schedule(entry.schedule, reason=DISABLED, by=actor())
    except ScheduleChanged:
        return f"there is a schedule {entry.schedule} already"
    except ATPError as error:
        return str(error)
    return ""
