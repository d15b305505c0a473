"""The verbs of gates: hold, drop and open."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ...conf import settings
from ...exceptions import InvalidGate, InvalidOption
from ...models import Gate
from ...store import get_store
from ...words.options import check_text, instant
from ..actor import check_by
from ..migrated import needs_tables
from .scope import scope_of

if TYPE_CHECKING:
    from ..types import TypeLike


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
