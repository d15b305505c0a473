"""Subcommands made from the table of operations, and the subcommand ``daemon``."""

from __future__ import annotations

import argparse
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any

from django.core.management.base import CommandError
from django.db import transaction

from .. import queue
from ..conf import settings
from ..models import Daemon, Instance
from ..operations.daemons import command_all
from ..operations.operation import (
    Delay,
    Flag,
    Kind,
    Moment,
    Number,
    Outcome,
    Parameter,
    Past,
    WholeNumber,
)
from ..operations.table import (
    DAEMON,
    INSTANCE,
    OPERATIONS,
    TARGET,
    DaemonOperation,
    InstanceOperation,
    Level,
    TargetOperation,
)
from ..reports.documents import Document, blocked_due
from ..web import permissions
from . import arguments, present
from .base import Subcommand, acting_user, actor, find_instances

# Operations whose subcommands are written by hand: they select Instances, or wait for something.
BESPOKE = ("redrive", "cancel", "delete", "stack")
# The word for a value in the help, by kind; by default the name of the option.
_METAVARS: dict[type[Kind], str] = {
    Delay: "DELAY",
    Moment: "WHEN",
    Past: "WHEN",
    Number: "X",
    WholeNumber: "N",
}

# The arguments of operations.


def add_operation(
    words: argparse._SubParsersAction[ArgumentParser], name: str, explanation: str
) -> ArgumentParser:
    """Add an operation to the words of a subcommand, such as ``show`` to ``schedule``.

    Return the parser for the operation's arguments.
    """
    added = words.add_parser(name, help=explanation, description=explanation)
    # Allow --json after the operation too. SUPPRESS keeps the value of a --json before it.
    added.add_argument("--json", action="store_true", default=SUPPRESS)
    return added


def add_parameters(parser: ArgumentParser, parameters: Iterable[Parameter]) -> None:
    """Add a command-line option for each of an operation's parameters."""
    for parameter in parameters:
        if isinstance(parameter.kind, Flag):
            parser.add_argument(
                arguments.option_name(parameter),
                action="store_true",
                default=None,
                help=_describe_parameter(parameter),
            )
            continue
        parser.add_argument(
            arguments.option_name(parameter),
            type=arguments.make_reader(parameter.kind, can_be_none=parameter.can_be_none),
            required=parameter.is_required,
            metavar=_METAVARS.get(type(parameter.kind)),
            help=_describe_parameter(parameter),
        )


def _describe_parameter(parameter: Parameter) -> str:
    """Return the help text of a parameter's option.

    The text ends with the form of the value, such as "(a number)", and has no full stop.
    """
    first, _, rest = parameter.help.rstrip(".").partition(" ")
    # A word in capitals, such as FAILED, is a name.
    first = first if first.isupper() and len(first) > 1 else first[:1].lower() + first[1:]
    form = f"({parameter.kind.hint})" if parameter.kind.hint else ""
    text = " ".join(filter(None, [first, rest, form]))
    return f"{text}; or none" if parameter.can_be_none else text


def given_values(parameters: Iterable[Parameter], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return an operation's arguments from the options on the command line."""
    values = {p.name: options[p.name] for p in parameters if options[p.name] is not None}
    return {name: None if v is arguments.NONE else v for name, v in values.items()}


def add_target(parser: ArgumentParser, levels: frozenset[Level]) -> None:
    """Add the options ``--type`` and ``--collection``, which name an operation's target."""
    everything = "; without it, everything" if Level.EVERYTHING in levels else ""
    parser.add_argument("--type", type=arguments.text, help=f"of this Type{everything}")
    if Level.LANE in levels:
        parser.add_argument(
            "--collection", type=arguments.text, help="of this lane of the Type only"
        )


# Subcommands made from the table of operations, with an option for each parameter.


class InstanceSubcommand(Subcommand):
    """A subcommand that performs an operation on all Instances that are named, or on none."""

    operation: InstanceOperation

    def add_arguments(self, parser: ArgumentParser) -> None:
        is_final = self.operation.is_final
        how = "its whole uuid" if is_final else "its uuid or its first digits"
        parser.add_argument(
            "uuid",
            nargs="+",
            type=arguments.whole_uuid if is_final else arguments.uuid_prefix,
            help=f"Instances, each by {how}; if one is refused, none is changed",
        )
        add_parameters(parser, self.operation.parameters)

    def run(self, options: dict[str, Any]) -> Document:
        values = given_values(self.operation.parameters, options)
        if self.operation.parameters and not values:
            names = ", ".join(map(arguments.option_name, self.operation.parameters))
            raise CommandError(f"Nothing to change. Give at least one of {names}.")
        chosen = find_instances(options["uuid"])
        if (acting := acting_user()) is not None:
            for each in chosen:
                permissions.require_operation(acting.user, self.operation, each, values)
        with transaction.atomic(using=settings.DATABASE):
            outcomes = [self.operation.perform(each, actor(), **values) for each in chosen]
        pairs = zip(chosen, outcomes, strict=True)
        return {"instances": [_instance_document(instance, outcome) for instance, outcome in pairs]}

    def text(self, document: Document) -> str:
        return "\n".join(f"{each['uuid']}: {each['outcome']}" for each in document["instances"])


def _instance_document(instance: Instance, outcome: Outcome) -> Document:
    task = queue.task(instance)
    return {
        "uuid": instance.uuid,
        "state": instance.state,
        "priority": instance.priority,
        "collection": instance.collection,
        "due_at": None if task is None else blocked_due(task),
        "outcome": outcome.told,
    }


class TargetSubcommand(Subcommand):
    """A subcommand that performs an operation on a target: everything, a Type or a lane."""

    operation: TargetOperation

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_target(parser, self.operation.levels)
        add_parameters(parser, self.operation.parameters)

    def run(self, options: dict[str, Any]) -> Document:
        target = options["type"], options.get("collection")
        if target[0] is None and Level.EVERYTHING not in self.operation.levels:
            raise CommandError("Which Type? Give --type.")
        values = given_values(self.operation.parameters, options)
        outcome = self.operation.perform(target, actor(), **values)
        is_plain = isinstance(outcome.value, (bool, int, float, str, NoneType))
        return {"outcome": outcome.told, "value": outcome.value if is_plain else None}

    def text(self, document: Document) -> str:
        return present.printable(document["outcome"])


def subcommands() -> list[type[Subcommand]]:
    """Return a Subcommand class for each operation that has no handwritten subcommand.

    These are operations on Instances and on targets.
    """
    on_instances = [each for name, each in OPERATIONS[INSTANCE].items() if name not in BESPOKE]
    # The operations that set gates and limits are in the subcommands ``gate`` and ``limit``.
    on_targets = [each for each in OPERATIONS[TARGET].values() if not each.of]
    return [
        *(_make_subcommand(InstanceSubcommand, each) for each in on_instances),
        *(_make_subcommand(TargetSubcommand, each) for each in on_targets),
    ]


def _make_subcommand(
    base: type[Subcommand], operation: InstanceOperation | TargetOperation
) -> type[Subcommand]:
    attributes = {"name": operation.name, "help": operation.explanation, "operation": operation}
    made: Any = type(f"{base.__name__}_{operation.id}", (base,), attributes)
    return made


# ``daemon``: send a command to daemons.


class DaemonSubcommand(Subcommand):
    name = "daemon"
    help = "Tell daemons to go quiet, to resume, or to stop."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        operations = OPERATIONS[DAEMON]
        meanings = " ".join(f"{name}: {each.explanation}" for name, each in operations.items())
        add("order", choices=[*operations], help=meanings)
        add(
            "daemon",
            nargs="*",
            type=arguments.text,
            help="daemons, by uuid or as HOST:PID; if one refuses, none is told",
        )
        add("--host", type=arguments.text, help="those on this host")
        add("--all", action="store_true", help="every daemon")

    def run(self, options: dict[str, Any]) -> Document:
        operation: DaemonOperation = OPERATIONS[DAEMON][options["order"]]
        ways = (bool(options["daemon"]), options["host"] is not None, options["all"])
        if sum(ways) != 1:
            raise CommandError("Name the daemons: give either daemons, or --host, or --all.")
        if options["daemon"]:
            chosen = {row.pk: row for row in map(queue.get_daemon, options["daemon"])}
            with transaction.atomic(using=settings.DATABASE):
                for row in chosen.values():
                    operation.perform(row, actor())
            return _daemons_document(operation, chosen.values(), [])
        commanded = command_all(operation.order, host=options["host"], by=actor())
        return _daemons_document(operation, commanded.told, commanded.left_alone)

    def text(self, document: Document) -> str:
        label = OPERATIONS[DAEMON][document["order"]].label.lower()
        lines = [f"Told to {label}: {len(document['told'])}"]
        lines += [f"{present.INDENT}{present.printable(name)}" for name in document["told"]]
        lines += [present.printable(left["why"]) for left in document["left_alone"]]
        return "\n".join(lines)


def _daemons_document(
    operation: DaemonOperation, done: Iterable[Daemon], refused: Iterable[tuple[Daemon, str]]
) -> Document:
    return {
        "order": operation.name,
        "told": [str(row) for row in done],
        "left_alone": [{"daemon": str(row), "why": why} for row, why in refused],
    }
