"""``types`` and ``type``: list the Types; show the inputs and outputs of a single one."""

from .. import contracts
from ..exceptions import UnknownType
from ..reports import documents
from ..reports.explaining import notes
from ..verbs.registry import registry
from ..words import wording
from ..words.hints import did_you_mean
from . import arguments, present
from .base import Subcommand

HEADINGS = ("type", "timeout", "restarts", "retries", "backoff", "retention", "memory", "handler")
OWNERSHIP = ("downstream", "owner", "runbook")


class Types(Subcommand):
    name = "types"
    help = "The registered Types, their parameters, and whether this process has their handlers."

    def run(self, options):
        controls = notes.controls()
        return {
            "types": [
                document | {"controls": controls[document["identifier"]]}
                for document in documents.types()
            ]
        }

    def text(self, document):
        if not document["types"]:
            return "No Type is registered, and none is declared in a tasks.py."
        return present.table(HEADINGS, [_row(document) for document in document["types"]])


def _row(document):
    return [
        document["identifier"],
        wording.duration(document["timeout"]) or "none",
        document["max_restarts"],
        document["max_retries"],
        f"{wording.duration(document['backoff'])} to {wording.duration(document['backoff_max'])}",
        wording.duration(document["retention"]) or "for ever",
        wording.size(document["max_memory"]) if document["max_memory"] else "no limit",
        f"{document['handler']}{_note(document)}",
    ]


def _note(document):
    notes = []
    if not document["declared"]:
        notes.append("not in this process")
    elif not document["registered"]:
        notes.append("not registered yet")
    if document["late_writes"]:
        notes.append(f"late writes: {document['late_writes']}")
    for on in ("on_finished", "on_failed"):
        notes += [f"{on}: {hook}" for hook in document[on]]
    notes += [f"{name}: {document[name]}" for name in OWNERSHIP if document[name]]
    notes += document["controls"]
    return f" ({'; '.join(notes)})" if notes else ""


class OneType(Subcommand):
    name = "type"
    help = "One Type: what its handler takes and returns."

    def add_arguments(self, parser):
        parser.add_argument("type", type=arguments.text, help="the Type")

    def run(self, options):
        identifier = options["type"]
        types = {document["identifier"]: document for document in documents.types()}
        if identifier not in types:
            hint = did_you_mean(identifier, types)
            raise UnknownType(f"There is no Type {identifier!r}.{hint}")
        document = types[identifier] | contracts.document_of(
            registry.get(identifier) if identifier in registry else None
        )
        return document | {"parameters": [], "notes": []} | _described(document)

    def text(self, document):
        told = [present.printable(f"{document['identifier']}  {document['handler']}")]
        told += [present.printable(f"{n}: {document[n]}") for n in OWNERSHIP if document[n]]
        if document["parameters"]:
            rows = [
                [
                    each["name"],
                    each["type"],
                    "required" if each["is_required"] else each["default"] or "",
                    each["description"],
                ]
                for each in document["parameters"]
            ]
            headings = ("argument", "type", "default", "description")
            told.append(present.table(headings, rows))
        return "\n".join([*told, *map(present.printable, document["notes"])])


def _described(document):
    identifier = document["identifier"]
    if not document["declared"]:
        return {"notes": ["This process has no handler for it, so its inputs are unknown."]}
    declared = registry.get(identifier)
    contract = contracts.schema_of(declared)
    if contract is None:
        is_missing = not contracts.is_available()
        text = contracts.NEEDED if is_missing else "It stores pickles, which have no contract."
        return {"notes": [text]}
    found = contracts.described(contract, declared.signature)
    returned = contracts.words_of(contract.outputs, contract.defs)
    hints = [
        f"{name}: any JSON, as its annotation has no schema ({reason})"
        for name, reason in contract.hints.items()
    ]
    return {
        "parameters": [vars(each) for each in found],
        "notes": [f"It returns {returned}.", *hints],
    }
