"""Who may do what: Django's permissions, and the project's rule `ATP["AUTHORIZE"]`; the actor for
the log.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.core.signals import setting_changed
from django.db import transaction
from django.db.models import Exists, Model, OuterRef, Q, QuerySet
from django.utils.module_loading import import_string

from .. import models, queue
from ..conf import settings
from ..downstreams import operations as downstreams
from ..exceptions import (
    ATPError,
    DuplicateIdentifier,
    UnknownDaemon,
    UnknownDownstream,
    UnknownErrorGroup,
    UnknownGraph,
    UnknownInstance,
    UnknownSchedule,
    UnknownType,
)
from ..models import Instance
from ..operations.operation import CONTROL, DELETE, ENQUEUE, OPERATE, Verb
from ..options import MAX_IDENTIFIER

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType


# The actor of a request, as the log names it: the user and the channel.

PAGE, API, ADMIN, SHELL = "page", "API", "admin", "shell"


def actor(request, channel):
    """Return the user of a request as an actor; see :func:`actor_of`."""
    return actor_of(request.user, channel)


def actor_of(user, channel):
    """Return ``user NAME via CHANNEL``, as one printable line that fits its column."""
    name = "".join(c for c in str(user.get_username()) if c.isprintable())
    via = f" via {channel}"
    return f"user {name}"[: MAX_IDENTIFIER - len(via)] + via


# A project's rule about who may do what: ``ATP["AUTHORIZE"]``.
#
# A user has a permission as Django says. The rule narrows it to Types and lanes: it is a function
# ``(user, permission)`` that returns None for no restriction, or a list of Types, patterns of Types
# and lanes. So one answer serves a list, which is restricted in SQL, and a single object.
#
# What is out of the view permission's scope does not exist for the user: it is in no list, and its
# address answers as if there was none. What he may see and not act on is refused by name.

# A Type's identifier or a pattern of some, or None for everything; and a collection of it, or None
# for the whole Type.
Place = tuple[str | None, str | None]
EVERYTHING: Place = (None, None)
Found = TypeVar("Found")
_CACHE = "_atp_scopes"
_WILD = "*?["

# Where a row says its Type and its collection, by model.
_LANES: dict[type[Model], str] = {
    models.Instance: "",
    models.Task: "",
    models.Schedule: "",
    models.Gate: "",
    models.Limit: "",
    models.Inputs: "instance__",
    models.Response: "instance__",
    models.Step: "instance__",
    models.LogRecord: "instance__",
    models.Slot: "schedule__",
}
# Where a row says the identifier of its Type, if it is about the whole Type.
_TYPES: dict[type[Model], str] = {
    models.Type: "identifier",
    models.Tailer: "identifier",
    models.Cursor: "tailer",
    models.ErrorGroup: "type",
    models.Failure: "type",
}
# Where a row names its graph.
_GRAPHS: dict[type[Model], str] = {
    models.Graph: "pk",
    models.Node: "graph",
    models.Edge: "upstream__graph",
    models.Failing: "node__graph",
    models.Undo: "node__graph",
}
_NOUNS: dict[type[Model], tuple[type[ATPError], str]] = {
    models.Instance: (UnknownInstance, "Instance"),
    models.Graph: (UnknownGraph, "graph"),
    models.Schedule: (UnknownSchedule, "schedule"),
    models.ErrorGroup: (UnknownErrorGroup, "error group"),
    models.Downstream: (UnknownDownstream, "downstream"),
    models.Type: (UnknownType, "Type"),
    models.Tailer: (UnknownType, "tailer"),
    models.Daemon: (UnknownDaemon, "daemon"),
}


class Scope:
    """The Types and lanes for which a permission of a user holds."""

    def __init__(self, places: Iterable[Any] | None) -> None:
        self.places = None if places is None else tuple(_place(each) for each in places)

    @property
    def is_everything(self) -> bool:
        return self.places is None

    def covers(self, type: str | None, collection: str | None = None) -> bool:
        """Return whether all of a lane, of a Type, of a pattern or of everything is in the scope.

        A pattern that is asked for has to stand in the scope, or to begin as one there that ends
        with its only ``*``: what it will match later is covered, too.
        """
        if self.places is None:
            return True
        return type is not None and any(
            lane in (None, collection) and _holds(pattern, type) for pattern, lane in self.places
        )

    def types(self) -> list[str]:
        """Return the identifiers of the registered Types that are in the scope as a whole."""
        known = models.Type.objects.using(settings.DATABASE).values_list("identifier", flat=True)
        return [identifier for identifier in known if self.covers(identifier)]

    def touches(self, type: str) -> bool:
        """Return whether a Type, or a lane of it, is in the scope."""
        return self.places is None or any(_holds(pattern, type) for pattern, _ in self.places)

    def lanes(self, prefix: str = "") -> Q:
        """Return the condition that a row's Type and collection are in the scope."""
        known = list(models.Type.objects.using(settings.DATABASE).values_list("identifier", "pk"))
        found = Q(pk__in=[])
        of_lane: dict[str, set[int]] = {}
        whole: set[int] = set()
        for pattern, lane in self.places or ():
            keys = {key for identifier, key in known if _holds(pattern, identifier)}
            whole |= keys if lane is None else set()
            if lane is not None:
                of_lane.setdefault(lane, set()).update(keys)
        if whole:
            found |= Q(**{f"{prefix}type__in": whole})
        for lane, keys in of_lane.items():
            found |= Q(**{f"{prefix}type__in": keys, f"{prefix}collection": lane})
        return found


def _place(given: Any) -> tuple[str, str | None]:
    """Return a pattern and a collection from an item that the rule returned."""
    if isinstance(given, str):
        return given, None
    if (
        isinstance(given, tuple)
        and len(given) == 2
        and all(isinstance(part, str) for part in given)
    ):
        return given
    raise ImproperlyConfigured(
        f"ATP['AUTHORIZE'] returned {given!r}: each item must be a Type, a pattern as 'shop.*', "
        "or a pair of one and a collection."
    )


def _holds(pattern: str, type: str) -> bool:
    if not set(type) & set(_WILD):
        return fnmatch.fnmatchcase(type, pattern)
    head = pattern[:-1]
    is_prefix = pattern.endswith("*") and not set(head) & set(_WILD)
    return type == pattern or (is_prefix and type.startswith(head))


@cache
def rule() -> Callable[[Any, str], Iterable[Any] | None] | None:
    """Return the function that the setting names; None without one. Raises ImproperlyConfigured."""
    path = settings.AUTHORIZE
    if not path:
        return None
    try:
        found = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(f"ATP['AUTHORIZE']: {path!r}: {error}.") from error
    if not callable(found):
        raise ImproperlyConfigured(
            f"ATP['AUTHORIZE']: {path!r} is {found!r}: must be a function of a user and a "
            "permission."
        )
    return found


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "ATP":
        rule.cache_clear()


setting_changed.connect(_forget)


def scope_of(user: Any, permission: str) -> Scope:
    """Return the Scope of a permission of a user, who has it.

    The rule is asked once for each permission of a user object, as Django reads the permissions of
    one once.
    """
    may = rule()
    if may is None:
        return Scope(None)
    known = user.__dict__.setdefault(_CACHE, {})
    if permission not in known:
        places = may(user, permission)
        if isinstance(places, (str, bytes)):
            raise ImproperlyConfigured(
                f"ATP['AUTHORIZE'] returned {places!r}: must be None or a list."
            )
        known[permission] = Scope(places)
    return known[permission]


def allows(user: Any, permission: str, subject: Any) -> bool:
    """Return whether the rule lets a user's permission hold on a subject.

    The subject is a row, or a pair of a Type's identifier and a collection, each of which may be
    None. What is about no Type, as a daemon, takes a permission without restriction.
    """
    scope = scope_of(user, permission)
    if scope.is_everything:
        return True
    if isinstance(subject, models.Graph):
        return narrowed(user, permission, _rows(models.Graph)).filter(pk=subject.pk).exists()
    return all(scope.covers(*place) for place in _places(subject))


def _places(subject: Any) -> list[Place]:
    """Return all that a subject is about."""
    if isinstance(subject, tuple):
        return [subject]
    if isinstance(subject, (models.Instance, models.Task, models.Schedule)):
        return [(subject.type.identifier, subject.collection)]
    if isinstance(subject, (models.Gate, models.Limit)):
        type = None if subject.type is None else subject.type.identifier
        return [(type, subject.collection)]
    if isinstance(subject, models.ErrorGroup):
        return [(subject.type, None)]
    if isinstance(subject, (models.Type, models.Tailer)):
        return [(subject.identifier, None)]
    if isinstance(subject, models.Undo):
        return [(subject.type.identifier, subject.collection)]
    if isinstance(subject, models.Downstream):
        return [(type, None) for type in downstreams.calling(subject)] or [EVERYTHING]
    return [EVERYTHING]


def narrowed(user: Any, permission: str, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return those of some rows on which a permission of the user holds, by a condition in SQL."""
    scope = scope_of(user, permission)
    if scope.is_everything:
        return rows
    model = rows.model
    if model is models.Gate:  # one over everything holds what the user may see, too
        return rows.filter(Q(scope.lanes(), type__isnull=False) | Q(type=None))
    if model in _LANES:
        return rows.filter(scope.lanes(_LANES[model]))
    if model in _TYPES:
        return rows.filter(**{f"{_TYPES[model]}__in": scope.types()})
    if model in _GRAPHS:
        nodes = _rows(models.Node).filter(graph=OuterRef("pk"))
        inside = scope.lanes("instance__")
        of_pk = _rows(models.Graph).filter(Exists(nodes), ~Exists(nodes.exclude(inside)))
        within = Q(**{f"{_GRAPHS[model]}__in": of_pk.values("pk")})
        if model is models.Node:  # those of no graph wait in the line of a schedule
            within |= Q(inside, graph=None)
        return rows.filter(within)
    if model is models.Downstream:
        names = [row.name for row in _rows(model) if allows(user, permission, row)]
        return rows.filter(name__in=names)
    return rows.none()


def _rows(model: Any) -> QuerySet[Any]:
    return model.objects.using(settings.DATABASE)


def look_up(
    user: Any, find: Callable[[], Found], model: type[Model], name: object, *needs: str
) -> Found:
    """Return what ``find`` finds, if the first of the permissions, to see it, holds on it.

    Otherwise raise the error that says that there is none. For a user whose permission is
    restricted it is the same error if there is none: it has no hint at other names.
    Raises PermissionDenied if one of the other permissions does not hold.
    """
    scope = scope_of(user, needs[0])
    if scope.is_everything:
        found = find()
    else:
        kind, noun = _NOUNS[model]
        missing = kind(f"There is no {noun} {name}.")
        try:
            found = find()
        except kind:
            raise missing from None
        if not allows(user, needs[0], found):
            raise missing
    require(user, found, *needs[1:])
    return found


def require(user: Any, subject: Any, *needs: str) -> None:
    """Raise PermissionDenied unless the rule lets all these permissions hold on a subject."""
    for permission in needs:
        if not allows(user, permission, subject):
            raise PermissionDenied(f"The permission {permission} does not hold here.")


def require_operation(user: Any, operation: Verb, subject: Any, values: dict[str, Any]) -> None:
    """Raise PermissionDenied unless the rule lets a user perform an operation on its subject.

    ``values`` are its arguments. What is moved into another lane needs the permission there, too.
    The subject is None for an operation on all that match: all that its filter can select counts.
    """
    needs = operation.permissions(subject)
    require(user, _selected(values) if subject is None else subject, *needs)
    if isinstance(subject, (models.Instance, models.Schedule)) and "collection" in values:
        require(user, (subject.type.identifier, values["collection"]), *needs)


def _selected(values: dict[str, Any]) -> Place:
    """Return the place that holds all that a filter can select."""
    type = values.get("type")
    if type is None and values.get("error") is not None:
        type = queue.get_error_group(values["error"]).type
    return type, None if type is None else values.get("collection")


def problems() -> list[str]:
    """Return the problems with the setting, as sentences."""
    try:
        rule()
    except ImproperlyConfigured as error:
        return [str(error)]
    return []


# Enqueueing over HTTP: what a user may enqueue, and which other Instances an enqueue may find.


def require_enqueue(user: Any, types: Iterable[TaskType]) -> None:
    """Raise PermissionDenied unless the user may enqueue all these Types with their options."""
    types = list(types)
    needed = dict.fromkeys(name for each in types for name in to_enqueue(each.options.existing))
    if lacked := lacking(user, needed):
        raise PermissionDenied(refusal(lacked))
    for each in types:
        require(user, (each.identifier, each.options.collection), ENQUEUE)


def enqueue(user: Any, calls: Sequence[queue.Call]) -> list[Instance]:
    """Enqueue calls that the user may enqueue, all or none, and return the Instances.

    Raises PermissionDenied if the user may not see or change an Instance that an enqueue has found:
    then nothing is written.
    """
    try:
        if rule() is None:
            return queue.enqueue_calls(calls)
        with transaction.atomic(using=settings.DATABASE):
            found = queue.enqueue_calls(calls)
            for call, instance in zip(calls, found, strict=True):
                if not instance.is_new:
                    require(user, instance, *to_enqueue(call.task_type.options.existing)[1:])
            return found
    except DuplicateIdentifier as error:
        if error.instance is None or holds(user, VIEW_INSTANCE, error.instance):
            raise
        # The message says which Instance has it, and in which state that is.
        raise type(error)("The identifier or the unique key is taken.") from None


# Permissions over HTTP: Django's view permissions to look, and four permissions to act (G14).
#
# Inputs, responses and logs may hold secrets. So each needs the view permission of its own
# table.

__all__ = ["CONTROL", "DELETE", "ENQUEUE", "OPERATE"]

VIEW_TYPE = "atp.view_type"
VIEW_INSTANCE = "atp.view_instance"
VIEW_INPUTS = "atp.view_inputs"
VIEW_RESPONSE = "atp.view_response"
VIEW_LOG = "atp.view_logrecord"
VIEW_STEP = "atp.view_step"
VIEW_TASK = "atp.view_task"
VIEW_DAEMON = "atp.view_daemon"
VIEW_SCHEDULE = "atp.view_schedule"
VIEW_GRAPH = "atp.view_graph"
VIEW_DOWNSTREAM = "atp.view_downstream"
VIEW_TAILER = "atp.view_tailer"
VIEW_ERROR = "atp.view_errorgroup"


def holds(user, name, *subjects):
    """Return whether the user has a permission that holds on all subjects; without any, on all."""
    found = subjects or (EVERYTHING,)
    return user.has_perm(name) and all(allows(user, name, each) for each in found)


def may_see_errors(user, *subjects):
    """Return whether the user may see why these FAILED: it takes VIEW_LOG or OPERATE on them."""
    return any(holds(user, name, *subjects) for name in (VIEW_LOG, OPERATE))


def to_enqueue(existing):
    """Return the permissions to enqueue with ``existing``, an option of enqueue or None.

    An enqueue may find another Instance, which it then shows, or also changes.
    """
    if existing in (None, "raise"):
        return (ENQUEUE,)
    return (ENQUEUE, VIEW_INSTANCE) if existing == "return" else (ENQUEUE, VIEW_INSTANCE, OPERATE)


def told_to(user, *subjects):
    """Return the options of an explanation: may this user see errors, and names of daemons?"""
    return {"errors": may_see_errors(user, *subjects), "daemons": holds(user, VIEW_DAEMON)}


def lacking(user, permissions):
    """Return those of ``permissions`` that the user does not have."""
    return [name for name in permissions if not user.has_perm(name)]


def refusal(names):
    """Return the sentence that names the missing permissions."""
    return f"You lack the permission {' and '.join(names)}."
