"""``manage.py atpd``: run Tasks until told to stop."""

import sys
from argparse import ArgumentTypeError

from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections

from ... import wording
from ...conf import did_you_mean, problems, settings
from ...daemon import journal
from ...daemon.options import Options
from ...daemon.supervisor import Supervisor
from ...models import Daemon
from ...registry import registry


class Command(BaseCommand):
    help = "Run the daemon: claim due tasks and execute them in a pool of worker processes."
    # Not those of pages: they import all that answers requests, which every process
    # of the daemon would have in memory.
    requires_system_checks = (Tags.compatibility, Tags.models)

    def add_arguments(self, parser):
        add = parser.add_argument
        add(
            "-p",
            "--processes",
            type=_whole(1, 1024),
            default=Options().processes,
            help="number of worker processes (default: one per processor, here %(default)s)",
        )
        add(
            "-t",
            "--type",
            action="append",
            default=[],
            metavar="PATTERN",
            help="serve only Types that match, as in 'dem.*'; may be repeated",
        )
        add(
            "--exclude",
            action="append",
            default=[],
            metavar="PATTERN",
            help="do not serve Types that match; may be repeated",
        )
        add("--drain", action="store_true", help="empty the queue of what is due, then exit")
        add(
            "--grace",
            type=_seconds,
            default=None,
            metavar="SECONDS",
            help="time that running tasks get when the daemon is told to stop "
            "(default: ATP['GRACE'], 30)",
        )
        add(
            "--max-tasks-per-worker",
            type=_whole(1, 10**9),
            metavar="N",
            help="replace a worker after so many tasks",
        )
        add(
            "--max-memory-per-worker",
            type=_size,
            metavar="SIZE",
            help="replace a worker whose resident memory exceeds this after a task, as in 512M",
        )
        add("--reload", action="store_true", help="start anew when code changes (development)")
        add(
            "--log-format",
            choices=["text", "json"],
            help="the daemon's log on standard error; default: the project's handlers for the "
            "'atp' logger if there are any, else text",
        )

    def handle(self, **options):
        wrong = problems()
        if wrong:
            raise CommandError("\n".join(wrong))
        _check_database()
        _check_patterns(options["type"] + options["exclude"])
        journal.configure(options["log_format"], options["verbosity"])
        grace = options["grace"]
        supervisor = Supervisor(
            Options(
                processes=options["processes"],
                types=tuple(options["type"]),
                exclude=tuple(options["exclude"]),
                drain=options["drain"],
                grace=settings.GRACE if grace is None else grace,
                max_tasks_per_worker=options["max_tasks_per_worker"],
                max_memory_per_worker=options["max_memory_per_worker"],
                reload=options["reload"],
            )
        )
        sys.exit(supervisor.run())


def _check_database():
    """Refuse to start where the tables are missing; a database that is down may come back."""
    connection = connections[settings.DATABASE]
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        raise CommandError(
            "atpd needs a database that other processes can open, not one in memory."
        )
    try:
        tables = connection.introspection.table_names()
    except DatabaseError:
        return
    finally:
        connection.close()
    if Daemon._meta.db_table not in tables:
        raise CommandError(
            f"ATP's tables are missing in database {settings.DATABASE!r}: run manage.py migrate."
        )


def _check_patterns(patterns):
    names = [task_type.identifier for task_type in registry]
    for pattern in patterns:
        if not Options(types=(pattern,)).served(names):
            raise CommandError(
                f"No declared Type matches {pattern!r}.{did_you_mean(pattern, names)} "
                f"Declared: {', '.join(sorted(names)) or 'none'}."
            )


def _whole(least, most):
    def whole(text):
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return whole


def _seconds(text):
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return number


def _size(text):
    try:
        return wording.read_size(text)
    except ValueError as error:
        raise ArgumentTypeError(error) from None
