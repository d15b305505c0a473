"""One run of daemons through a batch of tasks."""

import math
import statistics
from contextlib import contextmanager
from dataclasses import dataclass, replace

from . import batch
from .cost import spent
from .daemons import daemons
from .statements import counted
from .told import listening

# In milliseconds.
LONGEST_WARM_UP = 1_000
# Where handlers sleep, nobody looks whether all is done before this share of the least time.
NEARLY = 0.95
# The drains whose statements are counted.
COUNTED = 5


def add_arguments(add):
    """Add the options of daemons, which :meth:`Load.of` takes."""
    add("--processes", type=int, default=2, help="workers of each daemon")
    add("--warm-up", type=int, default=250, help="tasks for each worker before it is measured")


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is to be drained, and by whom: ``types`` are declared Types of the benchmarks.

    Handlers sleep for ``milliseconds``, if they are of Types that do. So many of the tasks
    as there are ``lanes`` have one each, of the first Type; the others have one together.
    """

    types: tuple
    tasks: int = 0
    processes: int = 2
    daemons: int = 1
    milliseconds: int = 0
    warm_up: int = 250
    lanes: int = 0

    @classmethod
    def of(cls, options, types, **more):
        """Return the load that the options of a benchmark say, of these Types."""
        given = {"processes": options.processes, "warm_up": options.warm_up}
        return cls(types=tuple(types), **given, **more)

    @property
    def workers(self):
        return self.daemons * self.processes

    @property
    def warming_up(self):
        """The load that comes before: of the same kind, and where handlers sleep not for long."""
        each = self.warm_up
        if self.milliseconds:
            each = min(each, math.ceil(LONGEST_WARM_UP / self.milliseconds))
        return replace(self, tasks=each * self.workers, lanes=0)

    @property
    def patterns(self):
        """What the daemons serve."""
        return [task_type.identifier for task_type in self.types]

    @property
    def least(self):
        """How long its handlers sleep in all, divided among the workers, in seconds."""
        return self.tasks * self.milliseconds / 1000 / self.workers

    @property
    def calls(self):
        """What :func:`.batch.enqueue` takes."""
        more = {"milliseconds": self.milliseconds} if self.milliseconds else {}
        inputs = [{"number": number, **more} for number in range(self.tasks)]
        own = [
            (self.types[0].using(collection=f"lane {number}"), [given])
            for number, given in enumerate(inputs[: self.lanes])
        ]
        return own + batch.shared(self.types, inputs[self.lanes :])


@dataclass(frozen=True, kw_only=True)
class Drained:
    """How it went; ``busy`` is the share of the time that workers were in handlers.

    ``processor`` is the time that processors worked for the daemons, in µs a task.
    """

    load: Load
    batch: batch.Batch
    settled: batch.Settled
    busy: float
    processor: float

    @property
    def rate(self):
        return self.load.tasks / self.settled.seconds

    @property
    def rate_from_first_claim(self):
        """The same without the time until the first task was picked up."""
        return self.load.tasks / (self.settled.ended - self.settled.claimed)


@contextmanager
def ready(load, directory):
    """Run the daemons of a load until the end of the block, warm; give their fleet."""
    with daemons(
        directory, count=load.daemons, processes=load.processes, types=load.patterns
    ) as fleet:
        drain(load.warming_up, fleet)
        yield fleet


def drain(load, fleet, told=None):
    """Enqueue the tasks of a load, wait until they are settled, and verify what became of them."""
    if told:
        told.forget()
    before = fleet.processor_time
    enqueued = batch.enqueue(load.calls)
    settled = batch.settle(enqueued, fleet, least=NEARLY * load.least)
    worked = fleet.processor_time - before
    batch.verify(enqueued)
    slept = sum(value for _, value in told.pairs()) if told else 0.0
    busy = slept / (settled.seconds * load.workers)
    processor = 1e6 * worked / load.tasks
    return Drained(load=load, batch=enqueued, settled=settled, busy=busy, processor=processor)


def run(load, directory):
    """Run daemons for one load only, and return how they :class:`Drained` it."""
    with listening(directory) as told, ready(load, directory) as fleet:
        return drain(load, fleet, told)


def cost(load, directory):
    """Return what daemons spend on a load: a :class:`.Cost`.

    Its rows and bytes are from their start to their end. Its statements are those of daemons that
    are warm: to start and to end takes some hundred more.
    """
    from django.db import connection

    enqueued = batch.enqueue(load.calls)
    with (
        spent(connection, own=False) as cost,
        daemons(
            directory, count=load.daemons, processes=load.processes, types=load.patterns
        ) as fleet,
    ):
        batch.settle(enqueued, fleet)
    return replace(cost, statements=_statements(load, directory))


def _statements(load, directory):
    """Return the median of the statements that warm daemons send for a load; None if unknown."""
    from django.db import connection

    with counted(connection) as statements, ready(load, directory) as fleet:
        if statements is None:
            return None
        found = []
        for _ in range(COUNTED):
            statements.forget()
            drain(load, fleet)
            found.append(statements.by_pid().total())
    return statistics.median(found)
