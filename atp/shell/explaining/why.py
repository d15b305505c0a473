"""``why``: why something does not run, who can end that, and when it starts."""

import textwrap
from argparse import ArgumentTypeError

from django.core.management.base import CommandError

from ...exceptions import UnknownInstance, UnknownType
from ...reports.explaining.document import document
from ...reports.explaining.explain import explain
from ...reports.explaining.sentences import counted
from .. import arguments, present
from ..base import Subcommand, find

# The exit status of argparse for invalid arguments.
GARBAGE = 2
# The width at which lines are wrapped, in columns.
_WIDTH = 96


class Why(Subcommand):
    name = "why"
    help = "Why an Instance or a Type does not run: every cause, what ends it, the likely start."

    def add_arguments(self, parser):
        add = parser.add_argument
        add(
            "subject",
            type=arguments.text,
            help="the uuid of an Instance or its first digits, its identifier, or a Type",
        )
        add("--collection", type=arguments.text, help="with a Type: its lane of this collection")

    def run(self, options):
        try:
            return document(explain(_subject(options)))
        except (UnknownInstance, UnknownType) as error:
            raise CommandError(present.printable(error), returncode=GARBAGE) from error

    def text(self, document):
        head = [document["subject"], document["state"]]
        ahead = document["ahead"]
        if ahead:
            head.append(f"{counted(ahead)} ahead of it")
        parts = [present.printable(", ".join(filter(None, head)))]
        width = max((len(reason["code"]) for reason in document["reasons"]), default=0)
        for reason in document["reasons"]:
            parts += _reason(reason, width)
        if document["starts"] is not None:
            parts.append(present.printable(document["starts"]["told"]))
        return "\n".join(parts)


def _reason(reason, width):
    indent = " " * (len(present.INDENT) * 2 + width)
    code = f"{present.INDENT}{reason['code'].ljust(width)}{present.INDENT}"
    yield from textwrap.wrap(
        present.printable(reason["sentence"]),
        width=_WIDTH,
        initial_indent=code,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    if reason["helps"] is not None:
        yield present.printable(f"{indent}→ {reason['helps']['command']}")


def _subject(options):
    """Return the subject to explain. Raises CommandError if several uuids start so."""
    given = options["subject"]
    if options["collection"] is not None:
        return given, options["collection"]
    try:
        prefix = arguments.uuid_prefix(given)
        return given if len(prefix.replace("-", "")) == 32 else find(prefix).uuid
    except (ArgumentTypeError, UnknownInstance):
        return given
