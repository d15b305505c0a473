"""The verbs on all Instances that match, and those on error groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...models import ErrorGroup
from ...states import Reason
from ...words.kinds import Choice, Flag, Moment, Number, Rate, Text, WholeNumber
from ..matching import errors, told
from ..matching.starting import (
    MOST_CANARIES,
    cancel_matching,
    delete_matching,
    redrive_matching,
)
from .lines import Lines
from .past_moment import Past
from .verb import DELETE, Parameter, Verb, always


@dataclass(frozen=True, kw_only=True)
class MatchingVerb(Verb):
    """A verb on all Instances that match. It has no subject; the filter is among its parameters."""


@dataclass(frozen=True, kw_only=True)
class ErrorVerb(Verb):
    """A verb on an error group. ``is_allowed(group)`` tells whether it would change anything."""

    is_allowed: Callable[[ErrorGroup], bool] = always


_RATE = Parameter(
    name="rate", kind=Rate(), help="Instances per period; without a rate, as fast as possible."
)
_COLLECTION = Parameter(name="collection", kind=Text(), help="Only those of this collection.")
_BEFORE = Parameter(
    name="ended_before", kind=Past(), help="Only those that ended by this time; empty means now."
)
_DRY_RUN = Parameter(
    name="dry_run", kind=Flag(), help="Only tell what would be done.", in_forms=False
)
_CANARY = (
    Parameter(
        name="canary",
        kind=WholeNumber(0, MOST_CANARIES),
        help="Redrive this many first, and the others only if enough of these finish.",
    ),
    Parameter(
        name="threshold",
        kind=Number(0.01, 1),
        help="The fraction of the canary that has to be FINISHED; 0.95 by default.",
    ),
)
_FILTER = (
    Parameter(
        name="type", kind=Text(), help='Only those of this Type, or of a pattern as "dem.*".'
    ),
    Parameter(name="error", kind=Text(), help="Only those of this error group."),
    _BEFORE,
    _COLLECTION,
    Parameter(
        name="reason",
        kind=Choice(tuple(Reason.values)),
        help="Only those that FAILED for this reason.",
    ),
    Parameter(name="all", kind=Flag(), help="Select all; needed if no filter is given."),
)
_OF_LIVE = (
    _FILTER[0],
    _COLLECTION,
    Parameter(
        name="created_before",
        kind=Past(),
        help="Only those enqueued by this time; empty means now.",
    ),
    _FILTER[-1],
)


def _matching(call: Callable[..., Any], _: object, **given: Any) -> Any:
    return call(**given)


def _of_error(call: Callable[..., Any], group: ErrorGroup, **given: Any) -> Any:
    return call(error=group, **given)


def _annotate(group: ErrorGroup, by: str, note: str | None = None) -> ErrorGroup | None:
    """Set the note of a group; without a note, change nothing."""
    return None if note is None else errors.annotate(group, note, by=by)


def _noted(_: ErrorGroup, group: ErrorGroup | None) -> str:
    return "Nothing was changed." if group is None else f"The note of {group.name} is set."


def _told(_: object, outcome: Any) -> str:
    return told.of(outcome)


def _muted(_: ErrorGroup, group: ErrorGroup) -> str:
    return f"{group.name} is muted{' until it is unmuted' if group.muted_until is None else ''}."


ALL_MATCHING = (
    MatchingVerb(
        name="redrive",
        label="Redrive all that match",
        explanation="Send all dead letters that match back to the queue, after a canary and at "
        "a rate.",
        call=partial(_matching, redrive_matching),
        told=_told,
        parameters=(*_FILTER, _RATE, *_CANARY, _DRY_RUN),
    ),
    MatchingVerb(
        name="cancel",
        label="Cancel all that match",
        explanation="End all live Instances that match, at a rate.",
        call=partial(_matching, cancel_matching),
        told=_told,
        parameters=(*_OF_LIVE, _RATE, _DRY_RUN),
    ),
    MatchingVerb(
        name="delete",
        label="Delete all that match",
        explanation="Remove all dead letters that match for good, at a rate.",
        call=partial(_matching, delete_matching),
        told=_told,
        parameters=(*_FILTER, _RATE, _DRY_RUN),
        permission=DELETE,
        is_final=True,
    ),
)

OF_ERROR = (
    ErrorVerb(
        name="redrive",
        label="Redrive",
        explanation="Send its dead letters back to the queue, after a canary and at a rate.",
        call=partial(_of_error, redrive_matching),
        told=_told,
        parameters=(_BEFORE, _COLLECTION, _RATE, *_CANARY, _DRY_RUN),
    ),
    ErrorVerb(
        name="mute",
        label="Mute",
        explanation="Stop alerts about the error group, until somebody unmutes it or until the "
        "first failure after a time.",
        call=errors.mute,
        told=_muted,
        parameters=(
            Parameter(
                name="until",
                kind=Moment(),
                help="Mute only until the first failure after this time.",
            ),
        ),
    ),
    ErrorVerb(
        name="unmute",
        label="Unmute",
        explanation="Allow alerts about the error group again.",
        call=lambda group, by: errors.unmute(group, by=by),
        told=lambda _, group: f"{group.name} is not muted.",
        is_allowed=lambda group: group.is_muted,
    ),
    ErrorVerb(
        name="annotate",
        label="Note",
        phrase="Set the note of {}",
        explanation="Set the note of the error group.",
        call=_annotate,
        told=_noted,
        parameters=(
            Parameter(name="note", kind=Lines(errors.MAX_NOTE), help="What is known of the error."),
        ),
        current=lambda group: {"note": group.note},
    ),
    ErrorVerb(
        name="delete",
        label="Delete",
        explanation="Remove its dead letters for good, at a rate.",
        call=partial(_of_error, delete_matching),
        told=_told,
        parameters=(_BEFORE, _COLLECTION, _RATE, _DRY_RUN),
        permission=DELETE,
        is_final=True,
    ),
)
