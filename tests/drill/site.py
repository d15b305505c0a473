"""The place of a drill: its daemons, its load, and how all is set right after an incident."""

import random
import signal
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from atp import queue
from atp.commands import Mode
from atp.downstreams.protection import State as Breaker
from atp.exceptions import ATPError
from atp.models import Daemon, Gate, Instance, LogRecord, Task
from atp.states import Event
from atp.store import get_store
from tests.chaos.background import Background
from tests.daemon.harness import Atpd
from tests.helpers import wait_for

from . import RELEASE
from .kinds import CATALOGUE, KINDS, Kind, draw_kind

DAEMONS, WORKERS = 2, 2
BY = "the drill"
# A schedule, and the seconds between its slots.
SCHEDULE, EVERY = "catalogue-refresh", 10
# Failures are searched for among this many Instances of a lane.
NEWEST = 200
# The tasks of the normal load.
PER_SECOND = 2


def enqueue(kind: Kind, collection: str = "", **inputs: Any) -> None:
    """Enqueue a task of a Kind for a tenant; both follow from chance as far as they are not given.

    The inputs are those of a normal day, together with ``inputs``.
    """
    source = random.Random()
    task_type = queue.declared(kind.type).using(
        collection=collection or source.choice(kind.collections), created_by="the shop"
    )
    task_type.enqueue(**{**kind.inputs(source, datetime.now(UTC)), **inputs})


class Load(Background):
    """Enqueues tasks of all Types but the scheduled one.

    An incident may set ``extra``, which is called each time that the load enqueues a task.
    """

    pause = 0.5 / PER_SECOND, 1.5 / PER_SECOND

    def __init__(self) -> None:
        super().__init__("load", "drill")
        self.extra: Callable[[], None] | None = None

    def _turn(self) -> None:
        extra = self.extra
        if extra is not None:
            extra()
        enqueue(draw_kind(self._random, tuple(kind for kind in KINDS if kind != CATALOGUE)))


class Site:
    """The daemons and the load of a drill, with their files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.load = Load()
        self.daemons: list[Atpd] = []

    def start(self) -> None:
        """Start daemons, a schedule and the load."""
        self.start_daemons()
        # Not before: without daemons it would miss slots.
        queue.create_schedule(
            SCHEDULE, CATALOGUE.type, every=EVERY, late_after=2 * EVERY, missed="skip", by=BY
        )
        self.load.start()

    def start_daemons(self, release: str = RELEASE) -> None:
        """Start daemons of a release until there are as many as usual."""
        self.daemons = [each for each in self.daemons if each.process.poll() is None]
        environment = {"DJANGO_SETTINGS_MODULE": "tests.drill.settings", "DRILL_RELEASE": release}
        while len(self.daemons) < DAEMONS:
            self.daemons.append(Atpd(self.folder, processes=WORKERS, environment=environment))
        for daemon in self.daemons:
            daemon.ready(WORKERS)

    def stop_daemons(self) -> None:
        """Shut all daemons down gracefully, and wait until they have ended."""
        for daemon in self.daemons:
            daemon.signal(signal.SIGTERM)
        for daemon in self.daemons:
            daemon.wait()

    def destroy(self) -> None:
        """Kill all daemons, and end the load."""
        for daemon in self.daemons:
            daemon.destroy()
        self.load.stop()

    def restore(self) -> None:
        """Undo what operators and incidents have set, and start the daemons that are missing."""
        for gate in queue.gates():
            queue.open_gate(*_target(gate), by=BY)
        for limit in queue.limits():
            queue.unlimit(limit.type.identifier, limit.collection, by=BY)
        for row in queue.downstreams():
            if row.state != Breaker.CLOSED:
                queue.reset_downstream(row.name, by=BY)
        for schedule in queue.schedules():
            if schedule.paused_since is not None:
                queue.resume_schedule(schedule.identifier, by=BY)
        self.start_daemons()
        own = {each.pid for each in self.daemons}
        for daemon in living_daemons():
            # One that was killed has a lease for a while.
            with suppress(ATPError):
                if daemon.pid not in own:
                    queue.command(daemon, "stop", by=BY)  # an operator has started it
                elif daemon.aim == Mode.QUIET:
                    queue.command(daemon, "resume", by=BY)


def _target(gate: Gate) -> tuple[str | None, str | None]:
    return None if gate.type is None else gate.type.identifier, gate.collection


def living_daemons() -> list[Daemon]:
    """Return the daemons with a valid lease."""
    return list(Daemon.objects.leased(get_store().now()))


def is_shut(type: str, collection: str | None = None) -> bool:
    """Return True if a gate is shut for the whole lane, or the Type if no collection is given."""
    return any(
        (gate.type is None or gate.type.identifier == type)
        and gate.collection in (None, collection)
        for gate in queue.gates()
    )


def has_failed(type: str, collection: str, since: datetime) -> bool:
    """Return True if an attempt of a lane has failed or was lost since a time.

    Only the newest Instances of the lane are read.
    """
    own = Instance.objects.filter(type__identifier=type, collection=collection)
    newest = list(own.order_by("-pk").values_list("pk", flat=True)[:NEWEST])
    records = LogRecord.objects.filter(instance__in=newest, time__gte=since)
    return records.filter(kind__in=(Event.FAIL, Event.EXPIRE)).exists()


def count_waiting(type: str, collection: str | None = None) -> int:
    """Return the number of waiting Tasks of a lane, or of a Type."""
    rows = Task.objects.waiting().filter(type__identifier=type)
    return (rows if collection is None else rows.filter(collection=collection)).count()


def cancel_all(type: str) -> None:
    """Cancel all live Instances of a Type, and wait until they have ended."""
    tasks = Task.objects.filter(type__identifier=type)
    before = list(tasks.values_list("pk", flat=True))
    for instance in Instance.objects.filter(pk__in=before):
        # It may have ended meanwhile.
        with suppress(ATPError):
            queue.cancel(instance, by=BY)
    own = tasks.filter(pk__in=before)
    wait_for(lambda: not own.exists(), what="the end of cancelled Instances")
