"""Subcommands made from the table of verbs, with an option for each parameter of a verb."""

from argparse import SUPPRESS
from types import NoneType

from django.core.management.base import CommandError
from django.db import transaction

from .. import queue
from ..conf import settings
from ..reports.blocked import due
from ..verbs.table import INSTANCE, SCOPE, VERBS
from ..verbs.table.past_moment import Past
from ..verbs.table.scopes import Level
from ..web import authorization
from ..words import kinds
from . import arguments, present
from .acting import current
from .base import Subcommand, actor, find_all

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
                authorization.require_operation(acting.user, self.verb, each, values)
        with transaction.atomic(using=settings.DATABASE):
            outcomes = [self.verb.perform(each, actor(), **values) for each in chosen]
        pairs = zip(chosen, outcomes, strict=True)
        return {"instances": [_document(instance, outcome) for instance, outcome in pairs]}

    def text(self, document):
        return "\n".join(f"{each['uuid']}: {each['outcome']}" for each in document["instances"])


def _document(instance, outcome):
    task = queue.task(instance)
    return {
        "uuid": instance.uuid,
        "state": instance.state,
        "priority": instance.priority,
        "collection": instance.collection,
        "due_at": None if task is None else due(task),
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
