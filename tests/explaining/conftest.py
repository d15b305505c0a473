"""A queue with a daemon for its Types, and helpers for the tests of each cause."""

import shlex
from datetime import timedelta

import pytest

from atp import queue
from atp.models import Daemon, Instance, Schedule, Slot, Task
from atp.states import Event
from atp.store import get_store

from ..app.tasks import add, echo
from ..helpers import shell
from ..store.world import Case


class Scene:
    """The queue of a test; ``host`` is the daemon that serves the Types."""

    def __init__(self, world, host):
        self.world, self.host = world, host

    def codes(self, subject):
        return queue.explain(subject).codes

    def finds(self, subject, code, **facts):
        """Assert that the first cause of an Instance has this code and these facts; return it."""
        found = queue.explain(subject).reasons[0]
        assert found.code == code
        assert {name: found.facts[name] for name in facts} == facts
        return found

    def apply(self, reason):
        """Carry out what a cause suggests, by its command."""
        words = shlex.split(reason.helps.command)
        assert words[:2] == ["manage.py", "atp"]
        shell(*words[2:])

    def starts(self, instance, host=None):
        """Claim and start all due Tasks; return True if the Instance is one of them."""
        host = host or self.host
        found = False
        for case in host.claim():
            host.move(case, Event.START)
            found = found or case.instance == instance.pk
        return found

    def tell_workers(self, *running, count=None, host=None, blocking=None):
        """Write into the daemon's row which Instances its workers run.

        If one of them is ``blocking``, they are in one loop, which it blocks.
        """
        now = get_store().now()
        workers = [
            {
                "worker": slot,
                "pid": 100 + slot,
                "instance": str(instance.uuid),
                "type": instance.type.identifier,
                "since": (now - timedelta(seconds=60 * (slot + 1))).isoformat(),
            }
            | ({"loop": 0} if blocking else {})
            | ({"blocks": 13.0} if instance == blocking else {})
            for slot, instance in enumerate(running)
        ]
        for slot in range(len(workers), count or len(workers)):
            workers.append({"worker": slot, "pid": 100 + slot, "instance": None, "since": None})
        self.row(host).update(workers=workers, seen=now)

    def row(self, host=None):
        return Daemon.objects.filter(uuid=(host or self.host).uuid)

    def plan(self, name):
        """Plan an earlier slot of an hourly schedule; return its Instance."""
        row = Schedule.objects.get(identifier=name)
        first = Slot.objects.filter(schedule=row).order_by("at").first()
        due = (first.at if first else row.next_at) - timedelta(hours=1)
        rows = Schedule.objects.filter(pk=row.pk)
        rows.update(next_at=due, due_at=due, late_after=timedelta(days=3650))
        get_store().schedules.plan(who="host", only=name)
        return Instance.objects.get(pk=Slot.objects.get(schedule=row, at=due).instance_id)

    def move(self, instance, *events, **details):
        """Record events for a Task that the host has claimed."""
        task = Task.objects.get(pk=instance.pk)
        self.host.move(Case(instance.pk, task.attempt), *events, **details)

    def run(self, count=1, took=None):
        """Let this many Instances of tests.echo end now after this run time; return the last."""
        for _ in range(count):
            last = echo.enqueue()
            [case] = self.host.claim()
            self.host.move(case, Event.START, Event.FINISH)
        if took is not None:
            now = get_store().now()
            ended = Instance.objects.filter(finished__isnull=False)
            ended.update(started=now - took, finished=now)
        return last


@pytest.fixture
def scene(world, host):
    queue.register(add, echo)
    return Scene(world, host)
