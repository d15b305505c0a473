"""The acts that would resolve a cause, from the table of verbs: with command and permission."""

from __future__ import annotations

import shlex
from typing import Any

from ...verbs.table import DAEMON, DOWNSTREAM, GRAPH, SCHEDULE, SCOPE, VERBS
from .values import Help

MANAGE = "manage.py atp"
_OF_ITS_KIND = (DAEMON, SCHEDULE, GRAPH, DOWNSTREAM)


def verb(kind: str, name: str, *arguments: object, label: str = "", **options: object) -> Help:
    """Return the act for a verb of the table on a subject of this kind, with its shell command.

    ``arguments`` name the subject; an option that is None is left out.
    """
    entry = VERBS[kind][name]
    words = [shlex.quote(str(argument)) for argument in arguments]
    for option, value in options.items():
        if value is not None:
            words += [f"--{option.replace('_', '-')}", shlex.quote(str(value))]
    return Help(
        label=label or entry.label,
        command=" ".join([MANAGE, *_words(kind, entry), *words]),
        verb=entry.name,
        permission=entry.permission,
    )


def scope(name: str, row: Any, **options: Any) -> Help:
    """Return the act for a verb on the scope of a Gate or a Limit."""
    type = None if row.type is None else row.type.identifier
    return verb(SCOPE, name, type=type, collection=row.collection, **options)


def daemon(label: str = "Start a daemon that serves it") -> Help:
    """Return the act of starting a daemon, for which there is no verb."""
    return Help(label=label, command="manage.py atpd")


def terminate(pid: int) -> Help:
    """Return the act of ending a session of PostgreSQL, for which there is no verb."""
    return Help(
        label="End the session in the database", command=f"SELECT pg_terminate_backend({pid});"
    )


def _words(kind: str, entry: Any) -> list[str]:
    """Return the subcommand of a verb."""
    if kind in _OF_ITS_KIND:
        return [kind, entry.name]
    of = getattr(entry, "of", "")
    if of == "limit":
        return ["limit"]
    return [of, entry.name] if of else [entry.name]
