"""Operations on gates and limits: set them, read them, and read the log about them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..conf import settings
from ..exceptions import LONGEST_DELAY, InvalidGate, InvalidLimit, InvalidOption
from ..models import Gate, Limit, LogRecord
from ..options import check_text, resolve_time
from ..store import get_store
from ..store.facts import Scope
from ..text import as_timedelta, describe_limits
from . import admission
from .base import check_actor, needs_tables
from .instances import waiting
from .registry import get_type, registry

if TYPE_CHECKING:
    import builtins

    from ..exceptions import ATPError
    from .registry import Declaration, TypeLike

_DECLARED = (
    *("max_running", "max_running_per_collection", "rate", "burst", "weight"),
    *("max_waiting", "max_wait"),
)
# Stands for a limit that stays as it is.
KEEP: Any = object()

SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
# Also the pattern in JSON schemas.
PATTERN = r"^([1-9][0-9]{0,8})/([1-9][0-9]{0,4})?(min|[smhdw])$"
_RATE = re.compile(PATTERN)
_NOTHING = re.compile(r"0+(\.0*)?(/.*)?", re.ASCII)
# The hints for a rate of 0, and for a max_waiting of 0.
HOLD_HINT = "To let nothing start, use a gate: hold keeps all Instances waiting."
DROP_HINT = "To let nothing in, use a gate: drop fails each Instance that is enqueued."
# The largest count, and the range of weights.
MOST = 1_000_000
LIGHTEST, HEAVIEST = 0.001, 1000
# In seconds: the shortest max_wait.
SHORTEST_WAIT = 1
# In seconds: the default burst is the number of starts that the rate permits in this time.
BURST = 0.1


# The log


@needs_tables
def scope_log(
    type: TypeLike | None = None,
    collection: str | None = None,
    *,
    kind: str = "",
    limit: int = 100,
) -> list[LogRecord]:
    """Return the latest log records about a Type, a lane or everything, the newest first.

    The records about a Type include those about its lanes. ``kind``, "gate" or "limits", selects
    the records of one kind. With ``kind`` and no Type, this returns the records about all Types
    and lanes. Each record gets an attribute ``scope``, a pair of the Type's identifier and the
    collection, each of which can be None. Raises UnknownType or InvalidGate.
    """
    target = target_of(type, collection)
    records = LogRecord.objects.using(settings.DATABASE)
    if collection is not None:
        records = records.about(target.subject[:255])
    elif target.type is not None:
        records = records.about_type(target.type.identifier)
    elif kind:
        records = records.about_any()
    else:
        records = records.about(target.subject)
    if kind:
        records = records.filter(kind=kind)
    latest = list(records.reverse()[:limit])
    for record in latest:
        record.scope = _read_subject(record.subject)  # type: ignore[attr-defined]
    return latest


def _read_subject(subject: str) -> tuple[str | None, str | None]:
    """Parse the subject of a log record into the Type's identifier and the collection.

    Each of the two is None if the record is not about one.
    """
    noun, _, name = subject.partition(":")
    if noun not in ("type", "lane"):
        return None, None
    identifier, _, collection = name.partition("/")
    return identifier, collection if noun == "lane" else None


# Gates


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
    """Hold a Type, a lane or everything, so that daemons claim no waiting Tasks of it.

    ``until``, a datetime or a timedelta from now, is when the gate opens again automatically.
    ``expected`` is the state that the gate must have now: "open", "hold" or "drop", or the datetime
    at which the gate was last set. Returns the Gate. Its attribute ``was`` is the shut gate that it
    replaces, or None. Raises UnknownType, InvalidGate, or GateChanged if the gate is not in the
    expected state.
    """
    return _shut_gate("hold", type, collection, reason, until, expected, by)


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
    """Drop the waiting Tasks of a Type, a lane or everything, and those enqueued from now on.

    Daemons drop the Tasks in portions, and their Instances become FAILED (DROPPED). The parameters,
    the result and the exceptions are those of :func:`hold`.
    """
    return _shut_gate("drop", type, collection, reason, until, expected, by)


@needs_tables
def open_gate(
    type: TypeLike | None = None,
    collection: str | None = None,
    *,
    reason: str = "",
    expected: datetime | str | None = None,
    by: str = "",
) -> Gate | None:
    """Open the gate of a Type, of a lane or of everything; return the Gate that was shut.

    If the gate was open already, this writes nothing and returns None. The gates of other targets
    stay as they are. For ``expected`` and the exceptions see :func:`hold`.
    """
    check_actor(by)
    target = target_of(type, collection)
    _check_reason(reason)
    expected = _check_expected(expected)
    return get_store().control.open(target, who=by, reason=reason, expected=expected)


@needs_tables
def gates(*, now: datetime | None = None) -> list[Gate]:
    """Return all Gates that are shut now."""
    now = _resolve_time("now", now) or get_store().now()
    rows = Gate.objects.using(settings.DATABASE).select_related("type")
    return [gate for gate in rows if gate.until is None or gate.until > now]


def _shut_gate(
    mode: str,
    type: TypeLike | None,
    collection: str | None,
    reason: str,
    until: datetime | timedelta | None,
    expected: datetime | str | None,
    by: str,
) -> Gate:
    check_actor(by)
    target = target_of(type, collection)
    _check_reason(reason)
    store = get_store()
    until, expected = _check_until(until, store.now), _check_expected(expected)
    return store.control.shut(target, mode, who=by, reason=reason, until=until, expected=expected)


def _check_expected(expected: object) -> datetime | str | None:
    if expected in (None, "open", "hold", "drop"):
        return expected
    if isinstance(expected, datetime):
        return _resolve_time("expected", expected)
    raise InvalidGate(
        f"expected={expected!r}: must be 'open', 'hold' or 'drop', or the time at which the gate "
        "was last set."
    )


def _check_reason(reason: object) -> None:
    try:
        check_text("reason", reason)
    except InvalidOption as wrong:
        raise InvalidGate(str(wrong)) from None


def _check_until(
    until: datetime | timedelta | None, now: Callable[[], datetime]
) -> datetime | None:
    """Return ``until`` as a time in UTC. Raises InvalidGate if the time is not in the future."""
    until = _resolve_time("until", until, now)
    if until is not None and until <= now():
        raise InvalidGate(f"until={until} has passed.")
    return until


def _resolve_time(
    name: str, time: datetime | timedelta | None, now: Callable[[], datetime] | None = None
) -> datetime | None:
    try:
        return resolve_time(name, time, now)
    except InvalidOption as wrong:
        raise InvalidGate(str(wrong)) from None


# Limits


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
    """Set limits for a Type or a lane over all daemons; return the Limit.

    ``max_running`` is the maximum number of claimed Tasks. ``max_running_per_collection`` is the
    same for each lane of the Type that has no ``max_running`` of its own. ``rate``, such as
    "100/m", is the maximum number of starts per period, and ``burst`` is how many Tasks may start
    at once after a pause. ``weight`` is the Type's share relative to other Types.

    An enqueue raises QueueFull if more than ``max_waiting`` Tasks would wait, or if the oldest due
    Task has waited longer than ``max_wait`` (seconds or a timedelta). If a Type or lane has both of
    these limits, an enqueue raises QueueFull only if both are exceeded.

    None removes a limit. Limits that are left out stay as they are, except that a ``rate`` without
    a ``burst`` sets the default burst for that rate. Raises UnknownType or InvalidLimit.
    """
    check_actor(by)
    target = target_of(type, collection, InvalidLimit)
    if target.type is None:
        raise InvalidLimit("A limit needs a Type, or a Type and a collection.")
    if weight is not KEEP and target.collection is not None:
        raise InvalidLimit("Only a Type has a weight: its lanes share evenly.")
    if max_running_per_collection is not KEEP and target.collection is not None:
        raise InvalidLimit(
            "Only a Type has max_running_per_collection: for one lane, set max_running."
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
    changes = _prepare_columns(target, given)
    set_limit = get_store().control.limit(target, who=by, **changes)
    admission.forget_counts()
    return set_limit


@needs_tables
def unlimit(type: TypeLike, collection: str | None = None, *, by: str = "") -> UnlimitOutcome:
    """Replace the limits for a Type or a lane with those that the code of this process declares.

    Code declares no limits for a single lane, so a lane then has none. If this process does not
    declare the Type, the current limits apply until the Type is next registered. Returns an
    :class:`UnlimitOutcome`. Raises UnknownType or InvalidLimit.
    """
    check_actor(by)
    target = target_of(type, collection, InvalidLimit)
    if target.type is None:
        raise InvalidLimit("A limit needs a Type, or a Type and a collection.")
    declared: dict[str, Any] | None = {} if collection is not None else None
    if declared is None and str(type) in registry:
        declared = declared_limits(registry.get(str(type)))
    was_set = get_store().control.unlimit(target, declared, who=by)
    admission.forget_counts()
    rows = Limit.objects.using(settings.DATABASE).filter(subject=target.subject)
    return UnlimitOutcome(was_set=was_set, is_declared=declared is not None, limit=rows.first())


@dataclass(frozen=True, kw_only=True)
class UnlimitOutcome:
    """The outcome of :func:`unlimit`.

    ``was_set`` is True if an operator had set limits. ``limit`` is the Limit that applies now, or
    None. ``is_declared`` is True if this limit comes from the code of this process.
    """

    was_set: bool
    is_declared: bool
    limit: Limit | None


@needs_tables
def limits(type: TypeLike | None = None) -> list[Limit]:
    """Return all Limits, or those for a Type and its lanes."""
    rows = Limit.objects.using(settings.DATABASE).select_related("type")
    return list(rows if type is None else rows.filter(type=get_type(str(type))))


def describe_queue_depth(limit: Limit) -> str:
    """Return how many Instances wait and how many may, such as "812 of 1000".

    Returns "" if there is no maximum.
    """
    if limit.max_waiting is None:
        return ""
    most = limit.max_waiting + 1
    count = waiting(limit.type.identifier, limit.collection, most=most)
    return f"{'more than ' if count == most else ''}{min(count, most - 1)} of {most - 1}"


def declared_limits(task_type: Declaration) -> dict[str, Any]:
    """Return the limits that a Type declares as a dict by column of Limit; {} if there are none."""
    given = {name: value for name in _DECLARED if (value := getattr(task_type, name)) is not None}
    if "rate" in given:
        given["per_second"] = per_second(given["rate"])
        given.setdefault("burst", default_burst(given["rate"]))
    if given.get("weight") is not None:
        given["weight"] = float(given["weight"])
    if "max_wait" in given:
        given["max_wait"] = as_timedelta(given["max_wait"])
    return given


def _prepare_columns(target: Scope, values: dict[str, Any]) -> dict[str, Any]:
    """Check new limits and return a dict of the values to write, by column of Limit.

    Raises InvalidLimit.
    """
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not KEEP}
    if not given:
        raise InvalidLimit(
            "Set a limit: max_running, rate, burst, weight, max_waiting or max_wait."
        )
    rate = given.get("rate")
    if "burst" in given and "rate" not in given:
        rows = Limit.objects.using(settings.DATABASE).filter(subject=target.subject)
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
        given["max_wait"] = as_timedelta(given["max_wait"])
    return given


# The target of a gate or a limit: a Type, a lane, or everything


def target_of(
    type: TypeLike | None = None,
    collection: str | None = None,
    error: builtins.type[ATPError] = InvalidGate,
) -> Scope:
    """Return the target of a gate or a limit as a :class:`Scope`.

    Raises UnknownType, or ``error`` if the collection is invalid.
    """
    if collection is not None:
        if type is None:
            raise error("A collection needs a Type.")
        try:
            check_text("collection", collection)
        except InvalidOption as wrong:
            raise error(str(wrong)) from None
    return Scope(None if type is None else get_type(str(type)), collection)


# Rates as people write them ("50/s", "100/min", "5/10s"), and the ranges of limits


def per_second(rate: object) -> float:
    """Return how many starts per second a rate such as "100/m" allows. Raises InvalidLimit."""
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if match is None:
        raise InvalidLimit(
            f"rate={rate!r}: must be a number, '/' and a time, as '50/s', '100/m' or '5/10s'. "
            f"The units of time are {', '.join(SECONDS)}.{_add_hint(_NOTHING.fullmatch(str(rate)))}"
        )
    count, times, unit = match.groups()
    return int(count) / (int(times or 1) * SECONDS[unit])


def default_burst(rate: str) -> int:
    """Return how many Tasks a rate lets start at once, unless a ``burst`` is set."""
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
    """Raise InvalidLimit if a limit is out of range.

    None is always valid: there is no limit, or the caller does not change it.
    """
    counts = {
        "max_running": max_running,
        "max_running_per_collection": max_running_per_collection,
        "burst": burst,
        "max_waiting": max_waiting,
    }
    for name, value in counts.items():
        if value is not None and not _is_count(value):
            is_nothing = name != "burst" and value == 0 and not isinstance(value, bool)
            hint = _add_hint(is_nothing, DROP_HINT if name == "max_waiting" else HOLD_HINT)
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
        hint = _add_hint(number == 0, DROP_HINT)
        raise InvalidLimit(
            f"max_wait={value!r}: must be from {SHORTEST_WAIT} to {LONGEST_DELAY:.0f} s.{hint}"
        )


def _add_hint(is_nothing: object, hint: str = HOLD_HINT) -> str:
    return f" {hint}" if is_nothing else ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


def describe_unlimit(outcome: UnlimitOutcome) -> str:
    """Return a sentence about the outcome of :func:`unlimit`."""
    text = "No operator has set limits there"
    if outcome.was_set:
        text = "The limits are left to the code"
    if outcome.is_declared:
        return f"{text}: {describe_limits(outcome.limit)}."
    return (
        f"{text}. This process does not declare the Type, so the present limits stay until the "
        f"Type is next registered: {describe_limits(outcome.limit)}."
    )
