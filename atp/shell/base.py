"""The base of the subcommands, the actor for the log, and the search for Instances."""

import os
import pwd

from django.core.management.base import CommandError

from ..conf import settings
from ..exceptions import UnknownInstance
from ..models import Instance
from ..web import authorization, permissions
from ..web.actor import SHELL, actor_of
from . import present
from .acting import current, require


class Subcommand:
    """The base of a subcommand of ``manage.py atp``.

    ``run`` calls a verb, or reads rows, and returns a document: a dict of plain values.
    With ``--json`` the command prints the document. Otherwise it prints the text that
    ``text`` makes of the document. ``command`` has the streams stdout and stderr.
    """

    name = ""
    help = ""

    def __init__(self, command):
        self.command = command

    def add_arguments(self, parser):
        """Add the arguments of this subcommand, except ``--json``."""

    def run(self, options):
        """Do the work and return the document; None if there is nothing to print."""
        raise NotImplementedError

    def text(self, document):
        """Return the document as text."""
        raise NotImplementedError

    def check(self, document, options):
        """Raise CommandError if the exit status must not be 0 after this document."""

    def say(self, message):
        """Write a message for the operator to stderr, apart from the document."""
        self.command.stderr.write(present.page(message))


def actor():
    """Return the actor for the log: the user of --user, or that of the operating system."""
    acting = current()
    if acting is not None:
        return actor_of(acting.user, SHELL)
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number that has no name
        name = str(os.getuid())
    return f"user {name} via shell"


def instances():
    """Return a QuerySet of all Instances, with their Types; of those that --user may see."""
    rows, acting = Instance.objects.using(settings.DATABASE).select_related("type"), current()
    if acting is None:
        return rows
    return authorization.narrowed(acting.user, permissions.VIEW_INSTANCE, rows)


def find(prefix):
    """Return the Instance with this uuid, or with the only uuid that starts with ``prefix``.

    Raises UnknownInstance, or CommandError if several uuids start so: uuids that were made in
    the same minute have their first eight digits in common.
    """
    found = list(instances().named(prefix).newest_first()[:2])
    if not found:
        raise UnknownInstance(f"There is no Instance {prefix}.")
    if len(found) > 1:
        raise CommandError(
            f"{prefix} is the beginning of more than one uuid, of {found[0]} for example: "
            "give more digits."
        )
    require(found[0])
    return found[0]


def find_all(prefixes):
    """Return the Instances with these uuids, each once. Raises what :func:`find` raises."""
    found = [find(prefix) for prefix in dict.fromkeys(prefixes)]
    return list({instance.pk: instance for instance in found}.values())
