"""Subcommands that take uuids, or a selection."""

import sys
from collections import Counter

from django.core.management.base import CommandError
from django.db import transaction

from ... import steering
from ...conf import settings
from ...exceptions import IllegalTransition, UnknownInstance
from . import arguments
from .base import Subcommand, find, instances


class Selecting(Subcommand):
    """One that acts on uuids, all of them or none, or on a selection, which is asked about first.

    ``act`` calls the verb and returns ``counts``, which are the document. ``doing`` and
    ``done`` are what is done to them, ``ways`` says by which options they are selected.
    """

    doing = done = ways = ""
    counts = ()

    def add_arguments(self, parser):
        add = parser.add_argument
        add("uuid", nargs="*", type=arguments.uuid_prefix, help="these; all of them, or none")
        self.add_ways(add)
        add("--yes", action="store_true", help=f"do not ask before {self.doing} a selection")

    def add_ways(self, add):
        """Add the options that select."""
        raise NotImplementedError

    def is_selecting(self, options):
        """Whether an option that selects was given."""
        raise NotImplementedError

    def selection(self, options):
        """Return what is selected."""
        raise NotImplementedError

    def act(self, chosen):
        """Call the verb; returns the counts."""
        raise NotImplementedError

    def acted(self, rows):
        """Return the counts from what has become of the rows, where one of them was in the way."""
        raise NotImplementedError

    def run(self, options):
        is_selecting = self.is_selecting(options)
        if bool(options["uuid"]) == is_selecting:
            raise CommandError(f"Which ones? Give either uuids, or a selection by {self.ways}.")
        if not is_selecting:
            chosen = [find(prefix) for prefix in dict.fromkeys(options["uuid"])]
            with transaction.atomic(using=settings.DATABASE):
                return self.act(chosen)
        selected = self.selection(options)
        self.confirm(selected.count(), options)
        counts = Counter()
        for chunk in _chunks(selected):
            counts.update(self._act_on(chunk))
        return {name: counts[name] for name in self.counts}

    def confirm(self, count, options):
        """Say how many there are, and ask, or want --yes, before anything is written."""
        self.say(f"Instances selected: {count}")
        if options["yes"] or not count:
            return
        if options["json"] or not sys.stdin.isatty():
            raise CommandError(f"Nothing was {self.done}: a selection needs --yes.")
        self.say(f"{self.name.capitalize()} them? [y/N] ")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError(f"Nothing was {self.done}.")

    def _act_on(self, chunk):
        try:
            return self.act(chunk)
        except (IllegalTransition, UnknownInstance):
            # Somebody was quicker with one of them: the others have been acted on all the same.
            return self.acted(instances().filter(pk__in=[instance.pk for instance in chunk]))


def _chunks(selected):
    """Yield lists of Instances, oldest first, up to the newest that there is now."""
    last = 0
    end = selected.order_by("pk").values_list("pk", flat=True).last()
    while end is not None and last < end:
        chunk = list(selected.filter(pk__gt=last, pk__lte=end).order_by("pk")[: steering.CHUNK])
        if not chunk:
            return
        last = chunk[-1].pk
        yield chunk
