"""Schedules: how long after their time the last of many is enqueued, and what they cost at rest.

All are due at once, and one daemon plans them and works on what is enqueued. Statements of an
idle daemon are counted as :mod:`.idle` does, without schedules and with some that rest.
"""

import math
import time
from datetime import UTC, datetime, timedelta

from . import idle
from .core import draining

# In seconds.
LIMIT = 5.0
PATIENCE = 300.0
LOOK_EVERY = 0.02
# A schedule runs each such part of the time since 1970: it is due now, and then for long not.
PARTS = 16


def add_arguments(add):
    add("--schedules", type=int, default=10_000, help="that are due at once")
    add("--resting", type=int, default=1_000, help="that are due tomorrow, beside an idle daemon")
    idle.add_arguments(add)


def run(options, report):
    from .tasks import NOOPS

    load = draining.Load.of(options, NOOPS[:1])
    without, _ = zip(*[idle.once(load, options) for _ in range(options.runs)], strict=True)
    _resting(options.resting)
    resting, _ = zip(*[idle.once(load, options) for _ in range(options.runs)], strict=True)
    if None not in without:
        report.row("idle, without schedules", without, unit="statements/s")
        report.row(f"idle, {options.resting:,} schedules", resting, unit="statements/s")
    with draining.ready(load, options.directory):
        found = [_planned(number, options) for number in range(options.runs)]
    last = report.row(f"the last of {options.schedules:,}", found, unit="s")
    if last > LIMIT:
        report.exceeded.append(f"the last slot was enqueued after {last:.1f} s: limit {LIMIT:g} s")


def _resting(count):
    from atp.store import get_store

    tomorrow = int(get_store().now().timestamp()) + 86400
    _create("resting", count, datetime.fromtimestamp(tomorrow - tomorrow % PARTS, UTC))


def _planned(number, options):
    """Let all be due at once; return after how many seconds the last one has its slot."""
    from atp.models import Slot
    from atp.store import get_store

    soon = math.ceil(get_store().now().timestamp()) + options.settle
    due = datetime.fromtimestamp(soon + -soon % PARTS, UTC)
    rows = _create(f"run-{number}", options.schedules, due)
    decided = Slot.objects.filter(schedule__in=[rows[0], rows[-1]])
    time.sleep(max(0.0, (due - get_store().now()).total_seconds()))
    ends = time.monotonic() + PATIENCE
    slots = Slot.objects.filter(schedule_id__gte=rows[0].pk, schedule_id__lte=rows[-1].pk)
    while decided.count() < 2 or slots.count() < len(rows):
        if time.monotonic() > ends:
            raise AssertionError(f"{slots.count()} of {len(rows)} slots were decided")
        time.sleep(LOOK_EVERY)
    return (get_store().now() - due).total_seconds()


def _create(name, count, due):
    """Make schedules whose first slot is at ``due``, and the next one in years; tell daemons."""
    from atp import queue
    from atp.models import Schedule
    from atp.store import get_store

    from .tasks import NOOPS

    type = queue.get_type(NOOPS[0].identifier)
    lengths = {"window": timedelta(days=1), "late_after": timedelta(hours=1)}
    rows = Schedule.objects.bulk_create(
        Schedule(
            identifier=f"{name}-{number}",
            type=type,
            data=f'{{"number": {number}}}',
            every=timedelta(seconds=due.timestamp() // PARTS),
            jitter=timedelta(0),
            next_at=due,
            due_at=due,
            is_set=True,
            since=due,
            **lengths,
        )
        for number in range(count)
    )
    get_store().tell()
    return sorted(rows, key=lambda row: row.pk)
