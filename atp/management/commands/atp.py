"""The command ``manage.py atp``. The modules named ``shell`` contain its subcommands."""

import contextlib
import os
import re
import sys
from typing import Any

from django.core.checks import Tags
from django.core.exceptions import PermissionDenied
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, ProgrammingError

from ...deadletters.shell import Cancel, Delete, Error, Errors, Redrive
from ...exceptions import ATPError
from ...graphs.shell import Graph, Graphs
from ...operations.base import describe_cause
from ...schedules.shell import ImportBeat, Schedule, Schedules
from ...shell import present
from ...shell.base import Subcommand, acting_as
from ...shell.gates import Downstream, Downstreams, Gate, Gates, Limit, Limits
from ...shell.instances import Enqueue, List, Show, Stack
from ...shell.operations import DaemonSubcommand
from ...shell.operations import subcommands as operation_subcommands
from ...shell.pilots import Pilots
from ...shell.reports import Check, Metrics, Statistics, Why
from ...shell.status import Daemons, OneType, Status, Types
from ...tailers.shell import Tailer, Tailers
from ...text import did_you_mean


class Command(BaseCommand):
    help = "Look at the queue and steer it."
    # Leave out the checks of pages, which import all views, and the warnings that "check" and atpd
    # show.
    requires_system_checks = (Tags.compatibility, Tags.models, Tags.security)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        refuse = parser.error
        parser.error = lambda message: refuse(message + _hint(message))  # type: ignore[method-assign]
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--user",
            metavar="NAME",
            help="act as this user of the project, with this user's permissions",
        )
        words = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
        for subcommand in subcommands():
            added = words.add_parser(
                subcommand.name, help=subcommand.help, description=subcommand.help
            )
            subcommand(self).add_arguments(added)
            added.add_argument("--json", action="store_true", help="print JSON and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        # Escape characters that the encoding of stdout lacks.
        reconfigure = getattr(self.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
        chosen = next(s for s in subcommands() if s.name == options["subcommand"])(self)
        try:
            with acting_as(options["user"], chosen.name, options):
                document = chosen.run(options)
            if document is not None:
                if options["json"]:
                    self._write(present.as_json(document))
                else:
                    self._write(present.printable_text(chosen.text(document)))
                chosen.check(document, options)
        except CommandError as error:
            # Its text may be stored text.
            raise CommandError(
                present.printable_text(error), returncode=error.returncode
            ) from error
        except PermissionDenied as error:
            raise CommandError(present.printable(error)) from error
        except ATPError as error:
            raise CommandError(present.printable(error)) from error
        except (OperationalError, ProgrammingError) as error:
            raise CommandError(
                describe_cause(error)
                or "The queue's database does not answer as it should: "
                + present.printable_text(str(error).strip())
            ) from error

    def _write(self, text: str) -> None:
        """Write the subcommand's output, after its work is done. Raises CommandError on failure."""
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except OSError as error:
            # Otherwise Python would report the error again when it exits.
            with contextlib.suppress(OSError, ValueError):
                if sys.__stdout__ is not None:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
            why = error.strerror or error
            raise CommandError(
                f"The command has done its work, but cannot write its output: {why}."
            ) from error


def _hint(message: str) -> str:
    """Return " Did you mean …?" if the parser's message is about an unknown subcommand."""
    found = re.match(r"argument SUBCOMMAND: invalid choice: '([^']*)'", message)
    return did_you_mean(found[1], [s.name for s in subcommands()]) if found else ""


def subcommands() -> tuple[type[Subcommand], ...]:
    """Return all Subcommand classes, in the order in which the help lists them."""
    found: list[type[Subcommand]] = [
        *(Status, Check, Types, OneType, Statistics, Metrics, List, Show, Why, Enqueue),
        *(Redrive, Cancel, Stack),
        *operation_subcommands(),
        Delete,
        *(Gates, Gate, Limits, Limit, Downstreams, Downstream),
        *(Schedules, Schedule, ImportBeat, Tailers, Tailer, Graphs, Graph, Errors, Error),
        *(Daemons, DaemonSubcommand, Pilots),
    ]
    return tuple(found)
