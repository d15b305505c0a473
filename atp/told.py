"""What is told of gates and limits that were set, in words: what is there, and what was."""

from . import wording

MODES = {"hold": "held", "drop": "dropped"}
_DONE = {
    "hold": "Nothing more is started there.",
    "drop": "What waits there fails.",
    "open": "The gate is open.",
}


def where(type, collection):
    """What a gate or a limit is of, for people: by the Type's identifier, and the collection."""
    if type is None:
        return "everything"
    return str(type) if collection is None else f"{type}, collection “{collection}”"


def state_of(gate, moment=wording.moment):
    """How a gate is shut, by whom and why; None is one that is open."""
    if gate is None:
        return "open"
    by = f" by {gate.who}" if gate.who else ""
    until = f", until {moment(gate.until)}" if gate.until else ""
    reason = f": {gate.reason}" if gate.reason else ""
    return f"{MODES[gate.mode]}{by}, since {moment(gate.since)}{until}{reason}"


def in_utc(time):
    """A time as the log has it."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def of_gate(mode, type, collection, was, shut):
    """What has become of a gate: open, hold or drop; ``was`` is what it was, None if open.

    ``shut`` are the gates that are shut then.
    """
    if mode == "open" and was is None:
        told = ["It is open already."]
    else:
        told = [_DONE[mode]]
        if was is not None:
            told.append(f"Before, it was {state_of(was)}.")
    for gate in above(type, collection, shut):
        place = where(gate.type, gate.collection)
        if mode == "open":
            told.append(f"Nothing moves there yet: {place} is {state_of(gate)}.")
        elif mode == "hold" and gate.mode == "drop":
            told.append(f"What waits there fails all the same: {place} is {state_of(gate)}.")
    return " ".join(told)


def is_of(gate, type, collection):
    """Whether a gate is that of a place, and no other's."""
    of = None if gate.type is None else gate.type.identifier
    return (of, gate.collection) == (type, collection)


def above(type, collection, shut):
    """The gates that shut a place with others."""
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


def of_limits(limit):
    """What is limited, in words; None is nothing."""
    if limit is None:
        return "nothing is limited"
    told = [f"{limit.max_running} at a time"] if limit.max_running is not None else []
    told += [f"{limit.rate}, {limit.burst} at once"] if limit.rate else []
    told += [f"weight {limit.weight:g}"] if limit.weight != 1 else []
    return "; ".join(told) or "nothing is limited"


def of_unlimit(left):
    """What has become of limits that were left to the code (:class:`atp.controls.Left`)."""
    told = "The limits are left to the code" if left.was_set else "No operator has set limits there"
    if left.is_declared:
        return f"{told}: {of_limits(left.limit)}."
    return (
        f"{told}. This process does not declare the Type, so what is in force holds until it is "
        f"registered next: {of_limits(left.limit)}."
    )
