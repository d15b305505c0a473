"""The command ``manage.py atpd``: run a daemon until a command or a signal stops it."""

from __future__ import annotations

import os
import resource
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.checks import Tags
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from ...conf import setting_problems, settings
from ...daemon import processes
from ...daemon.options import Options
from ...daemon.supervisor.supervisor import (
    Supervisor,
    begin_log,
    database_problem,
    process_restored,
    tell_of_storage,
)
from ...exceptions import FolderRefused
from ...operations.registry import registry
from ...placement import EXECUTOR, device_names, read_capacity, read_label
from ...text import did_you_mean, read_memory

if TYPE_CHECKING:
    from ...daemon.log_process import LogProcess

Read = TypeVar("Read")

# The most seconds that the process may take to exit after the daemon has ended.
EXIT_WITHIN = 5.0


class Command(BaseCommand):
    help = "Run the daemon: claim due tasks and execute them in a pool of worker processes."
    # Leave out the checks of pages, which import all views. These would use memory in every
    # process of the daemon.
    requires_system_checks = (Tags.compatibility, Tags.models, "atp")
    # True on the command line, where the process ends with the command.
    _owns_process = False

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add(
            "-p",
            "--processes",
            type=_whole_number(1, 1024),
            help="number of worker processes (default: one per processor, here "
            f"{Options().processes})",
        )
        add(
            "--loops",
            type=_whole_number(0, 64),
            default=None,
            metavar="N",
            help="number of loops for Types with a concurrency (default: 1 if one is served)",
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
            "--linger",
            type=_read_seconds,
            default=0.0,
            metavar="SECONDS",
            help="with --drain: exit only after so long without anything to do (default: 0)",
        )
        add(
            "--grace",
            type=_read_seconds,
            default=None,
            metavar="SECONDS",
            help="time that running tasks get when the daemon is told to stop "
            "(default: ATP['GRACE'], 30)",
        )
        add(
            "--max-tasks-per-worker",
            type=_whole_number(1, 10**9),
            metavar="N",
            help="replace a worker after this many tasks",
        )
        add(
            "--max-memory-per-worker",
            type=_readable(read_memory),
            metavar="SIZE",
            help="replace a worker whose resident memory exceeds this after a task, as in 512M",
        )
        add(
            "--executor",
            choices=sorted(settings.EXECUTORS),
            default="",
            help="run only Types of this executor, where it has them run",
        )
        add(
            "--label",
            action="append",
            type=_readable(read_label),
            default=[],
            metavar="NAME=VALUE",
            help="a label of this host, for Types that need it, as in disk=fast; may be repeated",
        )
        add(
            "--capacity",
            type=_readable(read_capacity),
            default={},
            metavar="NAME=AMOUNT,…",
            help="what this host has for the Types that take resources, as in gpu=2,memory=64GiB",
        )
        add("--reload", action="store_true", help="start anew when code changes (development)")
        add(
            "--log-format",
            choices=["text", "json"],
            help="the daemon's log on standard error; default: the project's handlers for the "
            "'atp' logger if there are any, else text",
        )

    def run_from_argv(self, argv: list[str]) -> None:
        self._owns_process = True
        status = 1
        try:
            super().run_from_argv(argv)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            raise
        finally:
            processes.ignore_stops()
            # Python closes the log handlers at its exit, and one of them may hang.
            processes.exit_within(EXIT_WITHIN, status)

    def handle(self, *args: Any, **options: Any) -> None:
        if invalid := setting_problems():
            raise CommandError("\n".join(invalid))
        _check_connections()
        _check_patterns(options["type"] + options["exclude"])
        try:
            with ExitStack() as stack:
                if not self._owns_process:
                    stack.enter_context(process_restored())
                log = begin_log(options["log_format"], options["verbosity"])
                stack.callback(log.close)
                supervisor = self._make_supervisor(options, log)
                status = supervisor.run()
        except FolderRefused as error:
            raise CommandError(error) from error
        if self._owns_process:
            sys.exit(status)
        supervisor.close()
        if status:
            raise CommandError("The daemon could not record all results.", returncode=status)

    @staticmethod
    def _make_supervisor(options: Mapping[str, Any], log: LogProcess) -> Supervisor:
        """Check the database and the storage, and return the daemon's supervisor.

        Raises CommandError if the database cannot be used.
        """
        if problem := database_problem():
            raise CommandError(problem)
        try:
            device_names(options["capacity"], os.environ)
        except ValueError as error:
            raise CommandError(f"--capacity: {error}.") from None
        tell_of_storage()
        chosen = _as_options(options)
        _check_descriptors(chosen)
        return Supervisor(chosen, log)


def parse(words: Sequence[str]) -> Options:
    """Return the Options that these words on the command line of atpd mean. Raises CommandError."""
    parser = Command().create_parser("manage.py", "atpd")
    return _as_options(vars(parser.parse_args(list(words))))


def _as_options(options: Mapping[str, Any]) -> Options:
    grace, executor = options["grace"], options["executor"]
    if executor and options["processes"]:
        raise CommandError(
            f"--processes is for workers on this host. How many attempts {executor!r} gets at a "
            f"time is its SLOTS in the setting EXECUTORS."
        )
    if executor and options["capacity"]:
        raise CommandError(
            f"--capacity is for what attempts take of this host. {executor!r} runs them on its "
            "cluster, which reports what it has."
        )
    if options["linger"] and not options["drain"]:
        raise CommandError("--linger is for --drain: without it a daemon runs until it is stopped.")
    return Options(
        processes=_places(executor) or options["processes"] or Options().processes,
        loops=options["loops"],
        types=tuple(options["type"]),
        exclude=tuple(options["exclude"]),
        drain=options["drain"],
        linger=options["linger"],
        grace=settings.GRACE if grace is None else grace,
        max_tasks_per_worker=options["max_tasks_per_worker"],
        max_memory_per_worker=options["max_memory_per_worker"],
        executor=executor,
        labels=_labels(options["label"]) | _own_labels(executor),
        capacity=options["capacity"],
        reload=options["reload"],
    )


def _check_descriptors(options: Options) -> None:
    """Raise CommandError if this process may not open as many files as the loops need."""
    loops, places = options.loop_sizes(registry)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = options.descriptors(registry)
    if loops and hard != resource.RLIM_INFINITY and needed > hard:
        raise CommandError(
            f"{loops} {'loop' if loops == 1 else 'loops'} of {places} places need {needed} open "
            f"files, and this process may have {hard} (ulimit -Hn). Raise the limit, or ask for "
            "fewer loops or a smaller concurrency."
        )


def _check_connections() -> None:
    """Raise CommandError if a transaction is open, or if the queue's database is in memory."""
    if any(each.in_atomic_block for each in connections.all(initialized_only=True)):
        raise CommandError(
            "atpd cannot run inside a transaction, because it would not see what the transaction "
            "enqueues. "
            "In tests use TransactionTestCase, or pytest's transactional_db."
        )
    connection: Any = connections[settings.DATABASE]
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        raise CommandError(
            "atpd needs a database that other processes can open. It cannot use one in memory."
        )


def _check_patterns(patterns: Iterable[str]) -> None:
    """Raise CommandError if one of the patterns matches no declared Type."""
    registry.declare_own()
    names = registry.names()
    for pattern in patterns:
        if not Options(types=(pattern,)).named(registry):
            raise CommandError(
                f"No declared Type matches {pattern!r}.{did_you_mean(pattern, names)} "
                f"Declared: {', '.join(sorted(names)) or 'none'}."
            )


def _whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return an argparse type for whole numbers from ``least`` to ``most``."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{text!r} must be a whole number from {least} to {most}")
        return int(text)

    return read


def _read_seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ArgumentTypeError(f"{text!r} must be a number of seconds, 0 or more")
    return number


def _readable(read: Callable[[str], Read]) -> Callable[[str], Read]:
    """Return an argparse type that reads text with a function, which may raise ValueError."""

    def readable(text: str) -> Read:
        try:
            return read(text)
        except ValueError as error:
            raise ArgumentTypeError(error) from None

    return readable


def _places(executor: str) -> int:
    """Return how many attempts an executor is given at a time; 0 if there is none."""
    return settings.EXECUTORS[executor]["SLOTS"] if executor else 0


def _own_labels(executor: str) -> dict[str, str]:
    return {EXECUTOR: executor} if executor else {}


def _labels(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the labels as a dict. Raises CommandError if one has two values, or is ATP's own."""
    labels: dict[str, str] = {}
    for name, value in pairs:
        if name == EXECUTOR:
            raise CommandError(f"--label {name} is ATP's own: use --executor {value}.")
        if labels.setdefault(name, value) != value:
            raise CommandError(f"--label {name} has two values: {labels[name]} and {value}.")
    return labels
