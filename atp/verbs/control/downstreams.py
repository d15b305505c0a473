"""The verbs of downstreams: the services that handlers call."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ...conf import settings
from ...exceptions import InvalidLimit, InvalidOption, UnknownDownstream
from ...models import Downstream
from ...protection.values import State
from ...store import get_store
from ...words.hints import did_you_mean
from ...words.options import instant
from ..actor import check_by
from ..migrated import needs_tables

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
