"""``import-beat``: take over the schedules of django-celery-beat."""

from collections import Counter

from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, connections, transaction

from ... import queue
from ...conf import settings
from ...exceptions import ATPError, ScheduleChanged
from ...words.hints import did_you_mean
from .. import present
from ..base import Subcommand, actor
from . import beat

TAKEN, REFUSED = "taken", "not taken"


class ImportBeat(Subcommand):
    name = "import-beat"
    help = (
        "Take over the schedules of django-celery-beat. Without --write it only says what it "
        "would do with each row."
    )

    def add_arguments(self, parser):
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
        parser.add_argument("--write", action="store_true", help="make the schedules")

    def run(self, options):
        if options["alias"] not in connections:
            known = ", ".join(connections)
            raise CommandError(f"--from: there is no database {options['alias']!r}, but {known}.")
        types = _types(options["type"])
        entries = beat.entries(options["alias"], types)
        tasks = {entry.task for entry in entries}
        for unknown in types.keys() - tasks:
            hint = did_you_mean(unknown, tasks)
            raise CommandError(f"--type {unknown}=…: no row has this task.{hint}")
        with transaction.atomic(settings.DATABASE):
            rows = [_row(entry) for entry in entries]
            if not options["write"]:
                transaction.set_rollback(True, settings.DATABASE)
        return {"written": options["write"], "rows": rows}

    def text(self, document):
        rows = document["rows"]
        if not rows:
            return "django-celery-beat has no schedules."
        headings = ["row", "schedule", "type", "outcome", ""]
        names = ("name", "schedule", "type", "outcome")
        table = present.table(
            headings, [[*(row[name] for name in names), "; ".join(row["remarks"])] for row in rows]
        )
        counts = Counter(row["outcome"] for row in rows)
        told = f"{counts[TAKEN]} taken, {counts[REFUSED]} not."
        if not document["written"]:
            told += " Nothing was written: --write makes these schedules. Stop beat before it."
        return f"{table}\n\n{told}"


def _types(given):
    """Parse ``TASK=TYPE`` options into a dict of Types by Celery task. Raises CommandError."""
    for each in given:
        if "=" not in each:
            raise CommandError(f"--type {each}: write it as TASK=TYPE.")
    return dict(each.split("=", 1) for each in given)


def _row(entry):
    """Create the schedule of an Entry if possible, and return the outcome as a document."""
    trouble = entry.trouble or _trouble(entry)
    return {
        "name": entry.name,
        "schedule": entry.schedule,
        "type": entry.type,
        "outcome": REFUSED if trouble else TAKEN,
        "remarks": [trouble] if trouble else entry.remarks,
    }


def _trouble(entry):
    """Create the schedule; return why it cannot be created, "" if it was."""
    try:
        with transaction.atomic(settings.DATABASE):
            queue.create_schedule(entry.schedule, entry.type, by=actor(), **entry.given)
            if not entry.is_enabled:
                queue.pause_schedule(entry.schedule, reason=beat.DISABLED, by=actor())
    except ScheduleChanged:
        return f"there is a schedule {entry.schedule} already"
    except ATPError as error:
        return str(error)
    return ""
