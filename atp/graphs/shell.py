"""The subcommands ``graphs``, which lists graphs, and ``graph``, which shows or changes one."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from .. import text
from ..exceptions import UnknownGraph
from ..operations.table import GRAPH, OPERATIONS
from ..reports import overview, paging
from ..reports.documents import Document
from ..shell import arguments, present
from ..shell.base import Subcommand, actor
from ..shell.operations import add_operation, add_parameters, given_values
from . import models, reports
from .drawing import Entry, mermaid, outline


class Graphs(Subcommand):
    name = "graphs"
    help = "Graphs, newest first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--name", type=arguments.text, help="only graphs with this name")
        add("--live", action="store_true", help="only graphs that have not ended")
        add("--limit", type=arguments.positive, default=20, help="at most this many (default: 20)")

    def run(self, options: dict[str, Any]) -> Document:
        rows = reports.graphs()
        if options["name"] is not None:
            rows = rows.filter(name=options["name"])
        if options["live"]:
            rows = rows.filter(ended__isnull=True)
        page = paging.page(rows, ("-id",), size=options["limit"])
        return {"time": overview.now(), "graphs": reports.documents(page.rows)}

    def text(self, document: Document) -> str:
        if not document["graphs"]:
            return "There are no such graphs."
        headings = ["uuid", "name", "state", "nodes", "by state", "age"]
        now = document["time"]
        return present.table(headings, [_row(each, now) for each in document["graphs"]])


def _row(document: Document, now: datetime) -> list[object]:
    return [
        document["uuid"],
        text.shorten(document["name"], 40),
        document["state"],
        document["nodes"],
        "" if document["is_more"] else _format_counts(document["counts"]),
        text.age(document["created"], now),
    ]


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


class Graph(Subcommand):
    name = "graph"
    help = "Show the nodes of a graph, or perform an operation on a graph."

    def add_arguments(self, parser: ArgumentParser) -> None:
        words = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        show = add_operation(
            words, "show", "Its nodes, each indented below the last node that it waits for."
        )
        _add_uuid(show)
        show.add_argument(
            "--mermaid", action="store_true", help="print text for Mermaid, and nothing else"
        )
        for operation in OPERATIONS[GRAPH].values():
            added = add_operation(words, operation.name, operation.explanation)
            _add_uuid(added)
            add_parameters(added, operation.parameters)

    def run(self, options: dict[str, Any]) -> Document | None:
        graph = _find_graph(options["uuid"])
        if options["verb"] == "show":
            return self._show(graph, options)
        operation = OPERATIONS[GRAPH][options["verb"]]
        outcome = operation.perform(graph, actor(), **given_values(operation.parameters, options))
        return {"outcome": outcome.told}

    def _show(self, graph: models.Graph, options: Mapping[str, Any]) -> Document | None:
        """Return the document of a graph; with ``--mermaid``, print the picture and return None."""
        drawable = reports.drawable(graph)
        if options["mermaid"]:
            if options["json"]:
                raise CommandError("--mermaid prints text, so it cannot be used with --json.")
            if drawable is None:
                raise CommandError(reports.TOO_LARGE)
            self.command.stdout.write(mermaid(*drawable), ending="")
            return None
        if drawable is None:
            return reports.document(graph, reports.counts_of(graph)) | {"boxes": None}
        vertices, links = drawable
        boxes = [_entry_document(each) for each in outline(vertices, links)]
        return reports.document(graph, reports.counts_in(vertices)) | {"boxes": boxes}

    def text(self, document: Document) -> str:
        if "outcome" in document:
            return present.printable(document["outcome"])
        facts = [(name, document[name]) for name in ("uuid", "name", "state", "request")]
        by = f" by {document['created_by']}" if document["created_by"] else ""
        facts += [
            ("nodes", f"{document['nodes']}: {_format_counts(document['counts'])}".rstrip(": ")),
            ("created", f"{text.moment(document['created'])}{by}"),
            ("ended", text.moment(document["ended"])),
            ("undone", text.moment(document["undone"])),
        ]
        boxes = document["boxes"]
        listed = reports.TOO_LARGE if boxes is None else _format_boxes(boxes)
        return f"{present.pairs(facts)}\n\n{listed}"


def _add_uuid(parser: ArgumentParser) -> None:
    parser.add_argument("uuid", type=arguments.uuid_prefix, help="its uuid, or its first digits")


def _find_graph(prefix: str) -> models.Graph:
    """Return the graph whose uuid starts with ``prefix``.

    Raises UnknownGraph if there is no such graph, and CommandError if there are several.
    """
    found = list(reports.graphs_by_prefix(prefix)[:2])
    if not found:
        raise UnknownGraph(f"There is no graph {prefix}.")
    if len(found) > 1:
        raise CommandError(
            f"More than one uuid begins with {prefix}, for example {found[0].uuid}. Give more "
            "digits."
        )
    return found[0]


def _entry_document(entry: Entry) -> Document:
    box = entry.box
    return {
        "label": box.label,
        "depth": entry.depth,
        "type": box.type,
        "nodes": box.count,
        "told": box.told,
        "after": list(entry.after),
        "instance": box.vertex.uuid if box.vertex else None,
    }


def _format_boxes(boxes: Sequence[Document]) -> str:
    rows = []
    for box in boxes:
        after = box["after"]
        others = f" and {len(after) - 1} other{'s' if len(after) > 2 else ''}" if after[1:] else ""
        rows.append(
            [
                f"{present.INDENT * box['depth']}{text.shorten(box['label'], 60)}",
                box["type"] if box["instance"] else "",
                box["told"],
                f"after {text.shorten(after[0], 40)}{others}" if after else "",
            ]
        )
    return present.table(["node", "type", "state", ""], rows)
