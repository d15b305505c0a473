"""Operators who steer live Instances at random and send commands to daemons."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from django.db.models import Q

from atp import queue
from atp.commands import PAUSE as TO_PAUSE
from atp.commands import DaemonCommand, Mode
from atp.exceptions import IllegalOrder, IllegalTransition, UnknownDaemon, UnknownInstance
from atp.models import Daemon, Instance, Task
from atp.states import State

from .background import WHO, Calling
from .kinds import KINDS
from .record import uptime

COLLECTIONS = "", "esa", "dem"
# What is paused, goes quiet, is held or limited, is so for this long, in seconds.
ON_HOLD = 0.3, 4.0


@dataclass(frozen=True)
class Asked:
    """A call of ``cancel`` on the uptime clock, and whether its success is known."""

    at: float
    is_sure: bool


class Operators(Calling):
    """Act at random as the seed says until stopped; ``cancels`` is by uuid."""

    verbs = {"cancel": 8, "release": 3, "pause": 5, "change": 4, "quiet": 1, "hold": 2, "limit": 2}
    refusals = (IllegalTransition, UnknownInstance, IllegalOrder, UnknownDaemon)

    def __init__(self, seed):
        super().__init__(seed)
        # What is to go on again: when, and how.
        self._on_hold = []
        self.cancels = {}

    def _turn(self):
        for each in [each for each in self._on_hold if each[0] <= uptime()]:
            _, operation, *target = each
            self._do(operation.__name__, partial(operation, *target, by=WHO))
            self._on_hold.remove(each)
        super()._turn()

    def _undo_later(self, operation, *target):
        self._on_hold.append((uptime() + self._random.uniform(*ON_HOLD), operation, *target))

    def settle(self):
        """Resume or release everything that is paused, quiet, held or limited."""
        for gate in queue.gates():
            queue.open_gate(gate.type, gate.collection, by=WHO)
        for limit in queue.limits():
            if limit.who == WHO:
                queue.unlimit(limit.type, limit.collection, by=WHO)
        # Who was asked already, or has ended, refuses.
        for instance in Instance.objects.filter(Q(state=State.PAUSED) | Q(task__request=TO_PAUSE)):
            with suppress(*self.refusals):
                queue.resume(instance, by=WHO)
        for daemon in Daemon.objects.exclude(mode=Mode.STOPPING):
            if daemon.mode == Mode.QUIET or daemon.request:
                with suppress(*self.refusals):
                    queue.command(daemon, DaemonCommand.RESUME, by=WHO)

    def _live(self, running=0.7):
        """Return a random live Instance, preferably one that a daemon holds."""
        tasks = Task.objects.select_related("instance").order_by("pk")
        is_running = self._random.random() < running
        return self._one_of(tasks.claimed() if is_running else tasks).instance

    def _place(self):
        """Return a random Type without its own limit, and a collection or None for all."""
        types = sorted(kind.type for kind in KINDS if kind.at_once is None)
        return self._random.choice(types), self._random.choice((None, *COLLECTIONS))

    def _pause(self):
        instance = self._live(running=1)
        queue.pause(instance, by=WHO)
        self._undo_later(queue.resume, instance)

    def _release(self):
        queue.release(self._live(), by=WHO)

    def _hold(self):
        # A gate may be that of everything.
        place = (None, None) if self._random.random() < 0.1 else self._place()
        queue.hold(*place, by=WHO)
        self._undo_later(queue.open_gate, *place)

    def _limit(self):
        place = self._place()
        at_once, both = {"max_running": self._random.randint(1, 3)}, {"burst": 3, "max_running": 2}
        given = self._random.choice((at_once, {"rate": "20/s"}, {"rate": "5/s", **both}))
        queue.limit(*place, **given, by=WHO)
        self._undo_later(queue.unlimit, *place)

    def _quiet(self):
        daemon = self._one_of(Daemon.objects.order_by("pk"))
        queue.command(daemon, DaemonCommand.QUIET, by=WHO)
        self._undo_later(queue.command, daemon, DaemonCommand.RESUME)

    def _change(self):
        given = {
            "priority": self._random.choice((-10, 0, 10)),
            "due": timedelta(0),
            "postpone": timedelta(seconds=self._random.uniform(0.1, 2)),
            "collection": self._random.choice(COLLECTIONS),
        }
        name = self._random.choice(list(given))
        queue.change(self._live(running=0), by=WHO, **{name: given[name]})

    def _cancel(self):
        instance = self._live()
        uuid = str(instance.uuid)
        before = self.cancels.get(uuid)
        self.cancels.setdefault(uuid, Asked(uptime(), is_sure=False))
        try:
            queue.cancel(instance, by=WHO)
        except IllegalTransition:
            if before is None:
                del self.cancels[uuid]  # it was in time
            raise
        self.cancels[uuid] = Asked(uptime(), is_sure=True)
