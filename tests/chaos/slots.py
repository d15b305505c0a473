"""Chaos with schedules: dispatchers are killed, and the clocks of their hosts differ (G16).

Afterwards the slots are counted: none was lost, and none was run twice. The Instances of some
schedules wait for each other; they are compared with the handlers' own record (G17).
"""

import time
from collections import Counter
from datetime import timedelta

from atp import queue
from atp.models import Instance, Schedule, Slot
from atp.schedules.models import Outcome
from atp.states import Reason, State
from tests import clock

from .record import read, uptime
from .scenario import Scenario

TYPE, LINED_TYPE = "chaos.slot", "chaos.lined"
SECOND = timedelta(seconds=1)
NAMES = [f"chaos-{number}" for number in range(50)]
# Of each policy some, with the seconds that an Instance takes: less than a second, and more.
_POLICIES = (("queue", 0.3), ("queue", 1.4), ("cancel", 0.3), ("cancel", 60.0))
LINES = {f"chaos-{overlap}-{seconds}": (overlap, seconds) for overlap, seconds in _POLICIES}
# One daemon each, its wall clock so many seconds ahead.
CLOCKS = (-3600, 0, 3600)
KILL_EVERY = 2.0


class Slots(Scenario):
    """A scenario with schedules; on SQLite, daemons share the clock of their host."""

    promise = "G16, G17"

    def _join(self):
        self._clocks = CLOCKS if self._server else [0] * len(CLOCKS)
        library = clock.compiled(self._folder)
        for seconds in self._clocks:
            self._fleet.join(**clock.shifted(library, seconds))

    def _disturb(self):
        every = {"every": SECOND, "overlap": "allow"}
        self._firsts = {n: queue.create_schedule(n, TYPE, **every).next_at for n in NAMES}
        self._firsts |= {name: create_line(name, self._path) for name in LINES}
        until = uptime() + 60 * self._minutes
        while uptime() < until:
            time.sleep(KILL_EVERY)
            self._draw_kill("kill_dispatcher")
        for name in self._firsts:
            queue.pause_schedule(name, by="chaos")
        self._stop()

    def _broken(self):
        self._record = read(self._path)
        for name, first in self._firsts.items():
            yield from broken_of(name, first)
        for name in LINES:
            yield from broken_lines(name, self._record)

    def _counts(self):
        counts, late = Counter(), [0.0]
        for slot in Slot.objects.all():
            counts[slot.outcome] += slot.count
            if slot.outcome == Outcome.ENQUEUED:
                late.append((slot.decided - slot.at).total_seconds())
        late.sort()
        shares = [f"{late[int(share * (len(late) - 1))]:.3f}" for share in (0.5, 0.95, 1)]
        yield len(self._clocks), f"daemons, whose clocks were ahead by {self._clocks} s"
        yield len(self._firsts), f"schedules, {len(LINES)} with Instances that wait for each other"
        yield sum(counts.values()), f"slots: {dict(counts)}; late by (p50, p95, most) {shares} s"
        yield len(self._record), "Instances of lines have begun"


def broken_of(name, first):
    """Yield a sentence for each slot of a schedule that was lost or counted twice.

    Slots that were decided too early, or given up before they were late, are reported too.
    ``first`` is the first slot. The schedule must have exactly the Instances of its ENQUEUED
    slots.
    """
    schedule = Schedule.objects.get(identifier=name)
    expected, enqueued = first, {}
    for slot in Slot.objects.filter(schedule=schedule).order_by("at"):
        last = slot.until or slot.at
        if slot.at != expected:
            yield f"{name}: the slot after {expected - SECOND} is {slot.at}"
        if slot.count != (last - slot.at) // SECOND + 1:
            yield f"{name}: {slot.count} slots are counted from {slot.at} to {last}"
        if slot.outcome != Outcome.PAUSED and slot.decided < last:
            yield f"{name}: the slot of {last} was decided at {slot.decided}, before its time"
        if slot.outcome == Outcome.MISSED and slot.decided <= last + schedule.late_after:
            yield f"{name}: the slot of {last} is MISSED, and was not late at {slot.decided}"
        if slot.outcome == Outcome.ENQUEUED:
            enqueued[f"{name}@{slot.at:%Y-%m-%dT%H:%M:%SZ}"] = slot.instance_id
        expected = last + SECOND
    if schedule.next_at != expected:
        yield f"{name}: the slot after {expected - SECOND} is to be {schedule.next_at}"
    rows = Instance.objects.filter(created_by=f"schedule {name}").values_list("identifier", "pk")
    found = dict(rows)
    if found != enqueued or len(found) != len(rows):
        yield f"{name}: {len(enqueued)} slots were enqueued, and {len(rows)} Instances are there"


def create_line(name, record):
    """Create a schedule that runs each second; return its first slot."""
    overlap, seconds = LINES[name]
    inputs = {"path": str(record), "seconds": seconds}
    given = {"every": timedelta(seconds=1), "overlap": overlap, "most": 5, "inputs": inputs}
    return queue.create_schedule(name, LINED_TYPE, **given).next_at


def broken_lines(name, record):
    """Yield a sentence for each Instance that began before an earlier one had ended.

    Times are those of the handlers. An Instance ends with the last line of its last attempt,
    since one whose worker was killed is retried before later ones start. With the overlap
    "cancel", each Instance that had a successor before its end must be cancelled.
    """
    overlap, seconds = LINES[name]
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
