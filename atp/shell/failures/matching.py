"""Verbs on all Instances that match: the options of ``redrive``, ``cancel`` and ``delete``."""

import argparse
import re
from datetime import timedelta

from django.core.management.base import CommandError
from django.utils import timezone

from ...reports import overview
from ...verbs.table import MATCHING, VERBS
from .. import arguments
from ..base import actor
from .errors import check_final, document_of

_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


class Matching:
    """The options with which a subcommand acts on all Instances that match, at a rate.

    ``verb`` is the verb of the table. ``shared`` are the parameters for which the subcommand
    has an option already: these are not added again.
    """

    def __init__(self, name, shared=()):
        self.verb = VERBS[MATCHING][name]
        self._shared = shared

    def add(self, parser):
        """Add the options that the subcommand does not have."""
        for parameter in self.verb.parameters:
            if parameter.name in self._shared:
                continue
            name = parameter.name.replace("_", "-")
            names = [f"--{name}"] + (["--before"] if name.endswith("-before") else [])
            told = parameter.help[:1].lower() + parameter.help[1:].rstrip(".")
            told = f"all that match: {told}".replace("%", "%%")
            if name in ("dry-run", "all"):
                parser.add_argument(*names, action="store_true", help=told)
                continue
            read = _moment if name.endswith("-before") else arguments.of(parameter.kind)
            read = arguments.reason if name == "reason" else read
            parser.add_argument(*names, type=read, metavar=name.upper(), help=told)

    def is_meant(self, options, but=()):
        """Return whether an option was given that is not shared, so that this verb is meant.

        Options in ``but`` say nothing of that.
        """
        own = {p.name for p in self.verb.parameters}.difference(self._shared, but)
        return any(_is_given(options.get(name)) for name in own)

    def run(self, options):
        """Perform the verb, or plan it with ``--dry-run``, and return the document."""
        if options.get("uuid"):
            raise CommandError("Give either uuids, or options that select.")
        values = {p.name: options.get(p.name) for p in self.verb.parameters}
        values = {name: value for name, value in values.items() if _is_given(value)}
        check_final(self.verb, values, options)
        if "reason" in values:
            values["reason"] = str(values["reason"])
        return document_of(self.verb.perform(None, actor(), **values))


def _is_given(value):
    return value is not None and value is not False  # 0 is


def _moment(given):
    """Read a time of today, as 09:40, or any other time, but no delay."""
    found = _TIME.fullmatch(given)
    if found is None:
        time = arguments.moment(given)
        if isinstance(time, timedelta):
            raise argparse.ArgumentTypeError(f"{given!r} is no time that has passed")
        return time
    hour, minute = map(int, found.groups())
    return timezone.localtime(overview.now()).replace(
        hour=hour, minute=minute, second=0, microsecond=0
    )
