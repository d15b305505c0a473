"""``redrive`` and ``cancel``: verbs on Instances by uuid, or on a selection."""

import sys
from collections import Counter

from django.core.management.base import CommandError
from django.db import transaction
from django.db.models import Count

from .. import queue
from ..conf import settings
from ..exceptions import IllegalTransition, UnknownInstance
from ..reports import overview
from ..states import Reason, State
from ..store.values import CANCEL
from ..verbs.instances import CHUNK
from ..verbs.matching.plan import Judge
from ..verbs.matching.selection import REDRIVE, checked_pattern, types_of
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
        # A dry run is one of that which the other options mean.
        if self.matching.is_meant(options, but=("dry_run",)):
            return self.matching.run(options)
        is_selecting = self.is_selecting(options)
        if bool(options["uuid"]) == is_selecting:
            raise CommandError(f"Which ones? Give either uuids, or a selection by {self.ways}.")
        if options["dry_run"] and not is_selecting:
            raise CommandError("--dry-run is for a selection, not for Instances by uuid.")
        if not is_selecting:
            chosen = find_all(options["uuid"])
            with transaction.atomic(using=settings.DATABASE):
                return self.act(chosen)
        selected = self.selection(options)
        if options["dry_run"]:
            return self.planned(selected)
        # What comes while the question stands is not selected.
        end = selected.order_by("pk").values_list("pk", flat=True).last() or 0
        selected = selected.filter(pk__lte=end)
        self.confirm(selected.count(), options)
        counts = Counter()
        for chunk in _chunks(selected):
            counts.update(self._act_on(chunk))
        return {name: counts[name] for name in self.counts}

    def planned(self, selected):
        """Return the document of a dry run: how many would be taken, by Type and collection."""
        rows = selected.order_by().values_list("type__identifier", "collection")
        counts = Counter({(type, lane): n for type, lane, n in rows.annotate(Count("pk"))})
        cannot = Counter()
        for type, lane, why in self.refused(selected):
            cannot[why] += 1
            counts[type, lane] -= 1
        by = {"by_type": Counter(), "by_collection": Counter()}
        for (type, lane), count in counts.items():
            by["by_type"][type] += count
            by["by_collection"][lane] += count
        by = {name: {k: n for k, n in found.most_common() if n} for name, found in by.items()}
        types = ", ".join(f"{name} {number}" for name, number in by["by_type"].items())
        told = [f"{counts.total()} would be {self.done}{types and ': '}{types}."]
        told += [f"{count} cannot be {self.done}: {why}." for why, count in cannot.most_common()]
        plan = {"count": counts.total(), **by, "cannot": dict(cannot.most_common())}
        return {"outcome": "\n".join(told), "plan": plan}

    def refused(self, selected):
        """Yield Type, collection and reason of each selected Instance that ``act`` would refuse."""
        yield from ()

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
    """Select the Instances of a Type, or of a pattern; else those of all Types but ATP's own."""
    if type is None:
        return rows.exclude(type__identifier__in=internal_types())
    return rows.filter(type__in=types_of(checked_pattern(type)))


class Redrive(Selecting):
    name = "redrive"
    doing, done = "redriving", "redriven"
    ways = "--type, --reason or --all"
    matching = Matching("redrive", shared=("type", "reason", "all"))
    counts = ("redriven",)
    help = "Send FAILED Instances back to the queue; their retries and restarts count anew."

    def add_ways(self, add):
        add("--type", type=arguments.text, help="the dead letters of this Type, or of a pattern")
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

    def refused(self, selected):
        judge = Judge(REDRIVE)
        for chunk in _chunks(selected):
            refused = judge.refused(chunk)
            for each in chunk:
                if each.pk in refused:
                    yield each.type.identifier, each.collection, refused[each.pk]

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
        add("--type", type=arguments.text, help="waiting Instances of this Type, or of a pattern")
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
