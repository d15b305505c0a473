"""Three days of history, written straight into the tables, as if daemons had done all of it."""

import logging
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from atp.fields import uuid7
from atp.models import Failure, Inputs, Instance, LogRecord, Statistic, Type
from atp.payload import codec
from atp.states import Event, Reason, State
from atp.store import failures, get_store
from atp.store.counts import Counts

from .kinds import Kind, draw_kind
from .site import PER_SECOND
from .tasks import SceneError

SPAN = timedelta(days=3)
# The history ends so long before now that all of it has ended.
ENDED = timedelta(minutes=1)
PORTION = 2_000
# The longest wait for a worker in seconds.
LONGEST_WAIT = 0.05
WHO = "yesterday.example.org:4711 worker 0"
# The number of random bits of a version 7 UUID, with those of its version.
RANDOM_BITS = 80
ERROR = f"{SceneError.__module__}.Error"


@dataclass(frozen=True, kw_only=True)
class Run:
    """An Instance of the history, with its Kind, and the message if it failed."""

    kind: Kind
    instance: Instance
    message: str

    @property
    def events(self) -> Iterator[tuple[Event, State, datetime]]:
        """The transitions of the Instance: event, state after it, and time."""
        row = self.instance
        assert row.started is not None
        assert row.finished is not None
        yield Event.ENQUEUE, State.ACCEPTED, row.created
        yield Event.CLAIM, State.SCHEDULED, row.started
        yield Event.START, State.RUNNING, row.started
        yield Event.FAIL if self.message else Event.FINISH, State(row.state), row.finished


def write_history(rows: int) -> None:
    """Write this many ended Instances, with everything that ATP keeps of them.

    Half of them ended at the rate of the load, so that a chart shows no step when the load begins.
    The other half is spread over three days.
    """
    source = random.Random(1)
    types = Type.objects.in_bulk(field_name="identifier")
    times = _draw_times(rows, get_store().now() - ENDED, source)
    for start in range(0, rows, PORTION):
        _write([_draw_run(types, time, source) for time in times[start : start + PORTION]])
    while get_store().errors.count():
        pass


def _draw_times(rows: int, end: datetime, source: random.Random) -> list[datetime]:
    """Return the times of enqueues, the oldest first."""
    recent = min(timedelta(seconds=rows / 2 / PER_SECOND), SPAN)
    spans = [SPAN if number % 2 else recent for number in range(rows)]
    return sorted(end - source.random() * span for span in spans)


def _draw_run(types: dict[str, Type], time: datetime, source: random.Random) -> Run:
    kind = draw_kind(source)
    message = kind.error(source)
    started = time + timedelta(seconds=source.uniform(0.001, LONGEST_WAIT))
    bits = int(time.timestamp() * 1000) << RANDOM_BITS
    instance = Instance(
        type=types[kind.type],
        uuid=uuid.UUID(int=bits | uuid7().int % (1 << RANDOM_BITS)),
        state=State.FAILED if message else State.FINISHED,
        reason=Reason.ERROR if message else "",
        collection=source.choice(kind.collections),
        attempt=1,
        progress=None if message else 1.0,
        created=time,
        created_by="the shop" if kind.type.startswith("shop.") else "the archive",
        started=started,
        finished=started + timedelta(seconds=kind.duration(source)),
    )
    return Run(kind=kind, instance=instance, message=message)


def _write(runs: Sequence[Run]) -> None:
    """Write these Instances with their inputs, log, failures and statistics."""
    source, counts, lost = random.Random(), Counts(), []
    for run in runs:
        row = run.instance
        assert row.started is not None
        assert row.finished is not None
        waited = (row.started - row.created).total_seconds()
        if not run.message:
            counts.add_runs([(run.kind.type, row.started, row.finished, waited)])
            continue
        counts.add(run.kind.type, Event.START, row.started, waited=waited)
        counts.add(run.kind.type, Event.FAIL, row.finished, reason=Reason.ERROR, began=row.started)
        cause = failures.of_message(run.kind.type, ERROR, run.message)
        row.error_id = cause.group
        lost.append(failures.failure(row.uuid, cause, row.finished))
    Instance.objects.bulk_create([run.instance for run in runs])
    inputs = [(run.instance, run.kind.inputs(source, run.instance.created)) for run in runs]
    payloads = [(row, codec.encode(value)) for row, value in inputs]
    Inputs.objects.bulk_create(
        Inputs(instance=row, format=payload.format, data=payload.data) for row, payload in payloads
    )
    LogRecord.objects.bulk_create(record for run in runs for record in _log(run))
    Failure.objects.bulk_create(lost)
    Statistic.objects.bulk_create(counts.rows())


def _log(run: Run) -> Iterator[LogRecord]:
    """Yield the LogRecords of a Run. Statistic counts them already."""
    for event, state, time in run.events:
        is_failure = event == Event.FAIL
        yield LogRecord(
            instance=run.instance,
            time=time,
            kind=event,
            state=state,
            attempt=0 if event == Event.ENQUEUE else 1,
            level=logging.ERROR if is_failure else logging.INFO,
            who=run.instance.created_by if event == Event.ENQUEUE else WHO,
            message=run.message if is_failure else "",
            detail=ERROR if is_failure else "",
            counted=True,
        )
