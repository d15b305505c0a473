"""A batch of Instances that is enqueued at once, and how long the daemons take for it."""

import time
from collections import Counter
from dataclasses import dataclass

from .log_column import KIND

# The queue is looked at this often, in seconds, by a key that is found at once.
LOOK_EVERY = 0.01
STALLED_AFTER = 20
CHUNK = 20_000
# What the log has of an Instance that needed one attempt.
EVENTS = ("enqueue", "claim", "start", "finish")


class BatchError(Exception):
    """A batch was not done, or not as it should be; the message says what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Instances by their keys, which follow on each other.

    ``committed`` is a time on the database's clock.
    """

    first: int
    last: int
    committed: float

    def __len__(self):
        return self.last - self.first + 1

    @property
    def keys(self):
        return (self.first, self.last)


def enqueue(calls):
    """Enqueue pairs of a declared Type and its list of inputs, in one transaction."""
    from django.db import transaction

    with transaction.atomic():
        keys = [
            instance.pk
            for task_type, inputs in calls
            for first in range(0, len(inputs), CHUNK)
            for instance in task_type.enqueue_many(inputs[first : first + CHUNK])
        ]
    batch = Batch(first=min(keys), last=max(keys), committed=clock())
    if len(batch) != len(keys):
        raise BatchError("Somebody else enqueues into this database.")
    return batch


def shared(task_types, inputs):
    """Return the pairs for :func:`enqueue` that give each Type its part of the inputs."""
    return [
        (task_type, inputs[number :: len(task_types)])
        for number, task_type in enumerate(task_types)
        if inputs[number :: len(task_types)]
    ]


def clock():
    """Return the time by the database's clock, in seconds since the epoch.

    SQLite goes by that of its host.
    """
    from django.db import connection

    if connection.vendor != "postgresql":
        return time.time()
    [now] = _asked("SELECT extract(epoch FROM clock_timestamp())::float8")
    return now


@dataclass(frozen=True, kw_only=True)
class Settled:
    """When a batch could be seen, was first claimed from, and was done, on the database's clock."""

    began: float
    claimed: float
    ended: float

    @property
    def seconds(self):
        return self.ended - self.began


def wait_until(is_over, left, fleet, every):
    """Wait until ``is_over()``, looking ``every`` so many seconds.

    Raises BatchError when what is ``left()`` has not changed for long, DaemonError
    when a daemon ends.
    """
    looked, before = time.monotonic(), None
    while not is_over():
        if time.monotonic() > looked + STALLED_AFTER:
            looked, now = time.monotonic(), left()
            if now == before:
                raise BatchError(f"{now} Tasks are left, and nothing moves:\n{fleet.log}")
            before = now
        fleet.check()
        time.sleep(every)


def settle(batch, fleet, least=0.0):
    """Wait until the database has no Task of the batch; return how it :class:`Settled`.

    For ``least`` seconds nobody looks: each look takes from the processors that the
    daemons have. If the answer to the commit came later than the first claim, that is the
    beginning. Raises BatchError or DaemonError as :func:`wait_until`.
    """
    early = time.monotonic() + least
    while (left := early - time.monotonic()) > 0:
        fleet.check()
        time.sleep(min(left, 1.0))
    wait_until(lambda: not _has_tasks(batch), lambda: _left(batch), fleet, LOOK_EVERY)
    ended, claimed = clock(), _first_claim(batch)
    return Settled(began=min(batch.committed, claimed), claimed=claimed, ended=ended)


def verify(batch):
    """Raise BatchError unless each Instance is FINISHED after one attempt, with its whole log."""
    from atp.models import Instance, LogRecord

    rows = Instance.objects.filter(pk__range=batch.keys)
    found = Counter(rows.values_list("state", "attempt"))
    if found != {("FINISHED", 1): len(batch)}:
        raise BatchError(f"Not all of {len(batch)} are FINISHED after one attempt: {found}.")
    records = LogRecord.objects.filter(instance__pk__range=batch.keys)
    events = Counter(records.values_list(KIND, flat=True))
    if events != dict.fromkeys(EVENTS, len(batch)):
        raise BatchError(f"The log of {len(batch)} Instances is not whole: {events}.")


def finish_times(instances):
    """Return when each of these Instances finished, in order, in seconds since the epoch."""
    times = instances.order_by("finished").values_list("finished", flat=True)
    return [time.timestamp() for time in times]


def _first_claim(batch):
    from atp.models import LogRecord

    claims = LogRecord.objects.filter(instance__pk__range=batch.keys, **{KIND: "claim"})
    return claims.order_by("time").values_list("time", flat=True)[0].timestamp()


def _has_tasks(batch):
    """Look from the last on, which is there until the end: that finds one at once."""
    [last] = _asked(
        "SELECT max(instance_id) FROM atp_task WHERE instance_id BETWEEN %s AND %s", batch.keys
    )
    return last is not None


def _left(batch):
    [left] = _asked("SELECT count(*) FROM atp_task WHERE instance_id BETWEEN %s AND %s", batch.keys)
    return left


def _asked(statement, parameters=()):
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchone()
