"""``delete``: remove Instances by uuid, or all dead letters that match."""

from django.core.management.base import CommandError

from ... import queue
from .. import arguments
from ..base import Subcommand, actor, find_all
from .errors import text_of
from .matching import Matching

_DELETE = Matching("delete")


class Delete(Subcommand):
    name = "delete"
    help = "Remove ended Instances with all their data; with --cancel, cancel live ones first."

    def add_arguments(self, parser):
        add = parser.add_argument
        add("uuid", nargs="*", type=arguments.whole_uuid, help="whole uuids")
        add("--cancel", action="store_true", help="first cancel the Instances that have not ended")
        add(
            "--wait",
            type=arguments.seconds,
            default=15.0,
            metavar="SECONDS",
            help="with --cancel: how long to wait for those that a daemon holds (%(default)g)",
        )
        add("--yes", action="store_true", help="delete all that match, for good")
        _DELETE.add(parser)

    def run(self, options):
        if _DELETE.is_meant(options):
            if options["cancel"]:
                raise CommandError("--cancel is for Instances by uuid: dead letters have ended.")
            return _DELETE.run(options)
        if not options["uuid"]:
            raise CommandError("Which ones? Give either uuids, or options that select.")
        chosen = find_all(options["uuid"])
        how = {"cancel": True, "wait": options["wait"]} if options["cancel"] else {}
        removed = queue.delete(*chosen, by=actor(), **how)
        return {"asked": len(chosen), "removed": removed}

    def text(self, document):
        if "outcome" in document:
            return text_of(document)
        return f"Instances removed: {document['removed']}"

    def check(self, document, options):
        if "outcome" not in document and document["removed"] < document["asked"]:
            raise CommandError(
                f"Instances not removed: {document['asked'] - document['removed']}. Their files "
                "could not be removed, they have been redriven meanwhile, or a daemon has not "
                "ended them yet."
            )
