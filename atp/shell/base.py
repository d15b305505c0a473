"""The base of the subcommands: their shape, the actor, and the names of Instances."""

import os
import pwd

from django.core.management.base import CommandError

from ..conf import settings
from ..exceptions import UnknownInstance
from ..models import Instance


class Subcommand:
    """One word after ``manage.py atp``.

    ``run`` calls a verb or reads a selection and returns a document: plain
    values with the names of fields as keys. ``--json`` prints that, and
    ``text`` makes of it what people read. ``command`` gives the streams.
    """

    name = ""
    help = ""

    def __init__(self, command):
        self.command = command

    def add_arguments(self, parser):
        """Add the arguments of this subcommand, ``--json`` apart."""

    def run(self, options):
        """Do it and return the document, or None if there is nothing to print."""
        raise NotImplementedError

    def text(self, document):
        """Return the document as text."""
        raise NotImplementedError

    def check(self, document, options):
        """Raise CommandError if what the document says should make the exit status differ."""

    def say(self, message):
        """Tell the operator something that is not the document."""
        self.command.stderr.write(message)


def actor():
    """Return the actor for the log: the user of the operating system."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number that has no name
        name = str(os.getuid())
    return f"user {name} via shell"


def instances():
    """All Instances, with their Types."""
    return Instance.objects.using(settings.DATABASE).select_related("type")


def find(prefix):
    """Return the Instance of this uuid, or of the only uuid that starts so. Raises UnknownInstance.

    Uuids begin with the time: those of the same minute have their first eight digits in common.
    """
    found = list(instances().named(prefix).newest_first()[:2])
    if not found:
        raise UnknownInstance(f"There is no Instance {prefix}.")
    if len(found) > 1:
        raise CommandError(
            f"{prefix} is the beginning of more than one uuid, of {found[0]} for example: "
            "give more digits."
        )
    return found[0]
