"""Who may do what: Django's permissions, narrowed by the project's rule ``ATP["AUTHORIZE"]``.

Django decides whether a user has a permission at all. The rule can restrict the permission to some
Types and lanes. The rule is a function ``(user, permission)``. It returns None for no restriction,
or a list of Types, patterns of Types, and lanes. ATP uses this list both to filter rows in SQL and
to check a single object.

An object that a user may not see does not seem to exist: no list contains the object, and its
address answers 404. If the user may see an object but not act on it, the error names the missing
permission.

Django's view permissions let a user look; four permissions of ATP let a user act (guarantee G14).
Inputs, responses and logs may contain secrets, so the user needs the view permission for the table
of each.

This module also returns the user of a request as the actor that the log names.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
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
from ..operations.operation import CONTROL, DELETE, ENQUEUE, OPERATE, Operation
from ..options import MAX_IDENTIFIER

if TYPE_CHECKING:
    from ..operations.registry import Declaration
    from ..reports.health import QueueProblem


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

# The channels through which an actor acts.
PAGE, API, ADMIN, SHELL = "page", "API", "admin", "shell"


def actor(request: Any, channel: str) -> str:
    """Return the user of a request as an actor for the log, as :func:`actor_of` does."""
    return actor_of(request.user, channel)


def actor_of(user: Any, channel: str) -> str:
    """Return ``user NAME via CHANNEL`` for the log, cut to the width of the log's column."""
    name = "".join(c for c in str(user.get_username()) if c.isprintable())
    via = f" via {channel}"
    return f"user {name}"[: MAX_IDENTIFIER - len(via)] + via


# The project's rule.

# A pair: a Type's identifier, a pattern of identifiers, or None for everything; and one of the
# Type's collections, or None for the whole Type.
Place = tuple[str | None, str | None]
EVERYTHING: Place = (None, None)
Found = TypeVar("Found")
_CACHE = "_atp_scopes"
_WILD = "*?["

# The prefix of the fields ``type`` and ``collection``, by model.
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
# The field with the identifier of the Type, for models whose rows concern a whole Type.
_TYPES: dict[type[Model], str] = {
    models.Type: "identifier",
    models.Tailer: "identifier",
    models.Cursor: "tailer",
    models.ErrorGroup: "type",
    models.Failure: "type",
}
# The field with the key of the graph, by model.
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


class Grant:
    """The Types and lanes to which the project's rule restricts a user's permission.

    The attribute ``places`` is None if the permission is not restricted.
    """

    def __init__(self, places: Iterable[Any] | None) -> None:
        self.places = None if places is None else tuple(_parse_place(each) for each in places)

    @property
    def is_everything(self) -> bool:
        return self.places is None

    def covers(self, type: str | None, collection: str | None = None) -> bool:
        """Return True if the permission includes a whole Type, or one lane with ``collection``.

        ``type`` may also be a pattern of Types, or None for everything. The permission includes a
        pattern only if it includes all Types that the pattern will ever match. So the rule must
        have returned the same pattern, or a beginning of the pattern followed by ``*``.
        """
        if self.places is None:
            return True
        return type is not None and any(
            lane in (None, collection) and _matches(pattern, type) for pattern, lane in self.places
        )

    def types(self) -> list[str]:
        """Return the identifiers of the registered Types that the permission includes entirely."""
        known = models.Type.objects.using(settings.DATABASE).values_list("identifier", flat=True)
        return [identifier for identifier in known if self.covers(identifier)]

    def touches(self, type: str) -> bool:
        """Return True if the permission includes a Type, or at least one of the Type's lanes."""
        return self.places is None or any(_matches(pattern, type) for pattern, _ in self.places)

    def lanes(self, prefix: str = "") -> Q:
        """Return the condition that selects the rows in lanes that the permission includes.

        ``prefix`` precedes the field names ``type`` and ``collection``, such as ``instance__``.
        """
        known = list(models.Type.objects.using(settings.DATABASE).values_list("identifier", "pk"))
        condition = Q(pk__in=[])
        types_by_lane: dict[str, set[int]] = {}
        whole: set[int] = set()
        for pattern, lane in self.places or ():
            keys = {key for identifier, key in known if _matches(pattern, identifier)}
            whole |= keys if lane is None else set()
            if lane is not None:
                types_by_lane.setdefault(lane, set()).update(keys)
        if whole:
            condition |= Q(**{f"{prefix}type__in": whole})
        for lane, keys in types_by_lane.items():
            condition |= Q(**{f"{prefix}type__in": keys, f"{prefix}collection": lane})
        return condition


def _parse_place(item: Any) -> tuple[str, str | None]:
    """Return the pattern and the collection in one item of the list that the rule returned.

    The collection is None for whole Types. Raises ImproperlyConfigured if the item is invalid.
    """
    if isinstance(item, str):
        return item, None
    if isinstance(item, tuple) and len(item) == 2 and all(isinstance(part, str) for part in item):
        return item
    raise ImproperlyConfigured(
        f"ATP['AUTHORIZE'] returned the item {item!r}. Each item must be a Type, a pattern such as "
        "'shop.*', or a pair of a Type or pattern and a collection."
    )


def _matches(pattern: str, type: str) -> bool:
    """Return True if ``pattern`` matches ``type``, which is a Type or another pattern.

    ``pattern`` matches another pattern if it certainly matches all Types that the other one does.
    """
    if not set(type) & set(_WILD):
        return fnmatch.fnmatchcase(type, pattern)
    head = pattern[:-1]
    is_prefix = pattern.endswith("*") and not set(head) & set(_WILD)
    return type == pattern or (is_prefix and type.startswith(head))


@cache
def rule() -> Callable[[Any, str], Iterable[Any] | None] | None:
    """Return the function that ``ATP["AUTHORIZE"]`` names, or None if the setting is empty.

    Raises ImproperlyConfigured if the setting is invalid.
    """
    path = settings.AUTHORIZE
    if not path:
        return None
    try:
        found = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(
            f"ATP['AUTHORIZE']: {path!r} cannot be imported: {error}."
        ) from error
    if not callable(found):
        raise ImproperlyConfigured(
            f"ATP['AUTHORIZE']: {path!r} must be a function of a user and a permission, but it is "
            f"{found!r}."
        )
    return found


def _forget_rule(*, setting: str, **kwargs: Any) -> None:
    if setting == "ATP":
        rule.cache_clear()


setting_changed.connect(_forget_rule)


def grant_of(user: Any, permission: str) -> Grant:
    """Return the Types and lanes to which the project's rule restricts a user's permission.

    The caller checks that Django grants the permission. The rule is called only once for each user
    object and permission, because Django reads a user object's permissions only once, too.
    """
    may = rule()
    if may is None:
        return Grant(None)
    known = user.__dict__.setdefault(_CACHE, {})
    if permission not in known:
        places = may(user, permission)
        if isinstance(places, (str, bytes)):
            raise ImproperlyConfigured(
                f"ATP['AUTHORIZE'] returned {places!r} instead of None or a list."
            )
        known[permission] = Grant(places)
    return known[permission]


def allows(user: Any, permission: str, subject: Any) -> bool:
    """Return True if the project's rule lets a user's permission apply to a subject.

    The subject is a row, or a pair of a Type's identifier and a collection, either of which may be
    None. A subject without a Type, such as a daemon, needs a permission without restriction.
    """
    grant = grant_of(user, permission)
    if grant.is_everything:
        return True
    if isinstance(subject, models.Graph):
        return narrow_rows(user, permission, _rows(models.Graph)).filter(pk=subject.pk).exists()
    return all(grant.covers(*place) for place in _places(subject))


def _places(subject: Any) -> list[Place]:
    """Return the pairs of Type and collection to which a subject belongs."""
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
        return [(type, None) for type in downstreams.calling_types(subject)] or [EVERYTHING]
    return [EVERYTHING]


def narrow_rows(user: Any, permission: str, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return the rows to which the user's permission applies, filtered in SQL."""
    grant = grant_of(user, permission)
    if grant.is_everything:
        return rows
    model = rows.model
    if model is models.Gate:  # the gate over everything also holds what the user may see
        return rows.filter(Q(grant.lanes(), type__isnull=False) | Q(type=None))
    if model in _LANES:
        return rows.filter(grant.lanes(_LANES[model]))
    if model in _TYPES:
        return rows.filter(**{f"{_TYPES[model]}__in": grant.types()})
    if model in _GRAPHS:
        nodes = _rows(models.Node).filter(graph=OuterRef("pk"))
        inside = grant.lanes("instance__")
        graphs = _rows(models.Graph).filter(Exists(nodes), ~Exists(nodes.exclude(inside)))
        within = Q(**{f"{_GRAPHS[model]}__in": graphs.values("pk")})
        if model is models.Node:  # a node without a graph waits in the line of a schedule
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
    """Return the object that ``find`` returns, if the project's rule lets the user use it.

    The first of ``needs`` is the permission to see the object. If this permission does not apply to
    the object, the user gets the same error as for an object that does not exist. The error
    suggests no other names if the rule restricts the permission. Raises PermissionDenied if another
    of the permissions does not apply to the object.
    """
    grant = grant_of(user, needs[0])
    if grant.is_everything:
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
    """Raise PermissionDenied unless the rule lets all these permissions apply to a subject."""
    for permission in needs:
        if not allows(user, permission, subject):
            raise PermissionDenied(f"Your permission {permission} does not apply here.")


def require_operation(
    user: Any, operation: Operation, subject: Any, values: dict[str, Any]
) -> None:
    """Raise PermissionDenied unless the rule lets a user perform an operation on its subject.

    ``values`` are the operation's arguments. To move an Instance or a schedule into another lane,
    the user needs the permission for that lane too. ``subject`` is None for an operation on all
    Instances that match a filter. Then the permission must apply to all that the filter can select.
    """
    needs = operation.permissions(subject)
    require(user, _selected_place(values) if subject is None else subject, *needs)
    if isinstance(subject, (models.Instance, models.Schedule)) and "collection" in values:
        require(user, (subject.type.identifier, values["collection"]), *needs)


def _selected_place(values: dict[str, Any]) -> Place:
    """Return the pair of Type and collection that contains all rows that a filter can select."""
    type = values.get("type")
    if type is None and values.get("error") is not None:
        type = queue.get_error_group(values["error"]).type
    return type, None if type is None else values.get("collection")


def problems() -> list[str]:
    """Return the errors in the setting ``ATP["AUTHORIZE"]``, as sentences."""
    try:
        rule()
    except ImproperlyConfigured as error:
        return [str(error)]
    return []


# Enqueueing over HTTP.


def require_enqueue(user: Any, types: Iterable[Declaration]) -> None:
    """Raise PermissionDenied unless the user may enqueue all ``types`` with their options."""
    types = list(types)
    needed = dict.fromkeys(
        name for each in types for name in permissions_to_enqueue(each.options.existing)
    )
    if lacked := missing_permissions(user, needed):
        raise PermissionDenied(describe_missing(lacked))
    for each in types:
        require(user, (each.identifier, each.options.collection), ENQUEUE)


def enqueue(user: Any, calls: Sequence[queue.Call]) -> list[Instance]:
    """Enqueue all calls or none, and return the Instances.

    The caller checks that the user may enqueue the calls. With the option ``existing``, a call may
    return or change an Instance that exists already. If the user may not do that, raises
    PermissionDenied, and writes nothing.
    """
    try:
        if rule() is None:
            return queue.enqueue_calls(calls)
        with transaction.atomic(using=settings.DATABASE):
            found = queue.enqueue_calls(calls)
            for call, instance in zip(calls, found, strict=True):
                if not instance.is_new:
                    require(
                        user, instance, *permissions_to_enqueue(call.task_type.options.existing)[1:]
                    )
            return found
    except DuplicateIdentifier as error:
        if error.instance is None or holds(user, VIEW_INSTANCE, error.instance):
            raise
        # The message names the existing Instance and its state, which the user may not see.
        raise type(error)("The identifier or the unique key is taken.") from None


# Django's permissions and the rule together.


def holds(user: Any, name: str, *subjects: Any) -> bool:
    """Return True if the user has a permission that applies to all these subjects.

    Without subjects, the permission must apply to everything.
    """
    found = subjects or (EVERYTHING,)
    return user.has_perm(name) and all(allows(user, name, each) for each in found)


def may_see_errors(user: Any, *subjects: Any) -> bool:
    """Return True if the user may see the errors of these subjects, with VIEW_LOG or OPERATE."""
    return any(holds(user, name, *subjects) for name in (VIEW_LOG, OPERATE))


def permissions_to_enqueue(existing: str | None) -> tuple[str, ...]:
    """Return the permissions that a user needs to enqueue with the option ``existing``.

    The option lets an enqueue return an Instance that exists already, or change it.
    """
    if existing in (None, "raise"):
        return (ENQUEUE,)
    return (ENQUEUE, VIEW_INSTANCE) if existing == "return" else (ENQUEUE, VIEW_INSTANCE, OPERATE)


def explanation_options(user: Any, *subjects: Any) -> dict[str, bool]:
    """Return the arguments that tell an explanation whether to show errors and daemons' names."""
    return {"errors": may_see_errors(user, *subjects), "daemons": holds(user, VIEW_DAEMON)}


def visible_problems(user: Any, problems: Iterable[QueueProblem]) -> list[QueueProblem]:
    """Return those problems of the queue that concern Instances which the user may see.

    A problem without a Type needs an unrestricted permission. Daemons' names and error lines are
    left out if the user may not see them.
    """
    names = holds(user, VIEW_DAEMON)
    visible = []
    for each in problems:
        places = [(type, each.collection) for type in each.types]
        if holds(user, VIEW_INSTANCE, *places):
            shown = each if names else each.without_daemon()
            visible.append(shown if may_see_errors(user, *places) else replace(shown, error=""))
    return visible


def missing_permissions(user: Any, permissions: Iterable[str]) -> list[str]:
    """Return those of the permissions that Django does not grant to the user."""
    return [name for name in permissions if not user.has_perm(name)]


def describe_missing(names: Iterable[str]) -> str:
    """Return the sentence that tells a user which permissions are missing."""
    return f"You lack the permission {' and '.join(names)}."
