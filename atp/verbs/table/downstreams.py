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
from .verb import Parameter, Verb, always


class DownstreamState(Kind):
    """The state of a downstream, or the time since when it has been in its state."""

    _words = Choice(tuple(state.value for state in State))
    schema = {"oneOf": [{"enum": list(_words.words)}, DATE_TIME]}
    hint = "closed, throttled, open or half-open, or the time since when it has been so"

    def from_text(self, text: str) -> datetime | str:
        return self.from_json(text)

    def from_json(self, value: Any) -> datetime | str:
        if value in self._words.words:
            return value
        try:
            return time_from_json(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"{value!r} is neither closed, throttled, open nor half-open, nor the time with an "
                "offset since when it has been so."
            ) from None


@dataclass(frozen=True, kw_only=True)
class DownstreamVerb(Verb):
    """A verb on a downstream. ``is_allowed(row)`` tells whether it would change anything."""

    is_allowed: Callable[[Downstream], bool] = always


def _bound(row: Downstream, *, by: str, **given: Any) -> Downstream:
    return downstreams.downstream(row.name, by=by, **given)


def _bounds(_: Downstream, row: Downstream) -> str:
    told = [f"{name} {_rate(getattr(row, name))}" for name in ("ceiling", "floor")]
    return f"It is set: {', '.join(told)}."


def _rate(value: float | None) -> str:
    return "none" if value is None else f"{value:g}/s"


def _current(row: Downstream) -> dict[str, Any]:
    given = {"ceiling": row.ceiling, "floor": row.floor}
    return {n: None if value is None else wording.plain_number(value) for n, value in given.items()}


_EXPECTED = Parameter(
    name="expected",
    kind=DownstreamState(),
    help="The state that it has to be in, or `since` when it has been so. If that has changed "
    "meanwhile, it stays as it is.",
    in_forms=False,
)

VERBS = (
    DownstreamVerb(
        name="bound",
        label="Set bounds",
        explanation="Set between which rates it is called. What is not given stays as it is.",
        call=_bound,
        told=_bounds,
        parameters=(
            Parameter(
                name="ceiling",
                kind=Number(SLOWEST, FASTEST),
                help="Calls a second that are never exceeded, even while it is healthy.",
                can_be_none=True,
            ),
            Parameter(
                name="floor",
                kind=Number(SLOWEST, FASTEST),
                help="Calls a second below which refusals do not lower the rate.",
                can_be_none=True,
            ),
            _EXPECTED,
        ),
        current=_current,
    ),
    DownstreamVerb(
        name="reset",
        label="Reset",
        explanation="Take it as healthy again, whatever daemons have found.",
        call=lambda row, **given: downstreams.reset_downstream(row.name, **given),
        told=lambda _, row: f"It is reset, and {row.state}.",
        is_allowed=lambda row: row.state != State.CLOSED,
    ),
    DownstreamVerb(
        name="trip",
        label="Trip",
        explanation="Let nothing call it for now. Then one probes whether it answers.",
        call=lambda row, **given: downstreams.trip_downstream(row.name, **given),
        told=lambda _, row: f"It is not called before {wording.moment(row.not_before)}.",
        asks_first=lambda _: True,
        is_allowed=lambda row: row.state != State.OPEN,
    ),
)
