"""Sources under fire: workers, dispatchers, daemons and the server are killed (G18).

Numbered records come into a table, a directory, a stream and a topic. Some cannot be mapped, and
some kill the worker that maps them. Afterwards each number has made one Instance, or is put aside
once, and no cursor has gone back.
"""

import random
import time
from collections import Counter

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.management import call_command

from atp import queue
from atp.models import Cursor, Inputs, Instance, Tailer
from atp.payload import codec
from atp.states import TERMINAL, State
from atp.tailers.tailer import declared
from tests.app.tasks_tailers import number_of
from tests.helpers import wait_for

from .fleet import Fleet
from .kills import Kills

NAMES = ("table", "directory", "redis", "kafka")
# So many records come into each source between two kills, at most.
AT_ONCE = 30
KILL_EVERY = 0.7
ENDS_WITHIN = 300.0


class Tailers:
    """A run on the database that Django has been set up with."""

    def __init__(self, *, folder, seed, kills, server, tell, sources):
        self._random = random.Random(seed)
        self._seed, self._wanted = seed, kills
        self._tell, self._sources = tell, sources
        self._fleet = Fleet(folder, server)
        self._kills = Kills(self._random, self._fleet, server)
        self._next = 1
        self._last: dict[tuple[str, str], int] = {}
        self._back: list[str] = []

    def run(self):
        """Do all of it, and return whether the promise was kept."""
        engine = settings.DATABASES["default"]["ENGINE"]
        self._tell(f"seed {self._seed}, {self._wanted} kills, {engine}")
        call_command("migrate", verbosity=0)
        queue.register_all(by="chaos")
        try:
            for _ in range(3):
                self._fleet.join()
            for member in self._fleet.there():
                member.atpd.ready()
            while self._kills.total < self._wanted:
                self._feed(self._random.randint(1, AT_ONCE))
                self._look()
                time.sleep(self._random.random() * 2 * KILL_EVERY)
                self._kills.draw()
            wait_for(self._is_over, ENDS_WITHIN, what="the end of all records")
            self._fleet.stop_all()
        finally:
            self._fleet.destroy()
        broken = [*self._back, *broken_of(self._next - 1)]
        self._told(broken)
        return not broken

    def _feed(self, count):
        for number in range(self._next, self._next + count):
            Group.objects.create(name=str(number))
            hidden = self._sources["folder"] / f".{number}"
            hidden.touch()
            hidden.rename(self._sources["folder"] / str(number))
            self._sources["redis"].xadd("chaos", {"data": number})
            self._sources["kafka"].put("chaos", str(number), partition=number % 2)
        self._next += count

    def _look(self):
        """Look whether a cursor that numbers its records has gone back."""
        for row in Cursor.objects.filter(tailer__in=("chaos.redis", "chaos.kafka")):
            key, now = (row.tailer, row.shard), int(row.position.rpartition(" ")[2])
            if now < self._last.get(key, 0):
                self._back.append(f"{key} went back from {self._last[key]} to {now}")
            self._last[key] = now

    def _is_over(self):
        settled = dict(Tailer.objects.values_list("identifier", "records"))
        if any(settled.get(f"chaos.{name}") != self._next - 1 for name in NAMES):
            return False
        types = ["chaos.tailed", *(f"chaos.{name}.rejected" for name in NAMES)]
        live = Instance.objects.exclude(state__in=TERMINAL)
        return not live.filter(type__identifier__in=types).exists()

    def _told(self, broken):
        self._tell("counted:")
        self._tell(f"{self._kills.total:8d} kills: {dict(self._kills.counts)}")
        self._tell(f"{self._next - 1:8d} records in each of {len(NAMES)} sources")
        for row in Tailer.objects.all():
            told = f"{row.enqueued} Instances, {row.rejected} put aside"
            self._tell(f"{row.records:8d} settled by {row.identifier}: {told}")
        for words in broken:
            self._tell(f"BROKEN G18: {words}")


def broken_of(count):
    """Yield sentences about each record that has not come out once; they are numbered from 1."""
    made = Counter()
    for row in Inputs.objects.filter(instance__type__identifier="chaos.tailed"):
        given = codec.decode(codec.Payload(row.format, row.data))
        made[given["source"], given["number"]] += 1
    aside, failed = Counter(), Counter()
    tailers = {each.identifier: each for each in declared}
    for name in NAMES:
        source = tailers[f"chaos.{name}"].source
        rows = Inputs.objects.filter(instance__type__identifier=f"chaos.{name}.rejected")
        for row in rows.select_related("instance"):
            given = codec.decode(codec.Payload(row.format, row.data))
            key = name, number_of(source.unpack(given["record"]))
            aside[key] += 1
            failed[key] += row.instance.state == State.FAILED
    for name in NAMES:
        for number in range(1, count + 1):
            key = name, number
            if made[key] + failed[key] != 1 or aside[key] > 1:
                yield (
                    f"{name} {number}: {made[key]} Instances, {aside[key]} put aside, "
                    f"{failed[key]} of them FAILED"
                )
    for key in {*made, *aside}:
        if key[1] > count:
            yield f"{key} was never in its source"
