"""Sources under fire: workers, dispatchers, daemons and the server are killed (G18).

Numbered records come into a table, a directory, a stream and a topic. Some cannot be mapped, and
some kill the worker that maps them. Entries of a second stream are removed, read or not, and odd
files come between those of the directory. Afterwards each number has made one Instance, or is put
aside once, or is counted as lost; the odd files are counted, too; and no cursor has gone back.
"""

import os
import random
import time
from collections import Counter

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.management import call_command

from atp import queue
from atp.models import Cursor, Inputs, Instance, LogRecord, Tailer
from atp.payload import codec
from atp.rows.log import Kind
from atp.states import TERMINAL, State
from atp.tailers.tailer import declared
from tests.app.tasks_tailers import number_of
from tests.helpers import wait_for

from .fleet import Fleet
from .kills import Kills

NAMES = ("table", "directory", "redis", "kafka")
# The stream whose entries somebody removes.
TRIMMED = "trimmed"
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
        self._odd = 0
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
        broken = [*self._back, *broken_of(self._next - 1), *miscounted(self._next - 1, self._odd)]
        self._told(broken)
        return not broken

    def _feed(self, count):
        for number in range(self._next, self._next + count):
            Group.objects.create(name=str(number))
            hidden = self._sources["folder"] / f".{number}"
            hidden.touch()
            hidden.rename(self._sources["folder"] / str(number))
            self._sources["redis"].xadd("chaos", {"data": number})
            self._sources["redis"].xadd(f"chaos-{TRIMMED}", {"data": number})
            self._sources["kafka"].put("chaos", str(number), partition=number % 2)
        self._next += count
        self._remove()
        self._add_odd_file()

    def _remove(self):
        """Remove entries of the stream: up to one of the last of them, and some of these singly.

        What is removed before the first look is not lost: a stream begins with what is there.
        """
        if not Cursor.objects.filter(tailer=f"chaos.{TRIMMED}").exists():
            return
        redis, key = self._sources["redis"], f"chaos-{TRIMMED}"
        if self._random.random() < 0.5:
            redis.xtrim(key, maxlen=self._random.randint(0, AT_ONCE // 2), approximate=False)
        last = [id for id, _ in redis.xrevrange(key, count=AT_ONCE)]
        for id in self._random.sample(last, min(len(last), self._random.randint(0, 3))):
            redis.xdel(key, id)

    def _add_odd_file(self):
        """Add what is no record: a pipe, a link, or a name that is not UTF-8."""
        folder, number = self._sources["folder"], self._odd
        kind = self._random.choice(("pipe", "link", "name"))
        if kind == "pipe":
            os.mkfifo(folder / f"pipe-{number}")
        elif kind == "link":
            (folder / f"link-{number}").symlink_to("1")
        else:
            path = os.fsencode(folder) + b"/\xff-%d" % number
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        self._odd += 1

    def _look(self):
        """Look whether a cursor that numbers its records has gone back."""
        numbered = [f"chaos.{name}" for name in ("redis", "kafka", TRIMMED)]
        for row in Cursor.objects.filter(tailer__in=numbered):
            key, now = (row.tailer, row.shard), int(row.position.rpartition(" ")[2])
            if now < self._last.get(key, 0):
                self._back.append(f"{key} went back from {self._last[key]} to {now}")
            self._last[key] = now

    def _is_over(self):
        rows = {row.identifier: row for row in Tailer.objects.all()}
        names = (*NAMES, TRIMMED)
        if any(f"chaos.{name}" not in rows for name in names):
            return False
        done = [rows[f"chaos.{name}"].records + rows[f"chaos.{name}"].lost for name in names]
        if any(each < self._next - 1 for each in done):
            return False
        if rows["chaos.directory"].skipped < self._odd:
            return False
        types = ["chaos.tailed", *(f"chaos.{name}.rejected" for name in names)]
        live = Instance.objects.exclude(state__in=TERMINAL)
        return not live.filter(type__identifier__in=types).exists()

    def _told(self, broken):
        self._tell("counted:")
        self._tell(f"{self._kills.total:8d} kills: {dict(self._kills.counts)}")
        self._tell(f"{self._next - 1:8d} records in each of {len(NAMES) + 1} sources")
        self._tell(f"{self._odd:8d} odd files")
        for row in Tailer.objects.all():
            told = f"{row.enqueued} Instances, {row.rejected} put aside, {row.lost} lost"
            self._tell(f"{row.records:8d} settled by {row.identifier}: {told}")
        for words in broken:
            self._tell(f"BROKEN G18: {words}")


def broken_of(count):
    """Yield sentences about each record that has not come out once; they are numbered from 1."""
    made, aside, failed = Counter(), Counter(), Counter()
    for row in Inputs.objects.filter(instance__type__identifier="chaos.tailed"):
        given = codec.decode(codec.Payload(row.format, row.data))
        made[given["source"], given["number"]] += 1
    tailers = {each.identifier: each for each in declared}
    for name in (*NAMES, TRIMMED):
        source = tailers[f"chaos.{name}"].source
        rows = Inputs.objects.filter(instance__type__identifier=f"chaos.{name}.rejected")
        for row in rows.select_related("instance"):
            given = codec.decode(codec.Payload(row.format, row.data))
            key = name, number_of(source.unpack(given["record"]))
            aside[key] += 1
            failed[key] += row.instance.state == State.FAILED
    for name in (*NAMES, TRIMMED):
        least = 0 if name == TRIMMED else 1
        for number in range(1, count + 1):
            key = name, number
            if not least <= made[key] + failed[key] <= 1 or aside[key] > 1:
                yield (
                    f"{name} {number}: {made[key]} Instances, {aside[key]} put aside, "
                    f"{failed[key]} of them FAILED"
                )
    for key in {*made, *aside}:
        if key[1] > count:
            yield f"{key} was never in its source"
    row = Tailer.objects.get(identifier=f"chaos.{TRIMMED}")
    came = sum(made[key] + failed[key] for key in {*made, *aside} if key[0] == TRIMMED)
    if came != count - row.lost:
        yield f"{TRIMMED}: {came} of {count} records came out, {row.lost} are counted as lost"


def miscounted(count, odd):
    """Yield sentences about counts of tailers that are wrong, after so many records, odd files."""
    for name in (*NAMES, TRIMMED):
        row = Tailer.objects.get(identifier=f"chaos.{name}")
        log = LogRecord.objects.about(f"type:chaos.{name}").filter(kind=Kind.GAP)
        told = [int(each.detail) for each in log]
        if row.records + row.lost != count or (row.lost and name != TRIMMED):
            yield f"{name}: {row.records} records and {row.lost} lost of {count}"
        if (row.gaps, row.lost) != (len(told), sum(told)):
            yield f"{name}: {row.gaps} gaps and {row.lost} lost; its log tells of {told}"
        skipped = odd if name == "directory" else 0
        if row.skipped != skipped or row.passed_over:
            yield f"{name}: {row.skipped} skipped of {skipped}, {row.passed_over} passed over"
