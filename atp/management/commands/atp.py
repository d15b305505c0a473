"""The command ``manage.py atp``, with its subcommands from :mod:`atp.shell`."""

import contextlib
import os
import sys

from django.core.management.base import BaseCommand, CommandError
from django.db import Error, OperationalError, ProgrammingError

from atp.exceptions import ATPError
from atp.reports import migrated
from atp.shell import present, subcommands


class Command(BaseCommand):
    help = "Look at the queue and steer it."

    def add_arguments(self, parser):
        words = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
        for subcommand in subcommands():
            added = words.add_parser(
                subcommand.name, help=subcommand.help, description=subcommand.help
            )
            subcommand(self).add_arguments(added)
            added.add_argument("--json", action="store_true", help="print JSON and nothing else")

    def handle(self, *args, **options):
        # Escape characters that the encoding of stdout does not have.
        reconfigure = getattr(self.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
        chosen = next(s for s in subcommands() if s.name == options["subcommand"])(self)
        try:
            document = chosen.run(options)
            if document is not None:
                write = present.as_json if options["json"] else chosen.text
                self._write(write(document))
                chosen.check(document, options)
        except ATPError as error:
            raise CommandError(present.printable(error)) from error
        except (OperationalError, ProgrammingError) as error:
            raise CommandError(
                _not_migrated()
                or f"The queue's database does not answer as it should: {str(error).strip()}"
            ) from error

    def _write(self, text):
        """Write the outcome. Raises CommandError if nobody takes it: the work is done by then."""
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except OSError as error:
            with contextlib.suppress(OSError, ValueError):
                # Python would complain once more at its end.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
            why = error.strerror or error
            raise CommandError(
                f"It was done, but its outcome could not be written: {why}."
            ) from error


def _not_migrated():
    """Return a sentence about missing migrations; empty if there is none, or it is not known."""
    try:
        return migrated.problem()
    except Error:
        return ""
