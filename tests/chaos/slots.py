"""Schedules under fire: dispatchers are killed, and their hosts' clocks are an hour apart (G16).

Afterwards the slots are counted: none was lost, and none was run twice.
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from datetime import timedelta

from django.conf import settings
from django.core.management import call_command

from atp import queue
from atp.daemon.system.processes import uptime
from atp.models import Instance, Node, Schedule, Slot
from atp.rows.schedule import Outcome
from tests import clock
from tests.daemon.harness import Atpd
from tests.helpers import DEADLINE

from .lines import LINES, broken_lines, create_line
from .record import executions, read

TYPE = "chaos.slot"
SECOND = timedelta(seconds=1)
COUNT = 50
# One daemon each, its wall clock so many seconds ahead.
CLOCKS = (-3600, 0, 3600)
KILL_EVERY = 2.0
PROCESSES = 2


class Slots:
    """A run on the database that Django has been set up with.

    On SQLite, time comes from the daemons themselves, which share their host and its clock.
    """

    def __init__(self, *, folder, seed, minutes, server, tell):
        self._folder = folder
        self._random = random.Random(seed)
        self._seed = seed
        self._minutes = minutes
        self._clocks = CLOCKS if server else [0] * len(CLOCKS)
        self._tell = tell
        self._daemons = []
        self._kills = 0
        self._record = folder / "record.jsonl"

    def run(self):
        """Do all of it, and return whether the promise was kept."""
        engine = settings.DATABASES["default"]["ENGINE"]
        self._tell(f"seed {self._seed}, {self._minutes:g} minutes, {engine}")
        self._tell(f"{COUNT} schedules, and {len(LINES)} whose Instances wait for each other")
        self._tell(f"daemons whose clocks are ahead by {self._clocks} s")
        call_command("migrate", verbosity=0)
        queue.register_all(by="chaos")
        try:
            self._start()
            names = [f"chaos-{number}" for number in range(COUNT)]
            firsts = {name: self._create(name) for name in names}
            firsts |= {name: create_line(name, self._record) for name in LINES}
            names += LINES
            self._kill(uptime() + 60 * self._minutes)
            for name in names:
                queue.pause_schedule(name, by="chaos")
            for daemon in self._daemons:
                daemon.signal(signal.SIGTERM)
            for daemon in self._daemons:
                daemon.wait(DEADLINE)
        finally:
            for daemon in self._daemons:
                daemon.destroy()
        broken = [words for name in names for words in broken_of(name, firsts[name])]
        record = executions(read(self._record))
        broken += [words for name in LINES for words in broken_lines(name, record)]
        self._tell(f"{len(record):8d} Instances of lines have begun")
        self._tell(f"{Node.objects.count():8d} nodes are left: of what is live")
        self._told(broken)
        return not broken

    def _start(self):
        library = clock.compiled(self._folder)
        for seconds in self._clocks:
            own = clock.shifted(library, seconds)
            options = ("--type", "chaos.*", "--grace", "2")
            self._daemons.append(Atpd(self._folder, *options, processes=PROCESSES, environment=own))
        for daemon in self._daemons:
            daemon.ready()

    @staticmethod
    def _create(name):
        return queue.create_schedule(name, TYPE, every=SECOND, overlap="allow").next_at

    def _kill(self, until):
        while uptime() < until:
            time.sleep(KILL_EVERY)
            for pid in self._random.choice(self._daemons).dispatchers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self._kills += 1

    def _told(self, broken):
        counts = Counter()
        late = []
        for slot in Slot.objects.all():
            counts[slot.outcome] += slot.count
            if slot.outcome == Outcome.ENQUEUED:
                late.append((slot.decided - slot.at).total_seconds())
        states = Counter(Instance.objects.values_list("state", flat=True))
        self._tell("counted:")
        self._tell(f"{self._kills:8d} dispatchers killed")
        self._tell(f"{sum(counts.values()):8d} slots: {dict(counts)}")
        self._tell(f"{sum(states.values()):8d} Instances: {dict(states)}")
        late.sort()
        if late:
            shares = [f"{late[int(share * (len(late) - 1))]:.3f}" for share in (0.5, 0.95, 1)]
            self._tell(f"         a slot was planned late by (p50, p95, most): {shares} s")
        for words in broken:
            self._tell(f"BROKEN G16, G17: {words}")


def broken_of(name, first):
    """Yield sentences about each slot of a schedule that was lost, or counted twice.

    Also about each that was decided before its time, or given up as late before it was.
    ``first`` is its first slot. Its Instances are those of its ENQUEUED slots, and no others.
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
