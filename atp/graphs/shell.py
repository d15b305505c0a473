"""``graphs`` and ``graph``: list the graphs; show a single one, or call a verb on it."""

from django.core.management.base import CommandError

from .. import text
from ..exceptions import UnknownGraph
from ..operations.table import GRAPH, VERBS
from ..reports import overview, paging
from ..shell import arguments, present
from ..shell.base import Subcommand, actor
from ..shell.operations import add_parameters, add_word, given
from . import reports
from .drawing import mermaid, outline


class Graphs(Subcommand):
    name = "graphs"
    help = "Graphs, newest first."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("--name", type=arguments.text, help="of this name")
        add("--live", action="store_true", help="that have not ended")
        add("--limit", type=arguments.positive, default=20, help="at most so many (default: 20)")

    def run(self, options):
        rows = reports.graphs()
        if options["name"] is not None:
            rows = rows.filter(name=options["name"])
        if options["live"]:
            rows = rows.filter(ended__isnull=True)
        page = paging.page(rows, ("-id",), size=options["limit"])
        return {"time": overview.now(), "graphs": reports.documents(page.rows)}

    def text(self, document):
        if not document["graphs"]:
            return "There are no such graphs."
        headings = ["uuid", "name", "state", "nodes", "by state", "age"]
        now = document["time"]
        return present.table(headings, [_row(each, now) for each in document["graphs"]])


def _row(document, now):
    return [
        document["uuid"],
        text.shorten(document["name"], 40),
        document["state"],
        document["nodes"],
        "" if document["is_more"] else _by_state(document["counts"]),
        text.age(document["created"], now),
    ]


def _by_state(counts):
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


class Graph(Subcommand):
    name = "graph"
    help = "One graph: show its nodes, or call a verb on it."

    def add_arguments(self, parser):
        words = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        show = add_word(
            words, "show", "Its nodes, each indented below the last node that it waits for."
        )
        _add_uuid(show)
        told = "print text for Mermaid, and nothing else"
        show.add_argument("--mermaid", action="store_true", help=told)
        for verb in VERBS[GRAPH].values():
            added = add_word(words, verb.name, verb.explanation)
            _add_uuid(added)
            add_parameters(added, verb.parameters)

    def run(self, options):
        graph = _found(options["uuid"])
        if options["verb"] == "show":
            return self._shown(graph, options)
        verb = VERBS[GRAPH][options["verb"]]
        return {"outcome": verb.perform(graph, actor(), **given(verb.parameters, options)).told}

    def _shown(self, graph, options):
        found = reports.drawable(graph)
        if options["mermaid"]:
            if options["json"]:
                raise CommandError("--mermaid prints text: give it without --json.")
            if found is None:
                raise CommandError(reports.TOO_LARGE)
            self.command.stdout.write(mermaid(*found), ending="")
            return None
        counts = reports.counts_of(graph) if found is None else reports.counts_in(found[0])
        boxes = None if found is None else [_entry(each) for each in outline(*found)]
        return reports.document(graph, counts) | {"boxes": boxes}

    def text(self, document):
        if "outcome" in document:
            return present.printable(document["outcome"])
        facts = [(name, document[name]) for name in ("uuid", "name", "state", "request")]
        by = f" by {document['created_by']}" if document["created_by"] else ""
        facts += [
            ("nodes", f"{document['nodes']}: {_by_state(document['counts'])}".rstrip(": ")),
            ("created", f"{text.moment(document['created'])}{by}"),
            ("ended", text.moment(document["ended"])),
            ("undone", text.moment(document["undone"])),
        ]
        boxes = document["boxes"]
        return f"{present.pairs(facts)}\n\n{reports.TOO_LARGE if boxes is None else _list(boxes)}"


def _add_uuid(parser):
    parser.add_argument("uuid", type=arguments.uuid_prefix, help="its uuid, or its first digits")


def _found(prefix):
    """Return the graph whose uuid alone starts with ``prefix``. Raises UnknownGraph."""
    found = list(reports.named(prefix)[:2])
    if not found:
        raise UnknownGraph(f"There is no graph {prefix}.")
    if len(found) > 1:
        raise CommandError(
            f"{prefix} is the beginning of more than one uuid, of {found[0].uuid} for example: "
            "give more digits."
        )
    return found[0]


def _entry(entry):
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


def _list(boxes):
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
