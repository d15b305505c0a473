"""Subcommands made from the table of operations; commands to daemons."""

from argparse import SUPPRESS
from types import NoneType

from django.core.management.base import CommandError
from django.db import transaction

from .. import queue
from ..conf import settings
from ..exceptions import IllegalOrder, UnknownDaemon
from ..operations import operation as kinds
from ..operations.operation import Past
from ..operations.table import DAEMON, INSTANCE, SCOPE, VERBS, Level
from ..reports import overview
from ..reports.documents import blocked_due
from ..text import did_you_mean
from ..web import permissions
from . import arguments, present
from .base import Subcommand, actor, current, find_all

# ``daemon``: tell daemons to go quiet, to resume, or to stop.


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


# Subcommands made from the table of verbs, with an option for each parameter of a verb.

# Verbs with a subcommand of their own, which selects Instances or waits for their end.
BESPOKE = ("redrive", "cancel", "delete")


# The word for a value in the help, by kind; by default the name of the option.
_METAVARS = {
    kinds.Delay: "DELAY",
    kinds.Moment: "WHEN",
    Past: "WHEN",
    kinds.Number: "X",
    kinds.WholeNumber: "N",
}


def add_word(words, name, told):
    """Add a verb after a noun, as in ``schedule show``, and return its parser."""
    added = words.add_parser(name, help=told, description=told)
    # Allow --json after the verb too. SUPPRESS keeps the value of a --json before the verb.
    added.add_argument("--json", action="store_true", default=SUPPRESS)
    return added


def add_parameters(parser, parameters):
    """Add an option for each parameter of a verb."""
    for parameter in parameters:
        if isinstance(parameter.kind, kinds.Flag):
            parser.add_argument(
                arguments.option(parameter),
                action="store_true",
                default=None,
                help=_help(parameter),
            )
            continue
        parser.add_argument(
            arguments.option(parameter),
            type=arguments.of(parameter.kind, can_be_none=parameter.can_be_none),
            required=parameter.is_required,
            metavar=_METAVARS.get(type(parameter.kind)),
            help=_help(parameter),
        )


def _help(parameter):
    """Return the help of a parameter as the shell has it: with its form, and no full stop."""
    first, _, rest = parameter.help.rstrip(".").partition(" ")
    # A word in capitals, as FAILED, is a name.
    first = first if first.isupper() and len(first) > 1 else first[:1].lower() + first[1:]
    form = f"({parameter.kind.hint})" if parameter.kind.hint else ""
    told = " ".join(filter(None, [first, rest, form]))
    return f"{told}; or none" if parameter.can_be_none else told


def given(parameters, options):
    """Return the arguments of a verb from the options that are given."""
    found = {p.name: options[p.name] for p in parameters if options[p.name] is not None}
    return {name: None if v is arguments.NONE else v for name, v in found.items()}


def add_scope(parser, levels):
    """Add the options that name a scope."""
    everything = "; without it, everything" if Level.EVERYTHING in levels else ""
    parser.add_argument("--type", type=arguments.text, help=f"of this Type{everything}")
    if Level.LANE in levels:
        parser.add_argument(
            "--collection", type=arguments.text, help="of this lane of the Type only"
        )


class OnInstances(Subcommand):
    """A subcommand that calls a verb on the named Instances, on all of them or on none."""

    verb = None

    def add_arguments(self, parser):
        how = "its whole uuid" if self.verb.is_final else "its uuid or its first digits"
        parser.add_argument(
            "uuid",
            nargs="+",
            type=arguments.whole_uuid if self.verb.is_final else arguments.uuid_prefix,
            help=f"Instances, each by {how}; if one is refused, none is changed",
        )
        add_parameters(parser, self.verb.parameters)

    def run(self, options):
        values = given(self.verb.parameters, options)
        if self.verb.parameters and not values:
            names = ", ".join(map(arguments.option, self.verb.parameters))
            raise CommandError(f"What? Give one or more of {names}.")
        chosen = find_all(options["uuid"])
        if (acting := current()) is not None:
            for each in chosen:
                permissions.require_operation(acting.user, self.verb, each, values)
        with transaction.atomic(using=settings.DATABASE):
            outcomes = [self.verb.perform(each, actor(), **values) for each in chosen]
        pairs = zip(chosen, outcomes, strict=True)
        return {"instances": [_verbs_document(instance, outcome) for instance, outcome in pairs]}

    def text(self, document):
        return "\n".join(f"{each['uuid']}: {each['outcome']}" for each in document["instances"])


def _verbs_document(instance, outcome):
    task = queue.task(instance)
    return {
        "uuid": instance.uuid,
        "state": instance.state,
        "priority": instance.priority,
        "collection": instance.collection,
        "due_at": None if task is None else blocked_due(task),
        "outcome": outcome.told,
    }


class OnScope(Subcommand):
    """A subcommand that calls a verb on a scope."""

    verb = None

    def add_arguments(self, parser):
        add_scope(parser, self.verb.levels)
        add_parameters(parser, self.verb.parameters)

    def run(self, options):
        scope = options["type"], options.get("collection")
        if scope[0] is None and Level.EVERYTHING not in self.verb.levels:
            raise CommandError("Of which Type? Give --type.")
        values = given(self.verb.parameters, options)
        outcome = self.verb.perform(scope, actor(), **values)
        is_plain = isinstance(outcome.value, (bool, int, float, str, NoneType))
        return {"outcome": outcome.told, "value": outcome.value if is_plain else None}

    def text(self, document):
        return present.printable(document["outcome"])


def _subcommand(base, verb):
    attributes = {"name": verb.name, "help": verb.explanation, "verb": verb}
    return type(f"{base.__name__}_{verb.id}", (base,), attributes)


def subcommands():
    """Return a Subcommand for each verb on Instances or scopes that has none of its own."""
    on_instances = [v for name, v in VERBS[INSTANCE].items() if name not in BESPOKE]
    # The verbs of gates and of limits are in the subcommands ``gate`` and ``limit``.
    on_scopes = [verb for verb in VERBS[SCOPE].values() if not verb.of]
    return [
        *(_subcommand(OnInstances, verb) for verb in on_instances),
        *(_subcommand(OnScope, verb) for verb in on_scopes),
    ]
