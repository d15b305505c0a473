"""``redrive``, ``cancel`` and ``delete``: verbs on Instances by uuid, or on a selection."""

import sys
from collections import Counter

from django.core.management.base import CommandError
from django.db import transaction

from .. import queue
from ..conf import settings
from ..exceptions import IllegalTransition, UnknownInstance
from ..reports import overview
from ..states import Reason, State
from ..store.values import CANCEL
from ..verbs.instances import CHUNK
from ..verbs.registry import internal_types
from . import arguments
from .base import Subcommand, actor, find_all, instances
from .failures.errors import text_of
from .failures.matching import Matching


class Selecting(Subcommand):
    """A verb on Instances by uuid, all or none of them, or on a selection, after a question.

    ``act`` calls the verb and returns the document, which has a number for each name in
    ``counts``. ``doing`` and ``done`` are forms of the verb for messages, ``ways`` names the
    options that select.
    """

    doing = done = ways = ""
    # The Matching of the verb: an Instance carries it out on all that match, at a rate.
    matching = None
    counts = ()

    def add_arguments(self, parser):
        add = parser.add_argument
        add(
            "uuid",
            nargs="*",
            type=arguments.uuid_prefix,
            help=f"Instances by uuid; if one is refused, none is {self.done}",
        )
        self.add_ways(add)
        add("--yes", action="store_true", help=f"do not ask before {self.doing} a selection")
        self.matching.add(parser)

    def add_ways(self, add):
        """Add the options that select."""
        raise NotImplementedError

    def is_selecting(self, options):
        """Return whether an option that selects was given."""
        raise NotImplementedError

    def selection(self, options):
        """Return the QuerySet of the selected Instances."""
        raise NotImplementedError

    def act(self, chosen):
        """Call the verb on Instances and return the counts."""
        raise NotImplementedError

    def acted(self, rows):
        """Return the counts from the present states of rows, after ``act`` refused one of them."""
        raise NotImplementedError

    def run(self, options):
        if self.matching is not None and self.matching.is_meant(options):
            return self.matching.run(options)
        is_selecting = self.is_selecting(options)
        if bool(options["uuid"]) == is_selecting:
            raise CommandError(f"Which ones? Give either uuids, or a selection by {self.ways}.")
        if not is_selecting:
            chosen = find_all(options["uuid"])
            with transaction.atomic(using=settings.DATABASE):
                return self.act(chosen)
        selected = self.selection(options)
        # What comes while the question stands is not selected.
        end = selected.order_by("pk").values_list("pk", flat=True).last() or 0
        selected = selected.filter(pk__lte=end)
        self.confirm(selected.count(), options)
        counts = Counter()
        for chunk in _chunks(selected):
            counts.update(self._act_on(chunk))
        return {name: counts[name] for name in self.counts}

    def confirm(self, count, options):
        """Show the count, and ask before anything is written. Raises CommandError without a yes."""
        self.say(f"Instances selected: {count}")
        if options["yes"] or not count:
            return
        if options["json"] or sys.stdin is None or not sys.stdin.isatty():
            raise CommandError(f"Nothing was {self.done}: a selection needs --yes.")
        self.say(f"{self.name.capitalize()} them? [y/N] ")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError(f"Nothing was {self.done}.")

    def _act_on(self, chunk):
        try:
            return self.act(chunk)
        except (IllegalTransition, UnknownInstance):
            # Another user has changed or removed one of them. The verb was applied to the others.
            return self.acted(instances().filter(pk__in=[instance.pk for instance in chunk]))


def _chunks(selected):
    """Yield lists of Instances, oldest first."""
    last = 0
    while chunk := list(selected.filter(pk__gt=last).order_by("pk")[:CHUNK]):
        last = chunk[-1].pk
        yield chunk


def _of(rows, type):
    """Select the Instances of a Type; without one, those of all Types but ATP's own."""
    if type is None:
        return rows.exclude(type__identifier__in=internal_types())
    return rows.filter(type=queue.get_type(type))


class Redrive(Selecting):
    name = "redrive"
    doing, done = "redriving", "redriven"
    ways = "--type, --reason or --all"
    matching = Matching("redrive", shared=("type", "reason", "all"))
    counts = ("redriven",)
    help = "Send FAILED Instances back to the queue; their retries and restarts count anew."

    def add_ways(self, add):
        add("--type", type=arguments.text, help="the dead letters of this Type")
        add("--reason", type=arguments.reason, help="Instances that FAILED for this reason")
        add("--all", action="store_true", help="the dead letters of all Types")

    def is_selecting(self, options):
        return options["all"] or options["type"] is not None or options["reason"] is not None

    def selection(self, options):
        """Return the dead letters; with ``--reason`` all Instances that FAILED for it."""
        rows = instances()
        rows = rows.failed(options["reason"]) if options["reason"] else rows.dead_letter()
        return _of(rows.filter(finished__lte=overview.now()), options["type"])

    def act(self, chosen):
        queue.redrive(*chosen, by=actor())
        return {"redriven": len(chosen)}

    def acted(self, rows):
        return {"redriven": rows.exclude(state=State.FAILED).count()}

    def text(self, document):
        if "outcome" in document:
            return text_of(document)
        return f"Instances redriven: {document['redriven']}"


class Cancel(Selecting):
    name = "cancel"
    doing, done = "cancelling", "cancelled"
    ways = "--type, --collection or both"
    matching = Matching("cancel", shared=("type", "collection"))
    counts = ("cancelled", "asked")
    help = "End live Instances: waiting ones at once, others by asking the daemons that hold them."

    def add_ways(self, add):
        add("--type", type=arguments.text, help="waiting Instances of this Type")
        add("--collection", type=arguments.text, help="waiting Instances of this collection")

    def is_selecting(self, options):
        return options["type"] is not None or options["collection"] is not None

    def selection(self, options):
        collection = options["collection"]
        rows = instances().selected(state=State.ACCEPTED, collection=collection or "")
        rows = _of(rows, options["type"])
        # An empty text is for those without a collection.
        return rows.filter(collection="") if collection == "" else rows

    def act(self, chosen):
        asked = queue.cancel(*chosen, by=actor())
        return {"cancelled": len(chosen) - len(asked), "asked": len(asked)}

    def acted(self, rows):
        return {
            "cancelled": rows.failed(Reason.CANCELLED).count(),
            "asked": rows.filter(task__request=CANCEL).count(),
        }

    def text(self, document):
        if "outcome" in document:
            return text_of(document)
        told = f"Instances cancelled: {document['cancelled']}"
        if document["asked"]:
            told += f"\nInstances that their daemons are asked to end: {document['asked']}"
        return told


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
