"""The operations on downstreams, and functions that return downstreams as documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .. import text
from ..conf import settings
from ..exceptions import InvalidLimit, InvalidOption, UnknownDownstream
from ..models import Downstream, Task, Type
from ..operations.base import check_actor, needs_tables
from ..operations.operation import (
    CONTROL,
    DATE_TIME,
    Choice,
    Kind,
    Number,
    Operation,
    Parameter,
    always,
    time_from_json,
)
from ..options import resolve_time
from ..reports import overview
from ..store import get_store
from ..text import did_you_mean
from .protection import State

FIELDS = (
    *("name", "state", "per_second", "ceiling", "floor", "not_before", "trips", "who", "since"),
)
# The maximum number of due Tasks to count.
MOST = 1000
# In calls a second.
SLOWEST, FASTEST = 0.001, 1_000_000.0
# A default argument that means "leave the value as it is".
KEEP: Any = object()


# Documents: downstreams, the Types that call them, and the due Tasks of these.


def downstream_document(row: Downstream) -> dict[str, Any]:
    """Return a downstream as a dictionary, with the identifiers of the Types that call it."""
    return {name: getattr(row, name) for name in FIELDS} | {"types": calling_types(row)}


def calling_types(row: Downstream) -> list[str]:
    """Return the identifiers of the Types that call a downstream."""
    types = Type.objects.using(settings.DATABASE).filter(downstream=row.name)
    return list(types.values_list("identifier", flat=True))


def count_due_tasks(row: Downstream) -> int:
    """Return the number of due Tasks that call a downstream, counted up to :data:`MOST`."""
    tasks = Task.objects.using(settings.DATABASE).filter(type__downstream=row.name)
    return tasks.due(overview.now()).order_by()[:MOST].count()


# Operations on downstreams.


@needs_tables
def downstreams() -> list[Downstream]:
    """Return the downstreams that Types name, sorted by name."""
    return list(Downstream.objects.using(settings.DATABASE))


@needs_tables
def get_downstream(name: str) -> Downstream:
    """Return the downstream with this name. Raises UnknownDownstream."""
    rows = Downstream.objects.using(settings.DATABASE)
    found = rows.filter(name=name).first() if str(name).isprintable() else None
    if found is None:
        hint = did_you_mean(name, rows.values_list("name", flat=True))
        raise UnknownDownstream(f"No Type names the downstream {name!r}.{hint}")
    return found


@needs_tables
def downstream(
    name: str,
    *,
    ceiling: float | None = KEEP,
    floor: float | None = KEEP,
    expected: datetime | str | None = None,
    by: str = "",
) -> Downstream:
    """Set limits for the rate of calls to a downstream, in calls a second; return its row.

    The rate never exceeds ``ceiling``, even while the downstream is healthy. When the downstream
    refuses calls, the rate never falls below ``floor``. A limit that is left out stays as it is;
    None removes it. If ``expected`` is passed, it must be the present state of the downstream, or
    the time of its last change of state. Raises UnknownDownstream, InvalidLimit, or
    DownstreamChanged if the downstream is not as expected.
    """
    check_actor(by)
    limits = {"ceiling": ceiling, "floor": floor}
    changes = {column: value for column, value in limits.items() if value is not KEEP}
    row = get_downstream(name)
    if not changes:
        return row
    for column, value in changes.items():
        _check_rate(column, value)
    highest, lowest = ({"ceiling": row.ceiling, "floor": row.floor} | changes).values()
    if highest is not None and lowest is not None and lowest > highest:
        raise InvalidLimit(f"floor={lowest:g} is above ceiling={highest:g}.")
    return get_store().downstreams.bound(
        name, who=by, expected=_check_expected(expected), **changes
    )


@needs_tables
def reset_downstream(
    name: str, *, expected: datetime | str | None = None, by: str = ""
) -> Downstream:
    """Close the breaker and remove the rate limit, whatever daemons have observed.

    A ceiling stays in effect. For the parameters and exceptions see :func:`downstream`.
    """
    check_actor(by)
    get_downstream(name)
    return get_store().downstreams.reset(name, who=by, expected=_check_expected(expected))


@needs_tables
def trip_downstream(
    name: str, *, expected: datetime | str | None = None, by: str = ""
) -> Downstream:
    """Open the breaker, so that handlers make no calls for a while.

    Then one Instance probes the downstream. For the parameters and exceptions see
    :func:`downstream`.
    """
    check_actor(by)
    get_downstream(name)
    return get_store().downstreams.trip(name, who=by, expected=_check_expected(expected))


def _check_rate(column: str, value: Any) -> None:
    if value is None:
        return
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not SLOWEST <= value <= FASTEST:
        hint = " To let nothing through, hold the gates of its Types." if value == 0 else ""
        raise InvalidLimit(
            f"{column}={value!r}: must be from {SLOWEST:g} to {FASTEST:.0f} calls a second.{hint}"
        )


def _check_expected(expected: object) -> datetime | str | None:
    if expected is None or (isinstance(expected, str) and expected in set(State)):
        return expected
    if isinstance(expected, datetime):
        try:
            return resolve_time("expected", expected)
        except InvalidOption as wrong:
            raise InvalidLimit(str(wrong)) from None
    raise InvalidLimit(
        f"expected={expected!r}: must be one of {', '.join(State)}, or the time at which the "
        "state began."
    )


# Entries in the table of operations.


class DownstreamState(Kind):
    """The kind of a parameter: a downstream's state, or the time at which the state began."""

    _words = Choice(tuple(state.value for state in State))
    schema = {"oneOf": [{"enum": list(_words.words)}, DATE_TIME]}
    hint = "closed, throttled, open or half-open, or the time at which this state began"

    def from_text(self, text: str) -> datetime | str:
        return self.from_json(text)

    def from_json(self, value: Any) -> datetime | str:
        if value in self._words.words:
            return value
        try:
            return time_from_json(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"{value!r} must be closed, throttled, open or half-open, or the time, with an "
                "offset, at which the state began."
            ) from None


@dataclass(frozen=True, kw_only=True)
class DownstreamOperation(Operation):
    """An operation on a downstream. ``is_allowed(row)`` is True if it would change anything."""

    is_allowed: Callable[[Downstream], bool] = always
    permission: str = CONTROL


def _set_limits(row: Downstream, *, by: str, **limits: Any) -> Downstream:
    return downstream(row.name, by=by, **limits)


def _describe_limits(_: Downstream, row: Downstream) -> str:
    limits = [f"{name} {_describe_rate(getattr(row, name))}" for name in ("ceiling", "floor")]
    return f"The bounds are set: {', '.join(limits)}."


def _describe_rate(value: float | None) -> str:
    return "none" if value is None else f"{value:g}/s"


def _current_limits(row: Downstream) -> dict[str, Any]:
    limits = {"ceiling": row.ceiling, "floor": row.floor}
    return {n: None if value is None else text.plain_number(value) for n, value in limits.items()}


_EXPECTED = Parameter(
    name="expected",
    kind=DownstreamState(),
    help="Change nothing unless the downstream's state, or its `since`, is this.",
    in_forms=False,
)

OPERATIONS = (
    DownstreamOperation(
        name="bound",
        label="Set bounds",
        phrase="Set the bounds of {}",
        explanation="Set the highest and lowest rate of calls. A bound that is not given stays.",
        call=_set_limits,
        told=_describe_limits,
        parameters=(
            Parameter(
                name="ceiling",
                kind=Number(SLOWEST, FASTEST),
                help="The highest rate, in calls a second, even while the downstream is healthy.",
                can_be_none=True,
            ),
            Parameter(
                name="floor",
                kind=Number(SLOWEST, FASTEST),
                help="The lowest rate, in calls a second, to which refusals can bring it.",
                can_be_none=True,
            ),
            _EXPECTED,
        ),
        current=_current_limits,
    ),
    DownstreamOperation(
        name="reset",
        label="Reset",
        explanation="Treat the downstream as healthy again, whatever the daemons have found.",
        call=lambda row, **options: reset_downstream(row.name, **options),
        told=lambda _, row: f"The downstream is reset, and is {row.state}.",
        is_allowed=lambda row: row.state != State.CLOSED,
    ),
    DownstreamOperation(
        name="trip",
        label="Trip",
        explanation="Stop all calls to the downstream for now. Later one Instance probes it.",
        call=lambda row, **options: trip_downstream(row.name, **options),
        told=lambda _, row: f"No calls are made before {text.moment(row.not_before)}.",
        asks_first=lambda _: True,
        is_allowed=lambda row: row.state != State.OPEN,
    ),
)
