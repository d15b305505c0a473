"""The verbs on downstreams."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...models import Downstream
from ...protection.values import State
from ...words import wording
from ...words.kinds import DATE_TIME, Choice, Kind, Number, time_from_json
from ..control import downstreams
from ..control.downstreams import FASTEST, SLOWEST
from .verb import CONTROL, Parameter, Verb, always


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
    return downstreams.downstream(row.name, by=by, **given)


def _bounds(_: Downstream, row: Downstream) -> str:
    told = [f"{name} {_rate(getattr(row, name))}" for name in ("ceiling", "floor")]
    return f"The bounds are set: {', '.join(told)}."


def _rate(value: float | None) -> str:
    return "none" if value is None else f"{value:g}/s"


def _current(row: Downstream) -> dict[str, Any]:
    given = {"ceiling": row.ceiling, "floor": row.floor}
    return {n: None if value is None else wording.plain_number(value) for n, value in given.items()}


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
        call=lambda row, **given: downstreams.reset_downstream(row.name, **given),
        told=lambda _, row: f"The downstream is reset, and is {row.state}.",
        is_allowed=lambda row: row.state != State.CLOSED,
    ),
    DownstreamVerb(
        name="trip",
        label="Trip",
        explanation="Stop all calls to the downstream for now. Later one Instance probes it.",
        call=lambda row, **given: downstreams.trip_downstream(row.name, **given),
        told=lambda _, row: f"No calls are made before {wording.moment(row.not_before)}.",
        asks_first=lambda _: True,
        is_allowed=lambda row: row.state != State.OPEN,
    ),
)
