"""Chaos with tailers: workers, dispatchers, daemons and the server are killed (G18).

Numbered records are added to a table, a directory, a stream and a topic. Some records cannot be
mapped, and some kill their worker. Entries of a second stream are removed, read or not, and
special files are added to the directory. Afterwards each number must have one Instance, or be
rejected once, or be counted as lost. The special files must be counted too, and no cursor may
have gone back.
"""

import os
from collections import Counter

from django.contrib.auth.models import Group

from atp.models import Cursor, Inputs, Instance, Kind, LogRecord, Tailer
from atp.payload import codec
from atp.states import TERMINAL, State
from atp.tailers.tailer import declared
from tests.app.tasks_tailers import number_of

from .scenario import Scenario

# The stream whose entries somebody removes.
TRIMMED = "trimmed"
ALL = ("table", "directory", "redis", "kafka", TRIMMED)
# So many records come into each source between two kills, at most.
AT_ONCE = 30
KILL_EVERY = 0.7


class Tailers(Scenario):
    """A scenario with tailers and kills; ``outside`` are the sources."""

    promise = "G18"

    def __init__(self, **given):
        super().__init__(**given)
        self._next, self._odd = 1, 0
        self._last: dict[tuple[str, str], int] = {}
        self._back: list[str] = []

    def _disturb(self):
        self._kill(self._feed_and_look, every=KILL_EVERY)
        self._recover()

    def _broken(self):
        count = self._next - 1
        return [*self._back, *broken_of(count), *miscounted(count, self._odd)]

    def _feed_and_look(self):
        self._feed(self._random.randint(1, AT_ONCE))
        self._look()

    def _feed(self, count):
        for number in range(self._next, self._next + count):
            Group.objects.create(name=str(number))
            hidden = self._outside["folder"] / f".{number}"
            hidden.touch()
            hidden.rename(self._outside["folder"] / str(number))
            self._outside["redis"].xadd("chaos", {"data": number})
            self._outside["redis"].xadd(f"chaos-{TRIMMED}", {"data": number})
            self._outside["kafka"].put("chaos", str(number), partition=number % 2)
        self._next += count
        self._remove()
        self._add_odd_file()

    def _remove(self):
        """Remove entries of the stream: all up to a recent one, and some single entries.

        Entries that are removed before the first scan are not lost, since a stream starts with
        what exists.
        """
        if not Cursor.objects.filter(tailer=f"chaos.{TRIMMED}").exists():
            return
        redis, key = self._outside["redis"], f"chaos-{TRIMMED}"
        if self._random.random() < 0.5:
            redis.xtrim(key, maxlen=self._random.randint(0, AT_ONCE // 2), approximate=False)
        last = [id for id, _ in redis.xrevrange(key, count=AT_ONCE)]
        for id in self._random.sample(last, min(len(last), self._random.randint(0, 3))):
            redis.xdel(key, id)

    def _add_odd_file(self):
        """Add a pipe, a link or a file whose name is not UTF-8, none of which is a record."""
        folder, number = self._outside["folder"], self._odd
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
        """Check whether a cursor that numbers its records has gone back."""
        numbered = [f"chaos.{name}" for name in ("redis", "kafka", TRIMMED)]
        for row in Cursor.objects.filter(tailer__in=numbered):
            key, now = (row.tailer, row.shard), int(row.position.rpartition(" ")[2])
            if now < self._last.get(key, 0):
                self._back.append(f"{key} went back from {self._last[key]} to {now}")
            self._last[key] = now

    def _left(self):
        rows = {row.identifier: row for row in Tailer.objects.all()}
        left = []
        for name in (f"chaos.{name}" for name in ALL):
            row = rows.get(name)
            odd = self._odd if name == "chaos.directory" else 0
            if row is None or row.records + row.lost < self._next - 1 or row.skipped < odd:
                left.append(f"{name} has not read all")
        types = ["chaos.tailed", *(f"chaos.{name}.rejected" for name in ALL)]
        live = Instance.objects.exclude(state__in=TERMINAL)
        found = live.filter(type__identifier__in=types)
        return left + [f"{each.uuid} is {each.state}" for each in found[:AT_ONCE]]

    def _counts(self):
        yield self._next - 1, f"records in each of {len(ALL)} sources"
        yield self._odd, "odd files"
        for row in Tailer.objects.all():
            told = f"{row.enqueued} Instances, {row.rejected} put aside, {row.lost} lost"
            yield row.records, f"settled by {row.identifier}: {told}"


def broken_of(count):
    """Yield a sentence for each record that was not handled once; numbers start at 1."""
    made, aside, failed = Counter(), Counter(), Counter()
    for row in Inputs.objects.filter(instance__type__identifier="chaos.tailed"):
        given = codec.decode(codec.Payload(row.format, row.data))
        made[given["source"], given["number"]] += 1
    tailers = {each.identifier: each for each in declared}
    for name in ALL:
        source = tailers[f"chaos.{name}"].source
        rows = Inputs.objects.filter(instance__type__identifier=f"chaos.{name}.rejected")
        for row in rows.select_related("instance"):
            given = codec.decode(codec.Payload(row.format, row.data))
            key = name, number_of(source.unpack(given["record"]))
            aside[key] += 1
            failed[key] += row.instance.state == State.FAILED
    for name in ALL:
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
    """Yield a sentence for each wrong count of a tailer, given the records and odd files."""
    for name in ALL:
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
