"""Sentences about gates and limits: their present and their previous state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from . import wording

if TYPE_CHECKING:
    from ..models import Gate, Limit
    from ..store.values import Fill
    from ..verbs.control.limits import Left

MODES = {"hold": "held", "drop": "dropped"}
NO_DAEMON = "No daemon is alive"
_DONE = {
    "hold": "Nothing more is started there.",
    "drop": "Instances that wait there fail.",
    "open": "The gate is open.",
}


def where(type: object, collection: str | None) -> str:
    """Return the scope of a gate or a limit in words: the Type's identifier, and the collection."""
    if type is None:
        return "everything"
    return str(type) if collection is None else f"{type}, collection “{collection}”"


def state_of(gate: Gate | None, moment: Callable[[datetime], str] = wording.moment) -> str:
    """Return the state of a gate in words, with its author and reason; None is an open gate."""
    if gate is None:
        return "open"
    by = f" by {gate.who}" if gate.who else ""
    until = f", until {moment(gate.until)}" if gate.until else ""
    reason = f": {gate.reason}" if gate.reason else ""
    return f"{MODES[gate.mode]}{by}, since {moment(gate.since)}{until}{reason}"


def in_utc(time: datetime) -> str:
    """Return a time in the form in which the log shows it."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def of_gate(
    mode: str, type: str | None, collection: str | None, was: Gate | None, shut: Iterable[Gate]
) -> str:
    """Return the outcome of a verb on a gate in words; ``mode`` is "open", "hold" or "drop".

    ``was`` is the gate before the verb, None if it was open. ``shut`` are the gates that are shut
    after it.
    """
    if mode == "open" and was is None:
        told = ["It is open already."]
    else:
        told = [_DONE[mode]]
        if was is not None:
            told.append(f"Before, it was {state_of(was)}.")
    for gate in above(type, collection, shut):
        scope = where(gate.type, gate.collection)
        if mode == "open":
            told.append(f"Nothing moves there yet: {scope} is {state_of(gate)}.")
        elif mode == "hold" and gate.mode == "drop":
            told.append(f"Instances that wait there still fail: {scope} is {state_of(gate)}.")
    return " ".join(told)


def is_of(gate: Gate, type: str | None, collection: str | None) -> bool:
    """Whether a gate belongs to exactly this scope."""
    of = None if gate.type is None else gate.type.identifier
    return (of, gate.collection) == (type, collection)


def above(type: str | None, collection: str | None, shut: Iterable[Gate]) -> list[Gate]:
    """Return the shut gates of wider scopes, which shut this scope too."""
    if type is None:
        return []
    return [
        gate
        for gate in shut
        if gate.type is None
        or (
            collection is not None and gate.collection is None and gate.type.identifier == str(type)
        )
    ]


def of_limits(limit: Limit | None) -> str:
    """Return limits in words; None means no limits."""
    if limit is None:
        return "nothing is limited"
    told = [f"{limit.max_running} at a time"] if limit.max_running is not None else []
    if limit.max_running_per_collection is not None:
        told.append(f"{limit.max_running_per_collection} at a time of each collection")
    told += [f"{limit.rate}, {limit.burst} at once"] if limit.rate else []
    told += [f"weight {limit.weight:g}"] if limit.weight != 1 else []
    told += [f"{limit.max_waiting} waiting"] if limit.max_waiting is not None else []
    if limit.max_wait is not None:
        told.append(f"the oldest waiting {wording.duration(limit.max_wait)}")
    return "; ".join(told) or "nothing is limited"


def of_room(fill: Fill, priority: int) -> str:
    """Return in words how many Instances may wait at this priority."""
    room = fill.room(priority)
    if room == fill.max_waiting:
        return f"at most {room} may wait there"
    return f"at most {room} of {fill.max_waiting} may wait there at priority {priority}"


def full(fill: Fill, waiting: int, priority: int, after: float) -> str:
    """Return why an enqueue was refused; ``after`` is the seconds after which to try again."""
    told = []
    if fill.max_waiting is not None:
        told.append(f"{waiting} wait, and {of_room(fill, priority)}")
    if fill.max_wait is not None:
        oldest, most = map(wording.duration, (fill.oldest, fill.max_wait))
        told.append(f"the oldest has waited {oldest}, longer than {most}")
    scope = where(fill.type, fill.collection)
    return f"{scope} is full: {'; '.join(told)}. Try again in {after:.0f} s."


def of_unlimit(left: Left) -> str:
    """Return the outcome of :func:`~atp.verbs.control.limits.unlimit` in words."""
    told = "The limits are left to the code" if left.was_set else "No operator has set limits there"
    if left.is_declared:
        return f"{told}: {of_limits(left.limit)}."
    return (
        f"{told}. This process does not declare the Type, so the present limits stay until the "
        f"Type is next registered: {of_limits(left.limit)}."
    )


def misfit(*, is_elsewhere: bool) -> str:
    """Return that its inputs fit no daemon, or not the one that had it, without the error."""
    told = "Its inputs did not fit the handler of the daemon that had claimed it."
    return f"{told} Another daemon that is alive may take it." if is_elsewhere else told
