"""The subcommands ``tailers``, which lists the tailers, and ``tailer``, which operates on one."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from .. import queue, text
from ..operations.table import OPERATIONS, TAILER
from ..reports import overview
from ..reports.documents import Document, log_record
from ..shell import arguments, present
from ..shell.base import Subcommand, actor
from ..shell.operations import add_operation, add_parameters, given_values
from .operations import MOST_CURSORS, cursor, document, documents, log


class Tailers(Subcommand):
    name = "tailers"
    help = "The sources that tailers read: what came out of each, and how much is left."

    def run(self, options: dict[str, Any]) -> Document:
        return {"time": overview.now(), "tailers": documents(queue.tailers())}

    def text(self, document: Document) -> str:
        if not document["tailers"]:
            return "No tailer has read its source."
        headings = ["tailer", "source", "state", "read", "records", "enqueued", "rejected"]
        headings += ["behind", "lost", "skipped"]
        rows = [
            [
                each["identifier"],
                text.shorten(each["source"], 60),
                each["state"],
                text.age(each["read_at"], document["time"]),
                *(each[name] for name in ("records", "enqueued", "rejected")),
                "" if each["behind"] is None else each["behind"],
                _format_lost(each),
                each["skipped"],
            ]
            for each in document["tailers"]
        ]
        return present.table(headings, rows)


class Tailer(Subcommand):
    name = "tailer"
    help = "One tailer: list its cursors, or call a verb on it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        words = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        show = add_operation(words, "show", "Its cursors, what it lost, and what it cannot read.")
        show.add_argument("tailer", type=arguments.text, help="its identifier")
        for operation in OPERATIONS[TAILER].values():
            added = add_operation(words, operation.name, operation.explanation)
            added.add_argument("tailer", type=arguments.text, help="its identifier")
            add_parameters(added, operation.parameters)

    def run(self, options: dict[str, Any]) -> Document:
        row = queue.get_tailer(options["tailer"])
        done: Document = {}
        if options["verb"] != "show":
            operation = OPERATIONS[TAILER][options["verb"]]
            outcome = operation.perform(row, actor(), **given_values(operation.parameters, options))
            done = {"outcome": outcome.told}
        cursors = queue.cursors(row.identifier, limit=MOST_CURSORS)
        return done | {
            **document(row),
            "cursors": [cursor(each) for each in cursors],
            "log": [log_record(each) for each in log(row)],
        }

    def text(self, document: Document) -> str:
        parts = [_format_cursors(document["cursors"])]
        if "outcome" in document:
            return "\n".join([document["outcome"], *parts])
        if document["why"]:
            parts.insert(0, f"{document['state']}: {present.printable(document['why'])}")
        if document["notes"]:
            notes = (f"{present.INDENT}{present.printable(note)}" for note in document["notes"])
            parts.append("\n".join(["left in the source", *notes]))
        if document["log"]:
            records = map(_format_record, document["log"])
            parts.append("\n".join(["log, the newest first", *records]))
        return "\n\n".join(parts)


def _format_lost(document: Document) -> str:
    """Return how many records were lost; "?" if records were lost but their number is unknown."""
    return "?" if document["gaps"] and not document["lost"] else str(document["lost"])


def _format_record(record: Document) -> str:
    who = f" [{present.printable(record['who'])}]" if record["who"] else ""
    message = present.printable(record["message"])
    return f"{present.INDENT}{text.moment(record['time'])}  {message}{who}"


def _format_cursors(cursors: Sequence[Document]) -> str:
    if not cursors:
        return "It has no cursors."
    rows = [
        [
            text.shorten(each["shard"], 60),
            text.shorten(each["position"], 40),
            text.moment(each["moved"]),
            text.moment(each["missing_since"]) if each["missing_since"] else "",
        ]
        for each in cursors
    ]
    return present.table(["shard", "position", "moved", "missing since"], rows)
