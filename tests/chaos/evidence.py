"""The evidence at the end of a run, from the database, the handlers' record and the daemons."""

import json
import time
from dataclasses import dataclass, field, fields
from datetime import datetime
from itertools import groupby

from django.contrib.auth.models import Group

from atp.models import Instance, LogRecord, Task
from atp.reports import statistics
from atp.store import get_store

from . import record
from .record import uptime


@dataclass(frozen=True)
class Breach:
    """A broken promise, with the uuid of the Instance that it concerns, if any."""

    words: str
    uuid: str = ""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A LogRecord of an Instance; ``event`` is empty for messages."""

    event: str
    state: str = ""
    attempt: int | None
    time: float
    who: str = ""
    message: str = ""
    kind: str = ""
    detail: str = ""

    def __str__(self):
        what = f"{self.event}→{self.state}" if self.event else "(message)"
        told = self.message.rstrip().rpartition("\n")[2]
        return f"{self.time:.3f} {what} {self.attempt} by {self.who}: {told}".rstrip(": ")


@dataclass(frozen=True, kw_only=True)
class Story:
    """An Instance as the database has it; ``answer`` is the value of its Response."""

    uuid: str
    identifier: str
    type: str
    state: str
    reason: str = ""
    attempt: int = 0
    restarts: int = 0
    retries: int = 0
    lost: int = 0
    max_restarts: int = 3
    max_retries: int = 0
    has_task: bool = False
    answer: dict | None = None
    log: tuple = ()

    @property
    def transitions(self):
        return [entry for entry in self.log if entry.event]


@dataclass(frozen=True, kw_only=True)
class DaemonStory:
    """A daemon: when it was told to leave or killed, how it ended, and its log.

    Each fact of the log is a dict; its ``time`` is on the uptime clock.
    """

    pid: int
    asked_to_leave: float | None = None
    left: float | None = None
    killed: float | None = None
    status: int | None = None
    facts: tuple = ()

    def told(self, *names):
        return [fact for fact in self.facts if fact["fact"] in names]


@dataclass(kw_only=True)
class Evidence:
    """All facts that the judge uses."""

    begun: float = 0.0
    stories: list = field(default_factory=list)
    strange_tasks: int = 0
    executions: dict = field(default_factory=dict)
    # The attempts that have left a row, by uuid.
    rows: dict = field(default_factory=dict)
    # The Fates of enqueues by identifier.
    enqueued: dict = field(default_factory=dict)
    # What operators have cancelled, by uuid.
    cancels: dict = field(default_factory=dict)
    hits: list = field(default_factory=list)
    outages: list = field(default_factory=list)
    daemons: list = field(default_factory=list)
    # What was counted while it happened, and what the log says: numbers by Type and column.
    counted: dict = field(default_factory=dict)
    recounted: dict = field(default_factory=dict)

    def of(self, story):
        """Return the Executions of an Instance by attempt."""
        return self.executions.get(story.uuid, {})


def gather(begun, fleet, server, *, path, feed, operators):
    """Collect the Evidence of a run that has ended."""
    clock = time.time() - uptime()
    found = Evidence(
        begun=begun,
        executions=record.read(path),
        enqueued=feed.fates,
        cancels=operators.cancels,
        hits=list(fleet.hits),
        outages=list(server.outages) if server else [],
        daemons=[_daemon(member, clock) for member in fleet.members],
    )
    found.stories, found.strange_tasks = _stories(clock)
    found.counted, found.recounted = _numbers()
    for name in Group.objects.values_list("name", flat=True):
        uuid, _, attempt = name.partition("/")
        found.rows.setdefault(uuid, []).append(int(attempt))
    return found


def _stories(clock):
    logs = {
        key: tuple(_copied(Entry, row, time=row.time.timestamp() - clock) for row in rows)
        for key, rows in groupby(
            LogRecord.objects.filter(instance__isnull=False).order_by("instance", "pk"),
            key=lambda row: row.instance_id,
        )
    }
    tasks = set(Task.objects.values_list("pk", flat=True))
    rows = Instance.objects.select_related("type", "response").order_by("pk")
    stories = [_story(row, row.pk in tasks, logs.get(row.pk, ())) for row in rows]
    return stories, len(tasks - {row.pk for row in rows})


def _numbers():
    """Return the counted numbers and those in the log, by Type and column."""
    while get_store().statistics.pay():
        """Nobody is there any more to count what killed daemons have left."""
    return [
        {
            type: {name: number for name, number in cell.counts.items() if number}
            | {f"run[{place}]": number for place, number in enumerate(cell.run) if number}
            for type, cell in found.items()
        }
        for found in (statistics.sums(), statistics.recounted())
    ]


def _copied(shape, row, **more):
    """Return a dataclass filled from the attributes of a row and from more values."""
    names = {field.name for field in fields(shape)} - more.keys()
    return shape(**{name: getattr(row, name) for name in names}, **more)


def _story(row, has_task, log):
    response = getattr(row, "response", None)
    return _copied(
        Story,
        row,
        uuid=str(row.uuid),
        type=row.type.identifier,
        max_restarts=row.type.max_restarts,
        max_retries=row.type.max_retries,
        has_task=has_task,
        answer=None if response is None else response.value,
        log=log,
    )


def _daemon(member, clock):
    facts = []
    for line in member.atpd.log_path.read_text(errors="replace").splitlines():
        try:
            fact = json.loads(line)
        except ValueError:
            fact = {"fact": "not a fact", "message": line}
        if "time" in fact:
            fact["time"] = datetime.fromisoformat(fact["time"]).timestamp() - clock
        facts.append(fact)
    return _copied(DaemonStory, member, facts=tuple(facts))
