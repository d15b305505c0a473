"""``daemon``: tell daemons to go quiet, to resume, or to stop."""

from django.core.management.base import CommandError
from django.db import transaction

from .. import queue
from ..conf import settings
from ..exceptions import IllegalOrder, UnknownDaemon
from ..reports import overview
from ..verbs.table import DAEMON, VERBS
from ..words.hints import did_you_mean
from . import arguments, present
from .base import Subcommand, actor


class Tell(Subcommand):
    name = "daemon"
    help = "Tell daemons to go quiet, to resume, or to stop."

    def add_arguments(self, parser):
        add = parser.add_argument
        verbs = VERBS[DAEMON]
        meanings = " ".join(f"{name}: {verb.explanation}" for name, verb in verbs.items())
        add("order", choices=[*verbs], help=meanings)
        add(
            "daemon",
            nargs="*",
            type=arguments.text,
            help="daemons, by uuid or as HOST:PID; if one refuses, none is told",
        )
        add("--host", type=arguments.text, help="those on this host")
        add("--all", action="store_true", help="every daemon")

    def run(self, options):
        verb = VERBS[DAEMON][options["order"]]
        ways = (bool(options["daemon"]), options["host"] is not None, options["all"])
        if sum(ways) != 1:
            raise CommandError("Which ones? Give either daemons, or --host, or --all.")
        if options["daemon"]:
            chosen = {row.pk: row for row in map(queue.get_daemon, options["daemon"])}
            with transaction.atomic(using=settings.DATABASE):
                for row in chosen.values():
                    verb.perform(row, actor())
            return _document(verb, chosen.values(), [])
        told, left = [], []
        for row in _selected(options):
            try:
                verb.perform(row, actor())
                told.append(row)
            except (IllegalOrder, UnknownDaemon) as error:
                left.append((row, str(error)))
        return _document(verb, told, left)

    def text(self, document):
        label = VERBS[DAEMON][document["order"]].label.lower()
        lines = [f"Told to {label}: {len(document['told'])}"]
        lines += [f"{present.INDENT}{present.printable(name)}" for name in document["told"]]
        lines += [present.printable(left["why"]) for left in document["left_alone"]]
        return "\n".join(lines)


def _selected(options):
    rows = overview.daemons()
    if options["all"]:
        if not rows:
            raise CommandError("There is no daemon.")
        return rows
    chosen = [row for row in rows if row.host == options["host"]]
    if not chosen:
        hint = did_you_mean(options["host"], {row.host for row in rows})
        raise UnknownDaemon(f"There is no daemon on host {options['host']!r}.{hint}")
    return chosen


def _document(verb, told, left):
    return {
        "order": verb.name,
        "told": [str(row) for row in told],
        "left_alone": [{"daemon": str(row), "why": why} for row, why in left],
    }
