"""The limit of the same database: the same writes as raw SQL, without any queue.

What a queue writes for a task that does nothing goes to the project's own tables,
with all their constraints and indexes, through one connection: claiming updates
Task and Instance, writes a LogRecord and reads the Inputs; finishing removes the
Task, updates the Instance and writes two LogRecords. Both are plain statements by
keys, 500 tasks in a transaction. Enqueueing writes four rows; one by one it is one
statement and one commit, as it stands or, on PostgreSQL, prepared; in bulk 1,000
Instances a statement.

The latency is that of the least that has to happen between processes: enqueueing in
one statement that notifies; a listener that claims the Task in one statement; and a
message from it to a third process, which says when it got it. On SQLite, which
does not notify, a message to the listener does.
"""

from .core import clients
from .core.latency import sampled
from .core.raw import raw_queue
from .core.raw.listener import starting
from .core.report import timed
from .core.told import listening

TYPE = "benchmarks.other"
BATCH, CHUNK = 500, 1_000
CLIENTS = (1, 8)


def add_arguments(add):
    add("--tasks", type=int, default=20_000, help="tasks of a run")
    add("--single", type=int, default=4_000, help="Instances of a run that are enqueued one by one")
    add("--samples", type=int, default=300, help="tasks of a run whose latency is taken")


def run(options, report):
    turns = range(options.runs)
    report.rates("drain", [drain(options.tasks) for _ in turns])
    report.rates("bulk", [bulk(options.tasks) for _ in turns])
    for count in CLIENTS:
        rates = [enqueue(options.single, count) for _ in turns]
        report.rates(f"enqueue, {clients.named(count)}", rates)
    report.latencies("latency", [latency(options.samples, options.directory) for _ in turns])


def drain(tasks):
    """Return how many tasks a second are claimed and finished, which are written before."""
    raw = raw_queue(TYPE)
    keys = [key for numbers in _chunks(range(tasks), CHUNK) for key in raw.enqueue_many(numbers)]
    daemon = raw.join()

    def work():
        for chunk in _chunks(keys, BATCH):
            raw.claim(chunk, daemon)
            raw.finish(chunk)

    seconds = timed(work)
    raw.leave(daemon)
    return tasks / seconds


def bulk(tasks):
    """Return how many Instances a second are enqueued, 1,000 a statement."""
    raw = raw_queue(TYPE)

    def work():
        for numbers in _chunks(range(tasks), CHUNK):
            raw.enqueue_many(numbers)

    return tasks / timed(work)


def enqueue(tasks, count, *, prepared=False):
    """Return how many Instances a second so many clients enqueue one by one, together."""

    def prepare():
        raw = raw_queue(TYPE)
        return raw.enqueue_prepared if prepared else raw.enqueue_one

    return clients.rate(count, tasks, prepare)


def latency(samples, directory):
    """Return the :class:`~.core.latency.Latencies` of so many tasks."""
    with listening(directory) as told, starting(TYPE) as enqueue_one:
        return sampled(samples, enqueue_one, told)


def _chunks(items, size):
    return [items[first : first + size] for first in range(0, len(items), size)]
