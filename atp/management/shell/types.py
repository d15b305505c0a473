"""``types``: the Types, and which of them this process has a handler for."""

from ...conf import settings
from ...models import Type
from ...registry import registry
from . import present
from .base import Subcommand

FIELDS = (
    "identifier",
    "handler",
    "timeout",
    "max_restarts",
    "max_retries",
    "backoff",
    "backoff_max",
    "retention",
    "serializer",
)


class Types(Subcommand):
    name = "types"
    help = "The registered Types, their parameters, and whether this process has their handlers."

    def run(self, options):
        rows = list(Type.objects.using(settings.DATABASE))
        found = [
            {
                **_parameters(row),
                "registered": row.registered,
                "declared": row.identifier in registry,
            }
            for row in rows
        ]
        missing = {task_type.identifier for task_type in registry} - {r.identifier for r in rows}
        found += [
            {**_parameters(registry.get(name).registration()), "registered": None, "declared": True}
            for name in missing
        ]
        return {"types": sorted(found, key=lambda document: document["identifier"])}

    def text(self, document):
        if not document["types"]:
            return "No Type is registered, and none is declared in a tasks.py."
        headings = ["type", "timeout", "restarts", "retries", "backoff", "retention", "handler"]
        return present.table(headings, [_row(document) for document in document["types"]])


def _parameters(row):
    return {name: getattr(row, name) for name in FIELDS}


def _row(document):
    return [
        document["identifier"],
        present.duration(document["timeout"]) or "none",
        document["max_restarts"],
        document["max_retries"],
        f"{present.duration(document['backoff'])} to {present.duration(document['backoff_max'])}",
        present.duration(document["retention"]) or "for ever",
        f"{document['handler']}{_note(document)}",
    ]


def _note(document):
    if not document["declared"]:
        return " (not in this process)"
    return "" if document["registered"] else " (not registered yet)"
