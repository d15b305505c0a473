"""``types``: the Types, and which of them this process has a handler for."""

from ... import documents, waiting, wording
from . import present
from .base import Subcommand

HEADINGS = ("type", "timeout", "restarts", "retries", "backoff", "retention", "memory", "handler")


class Types(Subcommand):
    name = "types"
    help = "The registered Types, their parameters, and whether this process has their handlers."

    def run(self, options):
        controls = waiting.controls()
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
    notes += document["controls"]
    return f" ({'; '.join(notes)})" if notes else ""
