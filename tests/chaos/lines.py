"""Schedules whose Instances wait for each other, held against the handlers' own record (G17)."""

from datetime import timedelta

from atp import queue
from atp.models import Instance, Slot
from atp.rows.schedule import Outcome
from atp.states import Reason, State

TYPE = "chaos.lined"
# Of each policy some, with the seconds that an Instance takes: less than a second, and more.
_POLICIES = (("queue", 0.3), ("queue", 1.4), ("cancel", 0.3), ("cancel", 60.0))
LINES = [f"chaos-{overlap}-{seconds}" for overlap, seconds in _POLICIES]
_OF = dict(zip(LINES, _POLICIES, strict=True))


def create_line(name, record):
    """Make a schedule that runs each second; returns its first slot."""
    overlap, seconds = _OF[name]
    inputs = {"path": str(record), "seconds": seconds}
    given = {"every": timedelta(seconds=1), "overlap": overlap, "most": 5, "inputs": inputs}
    return queue.create_schedule(name, TYPE, **given).next_at


def broken_lines(name, record):
    """Yield sentences about each Instance that began before the end of one before it.

    Times are those of the handlers. An Instance ends with the last line of its last attempt: one
    whose worker was killed is tried again, before what waits behind it. With cancel nothing but
    the last one may be left of those that had another behind them before they were through.
    """
    overlap, seconds = _OF[name]
    slots = Slot.objects.filter(schedule__identifier=name, outcome=Outcome.ENQUEUED)
    order = list(slots.order_by("at").values_list("instance_id", flat=True))
    instances = Instance.objects.in_bulk(order)
    last, end = None, 0.0
    for key in order:
        attempts = record.get(str(instances[key].uuid))
        if attempts is None:
            continue
        begun = min(execution.begun_by_time for execution in attempts.values())
        if begun < end:
            yield f"{name}: {instances[key]} began {end - begun:.3f} s before the end of {last}"
        last = instances[key]
        end = max(execution.ended_by_time for execution in attempts.values())
    for key in order[:-1] if overlap == "cancel" else ():
        row = instances[key]
        is_cancelled = (row.state, row.reason) == (State.FAILED, Reason.CANCELLED)
        if not is_cancelled and (row.state != State.FINISHED or seconds > 1.5):
            yield f"{name}: {row} was to be cancelled, and is {row.state} {row.reason}"
    for key in order if overlap == "queue" else ():
        if instances[key].state == State.FAILED:
            yield f"{name}: {instances[key]} is FAILED: {instances[key].reason}"
