"""Set, reset, open the breaker; their entries in the table; documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .. import text
from ..conf import settings
from ..exceptions import InvalidLimit, InvalidOption, UnknownDownstream
from ..models import Downstream, Task, Type
from ..operations.base import check_by, needs_tables
from ..operations.operation import (
    CONTROL,
    DATE_TIME,
    Choice,
    Kind,
    Number,
    Parameter,
    Verb,
    always,
    time_from_json,
)
from ..options import instant
from ..reports import overview
from ..store import get_store
from ..text import did_you_mean
from .protection import State

# Downstreams as documents: their state, the Types that call them, and the due Tasks of these.

FIELDS = (
    *("name", "state", "per_second", "ceiling", "floor", "not_before", "trips", "who", "since"),
)
# The maximum number of Tasks that are counted.
MOST = 1000


def document(row: Downstream) -> dict[str, Any]:
    """Return a downstream as plain values, with the identifiers of the Types that call it."""
    return {name: getattr(row, name) for name in FIELDS} | {"types": calling(row)}


def calling(row: Downstream) -> list[str]:
    """Return the identifiers of the Types that call a downstream."""
    types = Type.objects.using(settings.DATABASE).filter(downstream=row.name)
    return list(types.values_list("identifier", flat=True))


def due(row: Downstream) -> int:
    """Return the number of due Tasks that call a downstream, counted up to :data:`MOST`."""
    tasks = Task.objects.using(settings.DATABASE).filter(type__downstream=row.name)
    return tasks.due(overview.now()).order_by()[:MOST].count()


# The verbs of downstreams: the services that handlers call.

# In calls a second.
SLOWEST, FASTEST = 0.001, 1_000_000.0
# A default argument that means "leave the value as it is".
KEEP: Any = object()


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
    """Set bounds for the rate at which a downstream is called, in calls a second; return its row.

    ``ceiling`` is never exceeded, even while the downstream is healthy. ``floor`` is the rate below
    which refusals do not lower it. A bound that is not given stays; None removes it. If neither is
    given, nothing changes. ``expected`` is the required state of the downstream, or the datetime of
    its last change of state. Raises UnknownDownstream, InvalidLimit, or DownstreamChanged if the
    downstream is not as expected.
    """
    check_by(by)
    given = {"ceiling": ceiling, "floor": floor}
    changes = {column: value for column, value in given.items() if value is not KEEP}
    row = get_downstream(name)
    if not changes:
        return row
    for column, value in changes.items():
        _check_rate(column, value)
    highest, lowest = ({"ceiling": row.ceiling, "floor": row.floor} | changes).values()
    if highest is not None and lowest is not None and lowest > highest:
        raise InvalidLimit(f"floor={lowest:g} is above ceiling={highest:g}.")
    return get_store().bound(name, who=by, expected=_expected(expected), **changes)


@needs_tables
def reset_downstream(
    name: str, *, expected: datetime | str | None = None, by: str = ""
) -> Downstream:
    """Set a downstream to healthy, whatever daemons have observed. See :func:`downstream`."""
    check_by(by)
    get_downstream(name)
    return get_store().reset(name, who=by, expected=_expected(expected))


@needs_tables
def trip_downstream(
    name: str, *, expected: datetime | str | None = None, by: str = ""
) -> Downstream:
    """Stop all calls of a downstream for a while; then one probes it. See :func:`downstream`."""
    check_by(by)
    get_downstream(name)
    return get_store().trip(name, who=by, expected=_expected(expected))


def _check_rate(column: str, value: Any) -> None:
    if value is None:
        return
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not SLOWEST <= value <= FASTEST:
        hint = " To let nothing through, hold the gates of its Types." if value == 0 else ""
        raise InvalidLimit(
            f"{column}={value!r}: must be from {SLOWEST:g} to {FASTEST:.0f} calls a second.{hint}"
        )


def _expected(expected: object) -> datetime | str | None:
    if expected is None or (isinstance(expected, str) and expected in set(State)):
        return expected
    if isinstance(expected, datetime):
        try:
            return instant("expected", expected)
        except InvalidOption as wrong:
            raise InvalidLimit(str(wrong)) from None
    raise InvalidLimit(
        f"expected={expected!r}: must be one of {', '.join(State)}, or the time at which the "
        "state began."
    )


# The verbs on downstreams.


class DownstreamState(Kind):
    """The state of a downstream, or the time since when it has been in its state."""

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
                f"{value!r} is neither closed, throttled, open nor half-open, nor a time with an "
                "offset, at which the state began."
            ) from None


@dataclass(frozen=True, kw_only=True)
class DownstreamVerb(Verb):
    """A verb on a downstream. ``is_allowed(row)`` tells whether it would change anything."""

    is_allowed: Callable[[Downstream], bool] = always
    permission: str = CONTROL


def _bound(row: Downstream, *, by: str, **given: Any) -> Downstream:
    return downstream(row.name, by=by, **given)


def _bounds(_: Downstream, row: Downstream) -> str:
    told = [f"{name} {_rate(getattr(row, name))}" for name in ("ceiling", "floor")]
    return f"The bounds are set: {', '.join(told)}."


def _rate(value: float | None) -> str:
    return "none" if value is None else f"{value:g}/s"


def _current(row: Downstream) -> dict[str, Any]:
    given = {"ceiling": row.ceiling, "floor": row.floor}
    return {n: None if value is None else text.plain_number(value) for n, value in given.items()}


_EXPECTED = Parameter(
    name="expected",
    kind=DownstreamState(),
    help="Change nothing unless the downstream's state, or its `since`, is this.",
    in_forms=False,
)

VERBS = (
    DownstreamVerb(
        name="bound",
        label="Set bounds",
        phrase="Set the bounds of {}",
        explanation="Set the highest and lowest rate of calls. A bound that is not given stays.",
        call=_bound,
        told=_bounds,
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
        current=_current,
    ),
    DownstreamVerb(
        name="reset",
        label="Reset",
        explanation="Treat the downstream as healthy again, whatever the daemons have found.",
        call=lambda row, **given: reset_downstream(row.name, **given),
        told=lambda _, row: f"The downstream is reset, and is {row.state}.",
        is_allowed=lambda row: row.state != State.CLOSED,
    ),
    DownstreamVerb(
        name="trip",
        label="Trip",
        explanation="Stop all calls to the downstream for now. Later one Instance probes it.",
        call=lambda row, **given: trip_downstream(row.name, **given),
        told=lambda _, row: f"No calls are made before {text.moment(row.not_before)}.",
        asks_first=lambda _: True,
        is_allowed=lambda row: row.state != State.OPEN,
    ),
)
