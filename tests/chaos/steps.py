"""Steps under fire: workers, dispatchers, daemons and the server are killed (G17).

Each Instance charges a card in a step and leaves a row in the transaction of another.
Afterwards the charges are counted in the handlers' own record: the row stands exactly
once, and of each attempt that has charged again the log says so.
"""

import random
import time
from collections import Counter, defaultdict

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.management import call_command

from atp import queue
from atp.models import Instance, LogRecord, Step
from atp.rows.log import Kind
from atp.states import TERMINAL, State
from tests.app.tasks_chaos import steps as TYPE  # noqa: N812 (a handler, declared as a Type)
from tests.helpers import wait_for

from .fleet import Fleet
from .kills import Kills
from .record import executions, read

# So many Instances wait or run at any time, and one takes so many seconds four times.
LIVE, SECONDS = 30, 0.05
KILL_EVERY = 0.5
ENDS_WITHIN = 240.0


class Steps:
    """A run on the database that Django has been set up with."""

    def __init__(self, *, folder, seed, kills, server, tell):
        self._random = random.Random(seed)
        self._seed = seed
        self._wanted = kills
        self._tell = tell
        self._fleet = Fleet(folder, server)
        self._record = folder / "record.jsonl"
        self._kills = Kills(self._random, self._fleet, server)

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
                self._feed()
                time.sleep(self._random.random() * 2 * KILL_EVERY)
                self._kills.draw()
            wait_for(self._is_over, ENDS_WITHIN, what="the end of all Instances")
            self._fleet.stop_all()
        finally:
            self._fleet.destroy()
        broken = list(broken_of(executions(read(self._record))))
        self._told(broken)
        return not broken

    def _feed(self):
        missing = LIVE - Instance.objects.exclude(state__in=TERMINAL).count()
        given = {"path": str(self._record), "seconds": SECONDS}
        TYPE.using(created_by="chaos").enqueue_many(given for _ in range(missing))

    @staticmethod
    def _is_over():
        return not Instance.objects.exclude(state__in=TERMINAL).exists()

    def _told(self, broken):
        record = executions(read(self._record))
        charges = sum(len(charged(attempts)) for attempts in record.values())
        repeated = sum(len(charged(attempts)) > 1 for attempts in record.values())
        states = Counter(Instance.objects.values_list("state", flat=True))
        self._tell("counted:")
        self._tell(f"{self._kills.total:8d} kills: {dict(self._kills.counts)}")
        self._tell(f"{sum(states.values()):8d} Instances: {dict(states)}")
        self._tell(f"{Group.objects.count():8d} rows by steps in transactions")
        self._tell(f"{charges:8d} charges; of {repeated} Instances more than one")
        told = LogRecord.objects.filter(kind=Kind.STEP).count()
        self._tell(f"{told:8d} repetitions in the logs")
        self._tell(f"{Step.objects.count():8d} checkpoints")
        for words in broken:
            self._tell(f"BROKEN G17: {words}")


def charged(attempts):
    """Return the attempts of an Instance that have charged, by its Executions."""
    return sorted(number for number, each in attempts.items() if each.of("charged"))


def broken_of(record):
    """Yield sentences about each Instance that was not served as it was promised.

    ``record`` are the Executions of the handlers, by Instance and attempt.
    """
    rows = Counter(name.partition("/")[0] for name in Group.objects.values_list("name", flat=True))
    told = defaultdict(set)
    for pk, attempt in LogRecord.objects.filter(kind=Kind.STEP, detail="charge").values_list(
        "instance", "attempt"
    ):
        told[pk].add(attempt)
    for instance in Instance.objects.of_type("chaos.steps"):
        attempts = record.get(str(instance.uuid), {})
        if instance.state != State.FINISHED:
            yield f"{instance.uuid} is {instance.state} {instance.reason}"
            continue
        if rows[str(instance.uuid)] != 1:
            yield f"{instance.uuid} has {rows[str(instance.uuid)]} rows"
        charging = charged(attempts)
        if not charging:
            yield f"{instance.uuid} has FINISHED and was not charged"
            continue
        silent = {*charging[1:]} - told[instance.pk]
        if silent:
            yield f"{instance.uuid} was charged again by {silent}, and its log does not say so"
        paid = {line.nonce for each in attempts.values() for line in each.of("paid")}
        if paid - {str(charging[-1])}:
            yield f"{instance.uuid} was told of the charge of {paid}, the last was {charging[-1]}"
        often = [number for number in charging if len(attempts[number].of("charged")) > 1]
        if often:
            yield f"{instance.uuid} was charged twice in {often}"
