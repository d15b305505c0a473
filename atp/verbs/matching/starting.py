"""The verbs on all Instances that match a filter: each plans, or enqueues an Instance to do it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from ...exceptions import InvalidOption, InvalidSelection, UniqueTaken
from ...states import Reason
from ...words import rates
from ..actor import check_by
from ..migrated import needs_tables
from ..registry import registry
from .plan import Plan, plan
from .selection import CANCEL, DELETE, REDRIVE, Selection, selection

if TYPE_CHECKING:
    from ...models import ErrorGroup, Instance
    from ..types import TypeLike

THRESHOLD = 0.95
MOST_CANARIES = 1_000


class Redrives(TypedDict, total=False):
    """The parameters of :func:`redrive_matching`, except ``dry_run``."""

    type: TypeLike | None
    error: ErrorGroup | str | None
    ended_before: datetime | None
    collection: str | None
    reason: Reason | str | None
    all: bool
    rate: str | None
    canary: int
    threshold: float
    by: str


@overload
def redrive_matching(*, dry_run: Literal[True], **given: Unpack[Redrives]) -> Plan: ...
@overload
def redrive_matching(*, dry_run: Literal[False] = False, **given: Unpack[Redrives]) -> Instance: ...
@overload
def redrive_matching(*, dry_run: bool, **given: Unpack[Redrives]) -> Plan | Instance: ...


@needs_tables
def redrive_matching(
    *,
    type: TypeLike | None = None,
    error: ErrorGroup | str | None = None,
    ended_before: datetime | None = None,
    collection: str | None = None,
    reason: Reason | str | None = None,
    all: bool = False,
    rate: str | None = None,
    canary: int = 0,
    threshold: float = THRESHOLD,
    dry_run: bool = False,
    by: str = "",
) -> Plan | Instance:
    """Redrive all dead letters that match; return the Instance of ``atp.redrive`` that does it.

    ``type`` may be a pattern, as "dem.*". ``reason`` is a Reason of FAILED; without it, any of the
    dead letters. ``ended_before`` defaults to now. With ``dry_run`` nothing is written, and the
    :class:`Plan` is returned. ``rate`` ("20/s") limits the speed. ``canary`` is how many are
    redriven first; the others follow once these have ended and the fraction ``threshold`` of them
    FINISHED. Raises, with nothing written, InvalidSelection, InvalidOption, InvalidLimit,
    UnknownType, UnknownErrorGroup, or UniqueTaken while an Instance with the same filter is live.
    """
    chosen = selection(
        REDRIVE,
        type=type,
        error=error,
        until=ended_before,
        collection=collection,
        reason=reason,
        all=all,
    )
    how = {"rate": rate, "canary": canary, "threshold": threshold}
    return _planned(chosen, how, dry_run, by)


@needs_tables
def delete_matching(
    *,
    type: TypeLike | None = None,
    error: ErrorGroup | str | None = None,
    ended_before: datetime | None = None,
    collection: str | None = None,
    reason: Reason | str | None = None,
    all: bool = False,
    rate: str | None = None,
    dry_run: bool = False,
    by: str = "",
) -> Plan | Instance:
    """Remove all dead letters that match; for the parameters see :func:`redrive_matching`."""
    chosen = selection(
        DELETE,
        type=type,
        error=error,
        until=ended_before,
        collection=collection,
        reason=reason,
        all=all,
    )
    return _planned(chosen, {"rate": rate}, dry_run, by)


@needs_tables
def cancel_matching(
    *,
    type: TypeLike | None = None,
    collection: str | None = None,
    created_before: datetime | None = None,
    all: bool = False,
    rate: str | None = None,
    dry_run: bool = False,
    by: str = "",
) -> Plan | Instance:
    """Cancel all live Instances that match, enqueued up to ``created_before``, at a rate."""
    chosen = selection(CANCEL, type=type, collection=collection, until=created_before, all=all)
    return _planned(chosen, {"rate": rate}, dry_run, by)


VERBS: dict[str, Callable[..., Any]] = {
    REDRIVE: redrive_matching,
    CANCEL: cancel_matching,
    DELETE: delete_matching,
}


def _planned(chosen: Selection, how: dict[str, Any], dry_run: bool, by: str) -> Plan | Instance:
    check_by(by)
    per_second = None if how["rate"] is None else rates.per_second(how["rate"])
    _check_canary(how)
    found = plan(chosen, per_second)
    canary = how.get("canary", 0)
    if canary > found.count:
        raise InvalidOption(f"canary={canary}: there are only {found.count} that match.")
    if dry_run:
        return found
    if not found.count:
        told = ", ".join(f"{count} {why}" for why, count in found.cannot.items())
        raise InvalidSelection(
            f"There is nothing to {chosen.verb}: {chosen.text}."
            + (f" It cannot be done to {told}." if told else "")
        )
    given = {"selection": chosen.__dict__, "count": found.count, "by": by, **how}
    type = registry.get(f"atp.{chosen.verb}").using(unique=chosen.key, created_by=by)
    try:
        return type.enqueue(**given)
    except UniqueTaken as error:
        live = error.instance
        told = f"A {chosen.verb} of this filter is live: {live.uuid if live else ''}."
        raise UniqueTaken(told, live) from None


def _check_canary(how: dict[str, Any]) -> None:
    canary, threshold = how.get("canary", 0), how.get("threshold", THRESHOLD)
    if not isinstance(canary, int) or isinstance(canary, bool) or not 0 <= canary <= MOST_CANARIES:
        raise InvalidOption(f"canary={canary!r}: must be a whole number from 0 to {MOST_CANARIES}.")
    is_number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not is_number or not 0 < threshold <= 1:
        raise InvalidOption(f"threshold={threshold!r}: must be more than 0 and at most 1.")
