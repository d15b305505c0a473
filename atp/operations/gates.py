"""Gates and limits: their targets, setting them, rates as text, their log."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..conf import settings
from ..exceptions import LONGEST_DELAY, InvalidGate, InvalidLimit, InvalidOption
from ..models import Gate, Limit, LogRecord
from ..options import check_text, instant
from ..store import get_store
from ..store.values.scopes import Scope
from ..text import of_limits, seconds
from . import admission
from .base import check_by, needs_tables
from .instances import waiting
from .registry import get_type, registry

if TYPE_CHECKING:
    import builtins

    from ..exceptions import ATPError
    from .registry import Declaration, TypeLike


# The log of gates, limits and Types.


@needs_tables
def scope_log(
    type: TypeLike | None = None,
    collection: str | None = None,
    *,
    kind: str = "",
    limit: int = 100,
) -> list[LogRecord]:
    """Return the latest records about a scope, the newest first, each with its ``scope``.

    ``scope`` is a pair: the identifier of the Type, and the collection. Records of a Type include
    those of its lanes. Without a Type the scope is everything. ``kind`` ("gate" or "limits")
    selects records; with a ``kind`` and no Type, of all scopes. Raises UnknownType, InvalidGate.
    """
    scope = scope_of(type, collection)
    records = LogRecord.objects.using(settings.DATABASE)
    if collection is not None:
        records = records.about(scope.subject[:255])
    elif scope.type is not None:
        records = records.about_type(scope.type.identifier)
    elif kind:
        records = records.about_any()
    else:
        records = records.about(scope.subject)
    if kind:
        records = records.filter(kind=kind)
    found = list(records.reverse()[:limit])
    for record in found:
        record.scope = _scope(record.subject)  # type: ignore[attr-defined]
    return found


def _scope(subject: str) -> tuple[str | None, str | None]:
    """Return the identifier of the Type and the collection for the subject of a record."""
    noun, _, name = subject.partition(":")
    if noun not in ("type", "lane"):
        return None, None
    identifier, _, collection = name.partition("/")
    return identifier, collection if noun == "lane" else None


# The verbs of gates: hold, drop and open.


@needs_tables
def hold(
    type: TypeLike | None = None,
    collection: str | None = None,
    *,
    reason: str = "",
    until: datetime | timedelta | None = None,
    expected: datetime | str | None = None,
    by: str = "",
) -> Gate:
    """Hold a Type, a lane or everything: waiting Tasks there are not claimed. Returns the Gate.

    ``until``, a datetime or a timedelta from now, is when the gate opens by itself. ``was`` of
    the returned Gate is the shut gate that it replaces, or None. ``expected`` is the required
    current state: "open", "hold" or "drop", or the datetime since when the gate has its state.
    Raises UnknownType, InvalidGate, or GateChanged if somebody else was quicker.
    """
    return _shut("hold", type, collection, reason, until, expected, by)


@needs_tables
def drop(
    type: TypeLike | None = None,
    collection: str | None = None,
    *,
    reason: str = "",
    until: datetime | timedelta | None = None,
    expected: datetime | str | None = None,
    by: str = "",
) -> Gate:
    """Drop waiting Tasks of a scope, and those enqueued from now on: they become FAILED (DROPPED).

    The daemons drop them, in portions. Parameters and exceptions are those of :func:`hold`.
    """
    return _shut("drop", type, collection, reason, until, expected, by)


@needs_tables
def open_gate(
    type: TypeLike | None = None,
    collection: str | None = None,
    *,
    reason: str = "",
    expected: datetime | str | None = None,
    by: str = "",
) -> Gate | None:
    """Open a gate; return the Gate that was shut. If none was, write nothing and return None.

    Gates of other scopes stay as they are. For ``expected`` and the exceptions see :func:`hold`.
    """
    check_by(by)
    scope = scope_of(type, collection)
    _check_reason(reason)
    expected = _expected(expected)
    return get_store().open(scope, who=by, reason=reason, expected=expected)


@needs_tables
def gates(*, now: datetime | None = None) -> list[Gate]:
    """Return the Gates of all scopes that are shut."""
    now = _instant("now", now) or get_store().now()
    rows = Gate.objects.using(settings.DATABASE).select_related("type")
    return [gate for gate in rows if gate.until is None or gate.until > now]


def _shut(
    mode: str,
    type: TypeLike | None,
    collection: str | None,
    reason: str,
    until: datetime | timedelta | None,
    expected: datetime | str | None,
    by: str,
) -> Gate:
    check_by(by)
    scope = scope_of(type, collection)
    _check_reason(reason)
    store = get_store()
    until, expected = _until(until, store.now), _expected(expected)
    return store.shut(scope, mode, who=by, reason=reason, until=until, expected=expected)


def _expected(expected: object) -> datetime | str | None:
    if expected in (None, "open", "hold", "drop"):
        return expected
    if isinstance(expected, datetime):
        return _instant("expected", expected)
    raise InvalidGate(
        f"expected={expected!r}: must be 'open', 'hold' or 'drop', or the time at which the gate "
        "was last set."
    )


def _check_reason(reason: object) -> None:
    try:
        check_text("reason", reason)
    except InvalidOption as wrong:
        raise InvalidGate(str(wrong)) from None


def _until(until: datetime | timedelta | None, now: Callable[[], datetime]) -> datetime | None:
    """Return ``until`` as a future time in UTC. Raises InvalidGate."""
    until = _instant("until", until, now)
    if until is not None and until <= now():
        raise InvalidGate(f"until={until} has passed.")
    return until


def _instant(
    name: str, time: datetime | timedelta | None, now: Callable[[], datetime] | None = None
) -> datetime | None:
    try:
        return instant(name, time, now)
    except InvalidOption as wrong:
        raise InvalidGate(str(wrong)) from None


# The verbs of limits: how much of a Type or a lane all daemons together may run, and may wait.

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
    admission.forget()
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
    admission.forget()
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


def declared_limits(task_type: Declaration) -> dict[str, Any]:
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


# The scope of a gate or a limit: a Type, one of its lanes, or everything.


def scope_of(
    type: TypeLike | None = None,
    collection: str | None = None,
    error: builtins.type[ATPError] = InvalidGate,
) -> Scope:
    """Return the :class:`Scope`. Raises UnknownType, or ``error`` if the collection is invalid."""
    if collection is not None:
        if type is None:
            raise error("A lane is of a Type: say which.")
        try:
            check_text("collection", collection)
        except InvalidOption as wrong:
            raise error(str(wrong)) from None
    return Scope(None if type is None else get_type(str(type)), collection)


# Rates as people write them ("50/s", "100/min", "5/10s"), and the ranges of limits.

SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
# As a pattern of JSON schema, too.
PATTERN = r"^([1-9][0-9]{0,8})/([1-9][0-9]{0,4})?(min|[smhdw])$"
_RATE = re.compile(PATTERN)
_NOTHING = re.compile(r"0+(\.0*)?(/.*)?", re.ASCII)
# A rate of 0 is refused with this hint.
HOLD = "To let nothing start, use a gate: hold keeps all Instances waiting."
# A max_waiting of 0 is refused with this hint.
GATE = "To let nothing in, use a gate: drop fails each Instance that is enqueued."
# The largest count, and the range of weights.
MOST = 1_000_000
LIGHTEST, HEAVIEST = 0.001, 1000
# The shortest max_wait, in seconds.
SHORTEST_WAIT = 1
# The default burst is the number of tasks that the rate allows in this time, in seconds.
BURST = 0.1


def per_second(rate: object) -> float:
    """Return a rate as a number of tasks a second. Raises InvalidLimit."""
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if found is None:
        raise InvalidLimit(
            f"rate={rate!r}: must be a number, '/' and a time, as '50/s', '100/m' or '5/10s'; "
            f"times are {', '.join(SECONDS)}.{_hint(_NOTHING.fullmatch(str(rate)))}"
        )
    count, times, unit = found.groups()
    return int(count) / (int(times or 1) * SECONDS[unit])


def default_burst(rate: str) -> int:
    """Return the default burst for a rate."""
    return max(1, int(per_second(rate) * BURST))


def check_limits(
    *,
    max_running: object = None,
    max_running_per_collection: object = None,
    rate: object = None,
    burst: object = None,
    weight: Any = None,
    max_waiting: object = None,
    max_wait: object = None,
) -> None:
    """Raise InvalidLimit for a value out of range. None means no limit, or not given."""
    counts = {
        "max_running": max_running,
        "max_running_per_collection": max_running_per_collection,
        "burst": burst,
        "max_waiting": max_waiting,
    }
    for name, value in counts.items():
        if value is not None and not _is_count(value):
            is_nothing = name != "burst" and value == 0 and not isinstance(value, bool)
            hint = _hint(is_nothing, GATE if name == "max_waiting" else HOLD)
            raise InvalidLimit(f"{name}={value!r}: must be a whole number from 1 to {MOST}.{hint}")
    _check_max_wait(max_wait)
    if rate is not None:
        per_second(rate)
    elif burst is not None:
        raise InvalidLimit(f"burst={burst!r}: needs a rate, and none is given.")
    if weight is not None:
        is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not is_number or not LIGHTEST <= weight <= HEAVIEST:
            raise InvalidLimit(
                f"weight={weight!r}: must be a number from {LIGHTEST} to {HEAVIEST}."
            )


def _check_max_wait(value: object) -> None:
    if value is None:
        return
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise InvalidLimit(f"max_wait={value!r}: must be seconds or a timedelta.")
    if not SHORTEST_WAIT <= number <= LONGEST_DELAY:
        hint = _hint(number == 0, GATE)
        raise InvalidLimit(
            f"max_wait={value!r}: must be from {SHORTEST_WAIT} to {LONGEST_DELAY:.0f} s.{hint}"
        )


def _hint(is_nothing: object, hint: str = HOLD) -> str:
    return f" {hint}" if is_nothing else ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


def of_unlimit(left: Left) -> str:
    """Return the outcome of :func:`~atp.operations.gates.unlimit` in words."""
    told = "The limits are left to the code" if left.was_set else "No operator has set limits there"
    if left.is_declared:
        return f"{told}: {of_limits(left.limit)}."
    return (
        f"{told}. This process does not declare the Type, so the present limits stay until the "
        f"Type is next registered: {of_limits(left.limit)}."
    )
