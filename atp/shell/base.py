"""The base of subcommands; `--user`."""

import os
import pwd
from contextlib import contextmanager
from contextvars import ContextVar

from django.core.exceptions import PermissionDenied
from django.core.management.base import CommandError

from ..conf import settings
from ..exceptions import UnknownInstance
from ..models import Instance
from ..operations.registry import DELETES
from ..operations.table import (
    DAEMON,
    DOWNSTREAM,
    ERROR,
    GRAPH,
    INSTANCE,
    SCHEDULE,
    SCOPE,
    TAILER,
    VERBS,
)
from ..web import permissions as may
from ..web.permissions import SHELL, actor_of
from . import present

# ``manage.py atp --user NAME``: act as a user of the project, with this user's permissions.
#
# Without it the shell asks for no permission. It is no wall either way: who can run ``manage.py``
# has the settings and the database of the project.

_VERBS = VERBS[SCOPE]
_ACTING = ContextVar("atp_acting", default=None)
_LIMITS = [parameter.name for parameter in _VERBS["limit"].parameters]


class Acting:
    """A user, and the permissions that the subcommand needs of this user."""

    def __init__(self, user, needs):
        self.user, self.needs = user, needs


def current():
    """Return the Acting of this command; None without ``--user``."""
    return _ACTING.get()


@contextmanager
def acting_as(username, subcommand, options):
    """Run a subcommand as a user. Raises CommandError if the user may not use it."""
    if username is None:
        yield
        return
    user, needs = _user(username), needs_of(subcommand, options)
    lacking = may.lacking(user, needs)
    if lacking:
        raise CommandError(may.refusal(lacking))
    if not is_narrowed(subcommand, options):
        may.require(user, may.EVERYTHING, *needs)
    token = _ACTING.set(Acting(user, needs))
    try:
        yield
    finally:
        _ACTING.reset(token)


def _user(username):
    from django.contrib.auth import get_user_model

    users = get_user_model()
    try:
        return users.objects.get_by_natural_key(username)
    except users.DoesNotExist:
        raise CommandError(f"There is no user {username!r}.") from None


def require(subject):
    """Raise PermissionDenied unless the subcommand's permissions hold on an Instance."""
    acting = current()
    if acting is None:
        return
    needs = acting.needs
    if subject.type.identifier == DELETES and may.OPERATE in needs:
        needs = (*needs, may.DELETE)  # to redrive it is to delete
        if lacking := may.lacking(acting.user, needs):
            raise PermissionDenied(may.refusal(lacking))
    may.require(acting.user, subject, *needs)


def is_narrowed(subcommand, options):
    """Return whether a subcommand asks the rule itself, for each Instance that it is about."""
    if subcommand in ("list", "show", "enqueue"):
        return True
    return subcommand in VERBS[INSTANCE] and bool(options["uuid"])


def needs_of(subcommand, options):
    """Return the permissions that a subcommand takes. Raises CommandError if it takes no user."""
    needs = _NEEDS.get(subcommand)
    if needs is None:
        raise CommandError(f"{subcommand} cannot be used with --user.")
    return tuple(dict.fromkeys(needs(options)))


def _always(*needs):
    return lambda options: needs


def _of_verb(kind, *view):
    """Return the needs of a subcommand whose option ``verb`` names a verb, or "show"."""

    def needs(options):
        verb = VERBS[kind].get(options["verb"])
        return view if verb is None else (*view, *verb.needs)

    return needs


def _delete(options):
    live = (may.OPERATE,) if options["cancel"] else ()
    return may.VIEW_INSTANCE, may.DELETE, *live


def _gate(options):
    log = (may.VIEW_LOG,) if options["log"] else ()
    return may.VIEW_TYPE, *log, *(_VERBS[options["mode"]].needs if options["mode"] else ())


def _limit(options):
    log = (may.VIEW_LOG,) if options["log"] else ()
    sets = options["default"] or any(options[name] is not None for name in _LIMITS)
    return may.VIEW_TYPE, *log, *(_VERBS["limit"].needs if sets else ())


def _schedule(options):
    view = (may.VIEW_SCHEDULE, may.VIEW_INPUTS)
    if options["verb"] == "create":
        return *view, may.CONTROL, may.ENQUEUE
    return _of_verb(SCHEDULE, *view)(options)


def _enqueue(options):
    return may.to_enqueue(options["existing"])


_NEEDS = {
    **{
        name: _always(may.VIEW_INSTANCE, *verb.needs)
        for name, verb in VERBS[INSTANCE].items()
        if name != "delete"
    },
    "delete": _delete,
    "status": _always(may.VIEW_INSTANCE, may.VIEW_TYPE, may.VIEW_DAEMON),
    "check": _always(may.VIEW_DAEMON, may.OPERATE),
    "types": _always(may.VIEW_TYPE),
    "type": _always(may.VIEW_TYPE),
    "gates": _always(may.VIEW_TYPE),
    "limits": _always(may.VIEW_TYPE),
    "statistics": _always(may.VIEW_TYPE),
    "metrics": _always(may.VIEW_TYPE),
    "list": _always(may.VIEW_INSTANCE),
    "show": _always(
        *(may.VIEW_INSTANCE, may.VIEW_INPUTS, may.VIEW_RESPONSE, may.VIEW_STEP, may.VIEW_LOG)
    ),
    "why": _always(may.VIEW_INSTANCE, may.VIEW_TYPE, may.VIEW_LOG, may.VIEW_DAEMON),
    "enqueue": _enqueue,
    "purge": _always(may.VIEW_TYPE, *_VERBS["purge"].needs),
    "gate": _gate,
    "limit": _limit,
    "downstreams": _always(may.VIEW_DOWNSTREAM),
    "downstream": _of_verb(DOWNSTREAM, may.VIEW_DOWNSTREAM),
    "schedules": _always(may.VIEW_SCHEDULE, may.VIEW_INPUTS),
    "schedule": _schedule,
    "tailers": _always(may.VIEW_TAILER),
    "tailer": _of_verb(TAILER, may.VIEW_TAILER),
    "graphs": _always(may.VIEW_GRAPH),
    "graph": _of_verb(GRAPH, may.VIEW_GRAPH),
    "errors": _always(may.VIEW_ERROR, may.VIEW_LOG),
    "error": _of_verb(ERROR, may.VIEW_ERROR, may.VIEW_LOG),
    "daemons": _always(may.VIEW_DAEMON),
    "daemon": lambda options: (may.VIEW_DAEMON, *VERBS[DAEMON][options["order"]].needs),
}


# The base of the subcommands, the actor for the log, and the search for Instances.


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
    return may.narrowed(acting.user, may.VIEW_INSTANCE, rows)


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
