"""The subcommands for gates, limits and downstreams.

``gates``, ``limits`` and ``downstreams`` list all of them. ``gate``, ``limit`` and ``downstream``
change one.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Collection
from typing import Any

from django.core.management.base import CommandError

from .. import queue, text
from ..downstreams import operations as downstreams
from ..operations.operation import Parameter
from ..operations.table import DOWNSTREAM, GATE, OPERATIONS, TARGET, Level, TargetOperation
from ..reports import documents
from ..reports.documents import Document
from . import arguments, present
from .base import Subcommand, actor
from .operations import add_operation, add_parameters, add_target, given_values

# The operations that set gates, by name, and their parameters, each once.
_GATES: dict[str, TargetOperation] = {
    name: operation for name, operation in OPERATIONS[TARGET].items() if operation.of == GATE
}
_GATE_PARAMETERS: Collection[Parameter] = {
    parameter.name: parameter for operation in _GATES.values() for parameter in operation.parameters
}.values()
_LIMIT, _UNLIMIT = (OPERATIONS[TARGET][name] for name in ("limit", "unlimit"))
# The most log records that ``--log`` shows.
_MAX_RECORDS = 20


class Gate(Subcommand):
    name = "gate"
    help = "Hold or drop waiting Instances, or let them go: of a Type, a lane, or everything."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "mode", nargs="?", choices=[*_GATES], help="without a mode: list the shut gates"
        )
        add_target(parser, frozenset(Level))
        add_parameters(parser, _GATE_PARAMETERS)
        parser.add_argument("--log", action="store_true", help="instead, list who has set gates")

    def run(self, options: dict[str, Any]) -> Document:
        target = options["type"], options["collection"]
        mode, values = options["mode"], given_values(_GATE_PARAMETERS, options)
        if options["log"]:
            if mode is not None or values:
                raise CommandError("With --log, only --type and --collection can be given.")
            return _log_document(*target, "gate")
        if mode is None:
            if values or target != (None, None):
                raise CommandError(f"Give a mode: {', '.join(_GATES)}.")
            return _gates_document()
        operation = _GATES[mode]
        foreign = values.keys() - {parameter.name for parameter in operation.parameters}
        if foreign:
            raise CommandError(f"{mode} takes no --{', --'.join(sorted(foreign))}.")
        outcome = operation.perform(target, actor(), **values)
        gate: Any = outcome.value
        was = gate if mode == "open" else gate.was
        return {
            "told": outcome.told,
            "was": None if was is None else documents.gate(was),
        } | _gates_document()

    def text(self, document: Document) -> str:
        if "log" in document:
            return _format_log(document)
        return _add_outcome(document, _format_gates(document))


class Gates(Subcommand):
    name = "gates"
    help = "The gates that are shut, and by whom."

    def run(self, options: dict[str, Any]) -> Document:
        return _gates_document()

    def text(self, document: Document) -> str:
        return _format_gates(document)


def _gates_document() -> Document:
    return {"gates": [documents.gate(row) for row in queue.gates()]}


def _format_gates(document: Document) -> str:
    if not document["gates"]:
        return "All gates are open."
    headings = ["where", "mode", "since", "until", "by", "reason"]
    return present.table(headings, [_gate_row(row) for row in document["gates"]])


def _gate_row(document: Document) -> list[object]:
    return [
        _describe_target(document),
        document["mode"],
        text.moment(document["since"]),
        text.moment(document["until"]) if document["until"] else "",
        document["who"],
        document["reason"],
    ]


class Limit(Subcommand):
    name = "limit"
    help = "Set or list limits of a Type or a lane over all daemons, and weights of Types."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_target(parser, _LIMIT.levels)
        add_parameters(parser, _LIMIT.parameters)
        add = parser.add_argument
        add("--default", action="store_true", help="use the limits that the code declares again")
        add("--log", action="store_true", help="instead, list who has set limits")

    def run(self, options: dict[str, Any]) -> Document:
        type, collection = target = options["type"], options["collection"]
        values, default = given_values(_LIMIT.parameters, options), options["default"]
        if options["log"]:
            if values or default:
                raise CommandError("With --log, only --type and --collection can be given.")
            return _log_document(type, collection, "limits")
        if type is None and (values or default or collection):
            raise CommandError("Which Type? Give --type.")
        if values and default:
            raise CommandError("Give either limits or --default.")
        if default:
            outcome = {"told": _UNLIMIT.perform(target, actor()).told}
        elif values:
            _LIMIT.perform(target, actor(), **values)
            outcome = {}
        elif collection is not None:
            raise CommandError("Give a limit, or --default.")
        else:
            return {"of": type} | _limits_document(type)
        return outcome | _limits_document()

    def text(self, document: Document) -> str:
        if "log" in document:
            return _format_log(document)
        return _add_outcome(document, _format_limits(document))


class Limits(Subcommand):
    name = "limits"
    help = "The limits and weights of Types and lanes, and who has set them."

    def run(self, options: dict[str, Any]) -> Document:
        return _limits_document()

    def text(self, document: Document) -> str:
        return _format_limits(document)


def _limits_document(type: str | None = None) -> Document:
    return {"limits": [documents.limit(row) for row in queue.limits(type)]}


def _format_limits(document: Document) -> str:
    if not document["limits"]:
        type = document.get("of")
        return "Nothing is limited." if type is None else f"Nothing of {type} is limited."
    headings = ["where", "running", "of each", "rate", "burst", "weight"]
    headings += ["waiting", "waited", "set by"]
    return present.table(headings, [_limit_row(row) for row in document["limits"]])


def _limit_row(document: Document) -> list[object]:
    return [
        _describe_target(document),
        "no limit" if document["max_running"] is None else document["max_running"],
        document["max_running_per_collection"] or "",
        document["rate"] or "no limit",
        document["burst"] if document["rate"] else "",
        f"{document['weight']:g}",
        document["max_waiting"] or "",
        text.duration(document["max_wait"]),
        document["who"] if document["is_set"] else "the code",
    ]


# What gates and limits have in common: their targets, and who has set them.


def _describe_target(document: Document) -> str:
    """Return the target in the document of a gate or a limit, in words."""
    if document["type"] is None:
        return "everything"
    if document["collection"] is None:
        return document["type"]
    return f"{document['type']} / {document['collection']!r}"


def _add_outcome(document: Document, settings: str) -> str:
    """Return the text ``settings``, below the operation's outcome if the document has one."""
    if "told" not in document:
        return settings
    return f"{present.printable(document['told'])}\n{settings}"


def _log_document(type: str | None, collection: str | None, kind: str) -> Document:
    records: list[Any] = queue.scope_log(type, collection, kind=kind, limit=_MAX_RECORDS)
    return {
        "log": [
            dict(zip(("type", "collection"), record.scope, strict=True))
            | {name: getattr(record, name) for name in ("time", "who", "message")}
            for record in records
        ]
    }


def _format_log(document: Document) -> str:
    if not document["log"]:
        return "Nobody has set any."
    rows = [
        [text.moment(row["time"]), _describe_target(row), row["who"], row["message"]]
        for row in document["log"]
    ]
    return present.table(["time", "where", "by", "what"], rows)


class Downstreams(Subcommand):
    name = "downstreams"
    help = "The services that handlers call: the state of each, and the rate of calls."

    def run(self, options: dict[str, Any]) -> Document:
        return {
            "downstreams": [downstreams.downstream_document(row) for row in queue.downstreams()]
        }

    def text(self, document: Document) -> str:
        if not document["downstreams"]:
            return "No Type names a downstream."
        headings = ["downstream", "state", "rate", "not before", "since", "by", "types"]
        return present.table(headings, [_downstream_row(row) for row in document["downstreams"]])


def _downstream_row(document: Document) -> list[object]:
    return [
        document["name"],
        document["state"],
        f"{document['per_second']:.3g}/s" if document["state"] == "throttled" else "",
        text.moment(document["not_before"]) if document["not_before"] else "",
        text.moment(document["since"]),
        document["who"],
        ", ".join(document["types"]),
    ]


class Downstream(Subcommand):
    name = "downstream"
    help = "One downstream: call a verb on it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        words = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        for operation in OPERATIONS[DOWNSTREAM].values():
            added = add_operation(words, operation.name, operation.explanation)
            added.add_argument("downstream", type=arguments.text, help="its name")
            add_parameters(added, operation.parameters)

    def run(self, options: dict[str, Any]) -> Document:
        operation = OPERATIONS[DOWNSTREAM][options["verb"]]
        row = queue.get_downstream(options["downstream"])
        values = given_values(operation.parameters, options)
        if operation.name == "bound" and not values.keys() - {"expected"}:
            raise CommandError("Nothing to change. Give --ceiling, --floor or both.")
        outcome = operation.perform(row, actor(), **values)
        return {"outcome": outcome.told} | downstreams.downstream_document(outcome.value)

    def text(self, document: Document) -> str:
        return present.printable(document["outcome"])
