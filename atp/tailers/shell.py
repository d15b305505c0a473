"""``tailers`` and ``tailer``."""

from typing import Any

from .. import queue, text
from ..operations.table import TAILER, VERBS
from ..reports import overview
from ..reports.documents import log_record
from ..shell import arguments, present
from ..shell.base import Subcommand, actor
from ..shell.operations import add_parameters, add_word, given
from .operations import SHOWN, cursor, document, documents, log


class Tailers(Subcommand):
    name = "tailers"
    help = "The sources that tailers read: what came out of each, and how much is left."

    def run(self, options):
        return {"time": overview.now(), "tailers": documents(queue.tailers())}

    def text(self, document):
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
                _lost(each),
                each["skipped"],
            ]
            for each in document["tailers"]
        ]
        return present.table(headings, rows)


class Tailer(Subcommand):
    name = "tailer"
    help = "One tailer: list its cursors, or call a verb on it."

    def add_arguments(self, parser):
        words = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        shown = add_word(words, "show", "Its cursors, what it lost, and what it cannot read.")
        shown.add_argument("tailer", type=arguments.text, help="its identifier")
        for verb in VERBS[TAILER].values():
            added = add_word(words, verb.name, verb.explanation)
            added.add_argument("tailer", type=arguments.text, help="its identifier")
            add_parameters(added, verb.parameters)

    def run(self, options):
        row, done = queue.get_tailer(options["tailer"]), {}
        if options["verb"] != "show":
            verb = VERBS[TAILER][options["verb"]]
            outcome = verb.perform(row, actor(), **given(verb.parameters, options))
            done = {"outcome": outcome.told}
        found = queue.cursors(row.identifier, limit=SHOWN)
        return done | {
            **document(row),
            "cursors": [cursor(each) for each in found],
            "log": [log_record(each) for each in log(row)],
        }

    def text(self, document):
        parts = [_cursors(document["cursors"])]
        if "outcome" in document:
            return "\n".join([document["outcome"], *parts])
        if document["why"]:
            parts.insert(0, f"{document['state']}: {present.printable(document['why'])}")
        if document["notes"]:
            notes = (f"{present.INDENT}{present.printable(note)}" for note in document["notes"])
            parts.append("\n".join(["left in the source", *notes]))
        if document["log"]:
            parts.append("\n".join(["log, the newest first", *map(_logged, document["log"])]))
        return "\n\n".join(parts)


def _lost(document: dict[str, Any]) -> str:
    """Return how many records were lost; "?" if none of the gaps has told its number."""
    return "?" if document["gaps"] and not document["lost"] else str(document["lost"])


def _logged(record: dict[str, Any]) -> str:
    who = f" [{present.printable(record['who'])}]" if record["who"] else ""
    message = present.printable(record["message"])
    return f"{present.INDENT}{text.moment(record['time'])}  {message}{who}"


def _cursors(cursors: list[dict[str, Any]]) -> str:
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
