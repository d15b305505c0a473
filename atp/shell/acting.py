"""``manage.py atp --user NAME``: act as a user of the project, with this user's permissions.

Without it the shell asks for no permission. It is no wall either way: who can run ``manage.py`` has
the settings and the database of the project.
"""

from contextlib import contextmanager
from contextvars import ContextVar

from django.core.exceptions import PermissionDenied
from django.core.management.base import CommandError

from ..verbs.registry import DELETES
from ..verbs.table import DAEMON, DOWNSTREAM, ERROR, GRAPH, INSTANCE, SCHEDULE, SCOPE, TAILER, VERBS
from ..web import authorization
from ..web import permissions as may

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
        authorization.require(user, authorization.EVERYTHING, *needs)
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
    authorization.require(acting.user, subject, *needs)


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
