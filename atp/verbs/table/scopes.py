"""The verbs on scopes: the gates and limits of everything, of a Type, of a lane."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from ...words import sentences
from ...words.kinds import Delay, Moment, Number, Rate, Text, WholeNumber
from ...words.rates import GATE as NOTHING_IN
from ...words.rates import HEAVIEST, HOLD, LIGHTEST, MOST, SHORTEST_WAIT
from .. import removal
from ..control import gates, limits
from ..types import get_type, types_without_retention
from .gate_state import GateState
from .verb import CONTROL, DELETE, Parameter, Verb


class Level(StrEnum):
    EVERYTHING = "everything"
    TYPE = "type"
    LANE = "lane"


# The identifier of a Type and a collection, each of which may be None.
Subject = tuple[str | None, str | None]

GATE, LIMIT = "gate", "limit"


@dataclass(frozen=True, kw_only=True)
class ScopeVerb(Verb):
    """A verb on a scope: a pair of a Type's identifier and a collection, each of which may be None.

    ``levels`` are the levels of scope that it accepts. ``of`` is "gate" or "limit" if the verb sets
    that, otherwise empty.
    """

    levels: frozenset[Level] = frozenset(Level)
    of: str = ""
    permission: str = CONTROL


def level(scope: Subject) -> Level:
    """Return the Level of a scope."""
    type, collection = scope
    if type is None:
        return Level.EVERYTHING
    return Level.TYPE if collection is None else Level.LANE


def _purge(scope: Subject, by: str) -> int:
    type, _ = scope
    if type is not None:
        get_type(type)
    return removal.purge(type, by=by)


def _purged(scope: Subject, count: int) -> str:
    kept = types_without_retention(scope[0])
    more = f" Types without retention: {', '.join(kept)}." if kept else ""
    return f"Instances removed: {count}.{more}"


def _of_gate(mode: str, scope: Subject, gate: Any) -> str:
    was = gate if mode == "open" else gate.was
    return sentences.of_gate(mode, *scope, was, gates.gates())


_REASON = Parameter(name="reason", kind=Text(), help="Why, for the log and the pages.")
_UNTIL = Parameter(name="until", kind=Moment(), help="When the gate opens by itself.")
_EXPECTED = Parameter(
    name="expected",
    kind=GateState(),
    help="Change nothing unless the gate's state, or its `since`, is this.",
    in_forms=False,
)
_COUNT: dict[str, Any] = {"least": 1, "most": MOST}

VERBS = (
    ScopeVerb(
        name="hold",
        label="Hold",
        explanation="Hold waiting Instances: none is started until the gate opens.",
        call=lambda scope, **given: gates.hold(*scope, **given),
        told=partial(_of_gate, "hold"),
        parameters=(_REASON, _UNTIL, _EXPECTED),
        of=GATE,
    ),
    ScopeVerb(
        name="drop",
        label="Drop",
        explanation="Let all waiting Instances, and all that are enqueued from now on, FAIL as "
        "DROPPED.",
        call=lambda scope, **given: gates.drop(*scope, **given),
        told=partial(_of_gate, "drop"),
        parameters=(_REASON, _UNTIL, _EXPECTED),
        asks_first=lambda _: True,
        of=GATE,
    ),
    ScopeVerb(
        name="open",
        label="Open",
        explanation="Open the gate: waiting Instances are started again.",
        call=lambda scope, **given: gates.open_gate(*scope, **given),
        told=partial(_of_gate, "open"),
        parameters=(_REASON, _EXPECTED),
        of=GATE,
    ),
    ScopeVerb(
        name="limit",
        label="Limit",
        explanation="Limit a Type or a lane over all daemons. Limits that are not given stay.",
        call=lambda scope, **given: limits.limit(*scope, **given),
        told=lambda _, limit: f"The limits are set: {sentences.of_limits(limit)}.",
        parameters=(
            Parameter(
                name="max_running",
                label="At a time",
                kind=WholeNumber(**_COUNT, zero=HOLD),
                help="The most Instances claimed at any time, over all daemons.",
                can_be_none=True,
            ),
            Parameter(
                name="max_running_per_collection",
                label="At a time of each collection",
                kind=WholeNumber(**_COUNT, zero=HOLD),
                help="The same for each lane of the Type, unless the lane has a limit of its own.",
                can_be_none=True,
            ),
            Parameter(
                name="rate", kind=Rate(), help="Instances started per period.", can_be_none=True
            ),
            Parameter(
                name="burst",
                kind=WholeNumber(**_COUNT),
                help="The most Instances that the rate lets start at once after a pause.",
                can_be_none=True,
            ),
            Parameter(
                name="weight",
                kind=Number(LIGHTEST, HEAVIEST),
                help="Share of the Type relative to other Types; 1 by default.",
                can_be_none=True,
            ),
            Parameter(
                name="max_waiting",
                label="Waiting",
                kind=WholeNumber(**_COUNT, zero=NOTHING_IN),
                help=(
                    "The most Instances that may wait; a further enqueue is refused. With max_wait "
                    "it is refused only if both are exceeded."
                ),
                can_be_none=True,
            ),
            Parameter(
                name="max_wait",
                label="Waited",
                kind=Delay(SHORTEST_WAIT),
                help="An enqueue is refused only if the oldest due Instance has waited longer.",
                can_be_none=True,
            ),
        ),
        levels=frozenset({Level.TYPE, Level.LANE}),
        of=LIMIT,
    ),
    ScopeVerb(
        name="unlimit",
        label="Leave to the code",
        explanation="Use the limits that the code declares for a Type or a lane.",
        call=lambda scope, by: limits.unlimit(*scope, by=by),
        told=lambda _, left: sentences.of_unlimit(left),
        levels=frozenset({Level.TYPE, Level.LANE}),
        of=LIMIT,
    ),
    ScopeVerb(
        name="purge",
        label="Purge",
        explanation="Remove Instances that ended longer ago than the retention of their Type.",
        call=_purge,
        told=_purged,
        is_final=True,
        levels=frozenset({Level.EVERYTHING, Level.TYPE}),
        permission=DELETE,
    ),
)
