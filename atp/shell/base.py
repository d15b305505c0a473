"""The base class of subcommands, their option ``--user``, and the search for Instances."""

from __future__ import annotations

import os
import pwd
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.management.base import BaseCommand, CommandError

from ..conf import settings
from ..exceptions import UnknownInstance
from ..models import Instance
from ..operations.registry import DELETE_TYPE
from ..operations.table import (
    DAEMON,
    DOWNSTREAM,
    ERROR,
    GRAPH,
    INSTANCE,
    OPERATIONS,
    SCHEDULE,
    TAILER,
    TARGET,
)
from ..querysets import InstanceQuerySet
from ..reports.documents import Document
from ..web import permissions
from ..web.permissions import SHELL, actor_of
from . import present


class Subcommand:
    """The base class of a subcommand of ``manage.py atp``.

    ``run`` performs an operation or reads rows, and returns a document, which is a dict of plain
    values. With ``--json`` the command prints the document as JSON. Otherwise it prints the text
    that ``text`` makes from the document. ``command`` has the streams stdout and stderr.
    """

    name = ""
    help = ""

    def __init__(self, command: BaseCommand) -> None:
        self.command = command

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommand's own arguments to its parser. Every subcommand has ``--json``."""

    def run(self, options: dict[str, Any]) -> Document | None:
        """Do the subcommand's work. Return the document to print, or None to print nothing."""
        raise NotImplementedError

    def text(self, document: Document) -> str:
        """Return the document as text for people."""
        raise NotImplementedError

    def check(self, document: Document, options: dict[str, Any]) -> None:
        """Raise CommandError if the command must fail although it has printed the document."""

    def say(self, message: str) -> None:
        """Write a message for the operator to stderr, separate from the document."""
        self.command.stderr.write(present.printable_text(message))


# ``manage.py atp --user NAME``: act as a user of the project, with this user's permissions.
#
# Without this option the shell checks no permissions. The check protects nothing in either case:
# whoever can run ``manage.py`` has the settings and the database of the project.


class ActingUser:
    """The user that ``--user`` names, with the permissions that the subcommand needs."""

    def __init__(self, user: Any, needs: tuple[str, ...]) -> None:
        self.user, self.needs = user, needs


_ACTING: ContextVar[ActingUser | None] = ContextVar("atp_acting", default=None)


def acting_user() -> ActingUser | None:
    """Return the ActingUser of the running command, or None without ``--user``."""
    return _ACTING.get()


@contextmanager
def acting_as(username: str | None, subcommand: str, options: dict[str, Any]) -> Iterator[None]:
    """Let a subcommand act as the user with this name. Without a name, check nothing.

    Raises CommandError or PermissionDenied if the user may not use the subcommand.
    """
    if username is None:
        yield
        return
    user, needs = _get_user(username), needed_permissions(subcommand, options)
    lacking = permissions.missing_permissions(user, needs)
    if lacking:
        raise CommandError(permissions.describe_missing(lacking))
    if not _checks_each_instance(subcommand, options):
        permissions.require(user, permissions.EVERYTHING, *needs)
    token = _ACTING.set(ActingUser(user, needs))
    try:
        yield
    finally:
        _ACTING.reset(token)


def _get_user(username: str) -> Any:
    from django.contrib.auth import get_user_model

    users = get_user_model()
    try:
        return users.objects.get_by_natural_key(username)
    except users.DoesNotExist:
        raise CommandError(f"There is no user {username!r}.") from None


def actor() -> str:
    """Return the actor for the log: the user that ``--user`` names, or the system's user."""
    acting = acting_user()
    if acting is not None:
        return actor_of(acting.user, SHELL)
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a user id that has no name
        name = str(os.getuid())
    return f"user {name} via shell"


def require(instance: Instance) -> None:
    """Raise PermissionDenied unless ``--user`` may use the subcommand on an Instance."""
    acting = acting_user()
    if acting is None:
        return
    needs = acting.needs
    if instance.type.identifier == DELETE_TYPE and permissions.OPERATE in needs:
        needs = (*needs, permissions.DELETE)  # redriving a deletion deletes
        if lacking := permissions.missing_permissions(acting.user, needs):
            raise PermissionDenied(permissions.describe_missing(lacking))
    permissions.require(acting.user, instance, *needs)


def _checks_each_instance(subcommand: str, options: dict[str, Any]) -> bool:
    """Return True if a subcommand itself checks the project's rule for each of its Instances."""
    if subcommand in ("list", "show", "enqueue"):
        return True
    return subcommand in OPERATIONS[INSTANCE] and bool(options["uuid"])


# The permissions that each subcommand needs.

Needs = Callable[[dict[str, Any]], tuple[str, ...]]

_TARGET_OPERATIONS = OPERATIONS[TARGET]
_LIMITS = [parameter.name for parameter in _TARGET_OPERATIONS["limit"].parameters]


def needed_permissions(subcommand: str, options: dict[str, Any]) -> tuple[str, ...]:
    """Return the permissions that the user named by ``--user`` needs for a subcommand.

    Raises CommandError if the subcommand cannot be used with ``--user``.
    """
    needs = _NEEDS.get(subcommand)
    if needs is None:
        raise CommandError(f"{subcommand} cannot be used with --user.")
    return tuple(dict.fromkeys(needs(options)))


def _always(*needs: str) -> Needs:
    return lambda options: needs


def _with_operation(kind: str, *view: str) -> Needs:
    """Return a function that returns the permissions that a subcommand needs.

    The subcommand's option ``verb`` names an operation of this kind. If it names none, as "show"
    does, the ``view`` permissions are enough.
    """

    def needs(options: dict[str, Any]) -> tuple[str, ...]:
        operation = OPERATIONS[kind].get(options["verb"])
        return view if operation is None else (*view, *operation.needs)

    return needs


def _delete(options: dict[str, Any]) -> tuple[str, ...]:
    live = (permissions.OPERATE,) if options["cancel"] else ()
    return permissions.VIEW_INSTANCE, permissions.DELETE, *live


def _list(options: dict[str, Any]) -> tuple[str, ...]:
    inputs = (permissions.VIEW_INPUTS,) if options["input"] else ()
    daemon = (permissions.VIEW_DAEMON,) if options["daemon"] else ()
    return permissions.VIEW_INSTANCE, *inputs, *daemon


def _gate(options: dict[str, Any]) -> tuple[str, ...]:
    log = (permissions.VIEW_LOG,) if options["log"] else ()
    mode = options["mode"]
    return permissions.VIEW_TYPE, *log, *(_TARGET_OPERATIONS[mode].needs if mode else ())


def _limit(options: dict[str, Any]) -> tuple[str, ...]:
    log = (permissions.VIEW_LOG,) if options["log"] else ()
    sets = options["default"] or any(options[name] is not None for name in _LIMITS)
    return permissions.VIEW_TYPE, *log, *(_TARGET_OPERATIONS["limit"].needs if sets else ())


def _schedule(options: dict[str, Any]) -> tuple[str, ...]:
    view = (permissions.VIEW_SCHEDULE, permissions.VIEW_INPUTS)
    if options["verb"] == "create":
        return *view, permissions.CONTROL, permissions.ENQUEUE
    return _with_operation(SCHEDULE, *view)(options)


def _enqueue(options: dict[str, Any]) -> tuple[str, ...]:
    return permissions.permissions_to_enqueue(options["existing"])


def _daemon(options: dict[str, Any]) -> tuple[str, ...]:
    return permissions.VIEW_DAEMON, *OPERATIONS[DAEMON][options["order"]].needs


_NEEDS: dict[str, Needs] = {
    **{
        name: _always(permissions.VIEW_INSTANCE, *operation.needs)
        for name, operation in OPERATIONS[INSTANCE].items()
        if name != "delete"
    },
    "delete": _delete,
    "stack": _always(permissions.VIEW_INSTANCE, permissions.VIEW_LOG, permissions.OPERATE),
    "status": _always(permissions.VIEW_INSTANCE, permissions.VIEW_TYPE, permissions.VIEW_DAEMON),
    "check": _always(permissions.VIEW_DAEMON, permissions.OPERATE),
    "types": _always(permissions.VIEW_TYPE),
    "type": _always(permissions.VIEW_TYPE),
    "gates": _always(permissions.VIEW_TYPE),
    "limits": _always(permissions.VIEW_TYPE),
    "statistics": _always(permissions.VIEW_TYPE),
    "metrics": _always(permissions.VIEW_TYPE),
    "list": _list,
    "show": _always(
        permissions.VIEW_INSTANCE,
        permissions.VIEW_INPUTS,
        permissions.VIEW_RESPONSE,
        permissions.VIEW_STEP,
        permissions.VIEW_LOG,
    ),
    "why": _always(
        permissions.VIEW_INSTANCE,
        permissions.VIEW_TYPE,
        permissions.VIEW_LOG,
        permissions.VIEW_DAEMON,
    ),
    "enqueue": _enqueue,
    "purge": _always(permissions.VIEW_TYPE, *_TARGET_OPERATIONS["purge"].needs),
    "end-session": _always(permissions.VIEW_TYPE, *_TARGET_OPERATIONS["end-session"].needs),
    "gate": _gate,
    "limit": _limit,
    "downstreams": _always(permissions.VIEW_DOWNSTREAM),
    "downstream": _with_operation(DOWNSTREAM, permissions.VIEW_DOWNSTREAM),
    "schedules": _always(permissions.VIEW_SCHEDULE, permissions.VIEW_INPUTS),
    "schedule": _schedule,
    "tailers": _always(permissions.VIEW_TAILER),
    "tailer": _with_operation(TAILER, permissions.VIEW_TAILER),
    "graphs": _always(permissions.VIEW_GRAPH),
    "graph": _with_operation(GRAPH, permissions.VIEW_GRAPH),
    "errors": _always(permissions.VIEW_ERROR, permissions.VIEW_LOG),
    "error": _with_operation(ERROR, permissions.VIEW_ERROR, permissions.VIEW_LOG),
    "daemons": _always(permissions.VIEW_DAEMON),
    "daemon": _daemon,
}


# The search for Instances.


def visible_instances() -> InstanceQuerySet[Instance]:
    """Return a QuerySet of all Instances, or of those that the user named by ``--user`` may see."""
    rows: Any = Instance.objects.using(settings.DATABASE).select_related("type")
    acting = acting_user()
    if acting is None:
        return rows
    return permissions.narrow_rows(acting.user, permissions.VIEW_INSTANCE, rows)  # type: ignore[return-value]


def find_instance(prefix: str) -> Instance:
    """Return the only Instance whose uuid starts with ``prefix``.

    Raises UnknownInstance if there is none. Raises CommandError if there are several, for example
    because uuids from the same minute have the same first eight digits. Raises PermissionDenied
    unless ``--user`` may use the subcommand on the Instance.
    """
    found = list(visible_instances().named(prefix).newest_first()[:2])
    if not found:
        raise UnknownInstance(f"There is no Instance {prefix}.")
    if len(found) > 1:
        raise CommandError(
            f"More than one uuid begins with {prefix}, for example {found[0]}. Give more digits."
        )
    require(found[0])
    return found[0]


def find_instances(prefixes: Iterable[str]) -> list[Instance]:
    """Return the Instances whose uuids start with these prefixes, each Instance once.

    Raises the same errors as :func:`find_instance`.
    """
    found = [find_instance(prefix) for prefix in dict.fromkeys(prefixes)]
    return list({instance.pk: instance for instance in found}.values())
