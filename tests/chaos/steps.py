"""Chaos with steps: workers, dispatchers, daemons and the server are killed (G17).

Each Instance charges a card in one step and writes a row in the transaction of another.
Afterwards the handlers' own record is checked: the row exists exactly once, and the log names
each attempt that has charged again.
"""

from collections import Counter, defaultdict

from django.contrib.auth.models import Group

from atp.models import Instance, Kind, LogRecord
from atp.states import TERMINAL, State
from tests.app.tasks_chaos import steps as TYPE  # noqa: N812 (a handler, declared as a Type)

from .record import read
from .scenario import Scenario

# So many Instances wait or run at any time, and one takes so many seconds four times.
LIVE, SECONDS = 30, 0.05
KILL_EVERY = 0.5


class Steps(Scenario):
    """A scenario with steps and kills."""

    promise = "G17"

    def _disturb(self):
        self._kill(self._feed, every=KILL_EVERY)
        self._recover()

    def _feed(self):
        missing = LIVE - Instance.objects.exclude(state__in=TERMINAL).count()
        given = {"path": str(self._path), "seconds": SECONDS}
        TYPE.using(created_by="chaos").enqueue_many(given for _ in range(missing))

    def _broken(self):
        return broken_of(read(self._path))

    def _counts(self):
        often = [len(charged(each)) for each in read(self._path).values()]
        yield Group.objects.count(), "rows by steps in transactions"
        yield sum(often), f"charges; of {sum(each > 1 for each in often)} Instances more than one"
        yield LogRecord.objects.filter(kind=Kind.STEP).count(), "repetitions in the logs"


def charged(attempts):
    """Return the attempts of an Instance that have charged, from its Executions."""
    return sorted(number for number, each in attempts.items() if each.of("charged"))


def broken_of(record):
    """Yield a sentence for each Instance whose steps broke the promise.

    ``record`` has the Executions of the handlers by Instance and attempt.
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
