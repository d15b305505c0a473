"""The verbs of limits: how much of a Type or a lane all daemons together may run, and may wait."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...conf import settings
from ...exceptions import InvalidLimit
from ...models import Limit
from ...store import get_store
from ...words.hints import seconds
from ...words.rates import check_limits, default_burst, per_second
from ..actor import check_by
from ..counting import waiting
from ..migrated import needs_tables
from ..overload import known
from ..registry import registry
from ..types import get_type
from .scope import scope_of

if TYPE_CHECKING:
    from ...authoring.task_type import TaskType
    from ...store.values import Scope
    from ..types import TypeLike

_DECLARED = (
    *("max_running", "max_running_per_collection", "rate", "burst", "weight"),
    *("max_waiting", "max_wait"),
)
# Stands for "leave it as it is".
KEEP: Any = object()


@needs_tables
def limit(
    type: TypeLike,
    collection: str | None = None,
    *,
    max_running: int | None = KEEP,
    max_running_per_collection: int | None = KEEP,
    rate: str | None = KEEP,
    burst: int | None = KEEP,
    weight: float | None = KEEP,
    max_waiting: int | None = KEEP,
    max_wait: timedelta | float | None = KEEP,
    by: str = "",
) -> Limit:
    """Set limits of a Type or a lane, over all daemons; return the Limit.

    ``max_running`` is the maximum number of claimed Tasks, ``max_running_per_collection`` that of
    each lane of the Type without a ``max_running`` of its own. ``rate``, as "100/m", is the
    maximum of starts in a time, and ``burst`` how many of them may start at once after a pause.
    ``weight`` is the Type's share beside other Types. ``max_waiting`` is how many may wait, and
    ``max_wait``, in seconds or as a timedelta, how long the oldest due one may have waited,
    before an enqueue raises QueueFull; if both are given, both must be exceeded. A limit that is
    not given stays; but a ``rate`` without a ``burst`` sets the burst by the rate. None removes a
    limit. Raises UnknownType or InvalidLimit.
    """
    check_by(by)
    scope = scope_of(type, collection, InvalidLimit)
    if scope.type is None:
        raise InvalidLimit("Limits are of a Type, or of a lane of it: say which.")
    if weight is not KEEP and scope.collection is not None:
        raise InvalidLimit("A weight is of a Type: its lanes share evenly.")
    if max_running_per_collection is not KEEP and scope.collection is not None:
        raise InvalidLimit(
            "max_running_per_collection is of a Type: of one lane of it give max_running."
        )
    given = {
        "max_running": max_running,
        "max_running_per_collection": max_running_per_collection,
        "rate": rate,
        "burst": burst,
        "weight": weight,
        "max_waiting": max_waiting,
        "max_wait": max_wait,
    }
    changes = _changes(scope, given)
    set_limit = get_store().limit(scope, who=by, **changes)
    known.forget()
    return set_limit


@needs_tables
def unlimit(type: TypeLike, collection: str | None = None, *, by: str = "") -> Left:
    """Replace the limits of a Type or a lane by those that the code declares; return :class:`Left`.

    The code is that of this process; it declares no limits of single lanes. If it does not
    declare the Type, the current limits hold until the Type is registered next.
    """
    check_by(by)
    scope = scope_of(type, collection, InvalidLimit)
    if scope.type is None:
        raise InvalidLimit("Limits are of a Type, or of a lane of it: say which.")
    declared: dict[str, Any] | None = {} if collection is not None else None
    if declared is None and str(type) in registry:
        declared = declared_limits(registry.get(str(type)))
    was_set = get_store().unlimit(scope, declared, who=by)
    known.forget()
    rows = Limit.objects.using(settings.DATABASE).filter(subject=scope.subject)
    return Left(was_set=was_set, is_declared=declared is not None, limit=rows.first())


@dataclass(frozen=True, kw_only=True)
class Left:
    """The outcome of :func:`unlimit`: ``was_set`` if an operator had set limits.

    ``limit`` is the Limit that holds now. ``is_declared`` says that it comes from the code; False
    if this process does not declare the Type.
    """

    was_set: bool
    is_declared: bool
    limit: Limit | None


@needs_tables
def limits(type: TypeLike | None = None) -> list[Limit]:
    """Return the Limits of all scopes, or of a Type and its lanes."""
    rows = Limit.objects.using(settings.DATABASE).select_related("type")
    return list(rows if type is None else rows.filter(type=get_type(str(type))))


def fullness(limit: Limit) -> str:
    """Return "812 of 1000": how many wait, of how many that may; empty without a maximum."""
    if limit.max_waiting is None:
        return ""
    most = limit.max_waiting + 1
    found = waiting(limit.type.identifier, limit.collection, most=most)
    return f"{'more than ' if found == most else ''}{min(found, most - 1)} of {most - 1}"


def declared_limits(task_type: TaskType) -> dict[str, Any]:
    """Return the limits that a Type declares, by column of Limit; empty if it declares none."""
    given = {name: value for name in _DECLARED if (value := getattr(task_type, name)) is not None}
    if "rate" in given:
        given["per_second"] = per_second(given["rate"])
        given.setdefault("burst", default_burst(given["rate"]))
    if given.get("weight") is not None:
        given["weight"] = float(given["weight"])
    if "max_wait" in given:
        given["max_wait"] = seconds(given["max_wait"])
    return given


def _changes(scope: Scope, values: dict[str, Any]) -> dict[str, Any]:
    """Return the columns to be written. Raises InvalidLimit."""
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not KEEP}
    if not given:
        raise InvalidLimit(
            "Say what is to be limited: max_running, rate, burst, weight, max_waiting or max_wait."
        )
    rate = given.get("rate")
    if "burst" in given and "rate" not in given:
        rows = Limit.objects.using(settings.DATABASE).filter(subject=scope.subject)
        rate = rows.values_list("rate", flat=True).first() or None
    check_limits(**given | {"rate": rate})
    if given.keys() & {"rate", "burst"} and given.get("burst") is None:
        given["burst"] = 1 if rate is None else default_burst(rate)
    if "rate" in given:
        given["per_second"] = None if rate is None else per_second(rate)
        given["rate"] = rate or ""
    if given.get("weight", KEEP) is None:
        given["weight"] = 1.0
    if given.get("max_wait") is not None:
        given["max_wait"] = seconds(given["max_wait"])
    return given
