"""``tailers`` and ``seek``."""

from typing import Any

from django.core.management.base import CommandError

from ... import queue
from ...models import Cursor, Tailer
from ...reports import overview
from ...words import wording
from .. import arguments, present
from ..base import Subcommand, actor

FIELDS = ("source", "read_at", "records", "enqueued", "rejected", "behind")
CURSOR = ("shard", "position", "moved", "missing_since")
SHOWN = 100


class Tailers(Subcommand):
    name = "tailers"
    help = "The sources that tailers read: how far, how much is left; or the cursors of one."

    def add_arguments(self, parser):
        help_ = "list the cursors of this one"
        parser.add_argument("tailer", nargs="?", type=arguments.text, help=help_)

    def run(self, options):
        name = options["tailer"]
        if name is None:
            return {"time": overview.now(), "tailers": [_document(row) for row in queue.tailers()]}
        found = queue.cursors(name, limit=SHOWN)
        return _document(queue.get_tailer(name)) | {"cursors": [_cursor(row) for row in found]}

    def text(self, document):
        if "cursors" in document:
            return _cursors_text(document["cursors"])
        if not document["tailers"]:
            return "No tailer has read its source."
        headings = ["tailer", "source", "read", "records", "enqueued", "rejected", "behind"]
        rows = [
            [
                each["identifier"],
                wording.shorten(each["source"], 60),
                wording.age(each["read_at"], document["time"]),
                *(each[name] for name in ("records", "enqueued", "rejected")),
                "" if each["behind"] is None else each["behind"],
            ]
            for each in document["tailers"]
        ]
        return present.table(headings, rows)


class Seek(Subcommand):
    name = "seek"
    help = "Have a tailer go on from another position of a shard, or read a file again."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("tailer", type=arguments.text, help="its identifier")
        add("--shard", type=arguments.text, required=True, help="as the list of cursors names it")
        add("--position", type=arguments.text, help="go on behind this position")
        add("--forget", action="store_true", help="instead: the source decides where it begins")

    def run(self, options):
        position = options["position"]
        if (position is None) != options["forget"]:
            raise CommandError("Give --position or --forget.")
        row = queue.seek(options["tailer"], shard=options["shard"], position=position, by=actor())
        found = queue.cursors(row.identifier, limit=SHOWN)
        return _document(row) | {"cursors": [_cursor(each) for each in found]}

    def text(self, document):
        return f"The cursor is set.\n{_cursors_text(document['cursors'])}"


def _document(row: Tailer) -> dict[str, Any]:
    return {"identifier": row.identifier} | {name: getattr(row, name) for name in FIELDS}


def _cursor(row: Cursor) -> dict[str, Any]:
    return {name: getattr(row, name) for name in CURSOR}


def _cursors_text(cursors: list[dict[str, Any]]) -> str:
    if not cursors:
        return "It has no cursors."
    rows = [
        [
            wording.shorten(each["shard"], 60),
            wording.shorten(each["position"], 40),
            wording.moment(each["moved"]),
            wording.moment(each["missing_since"]) if each["missing_since"] else "",
        ]
        for each in cursors
    ]
    return present.table(["shard", "position", "moved", "missing since"], rows)
