"""The operators: they cancel and release what lives, whatever it is doing."""

from collections import Counter
from dataclasses import dataclass

from django.db import connection

from atp import queue
from atp.daemon.processes import uptime
from atp.exceptions import IllegalTransition, UnknownInstance
from atp.models import Instance, Task

from .background import FAILURES, Background

# One of them does something about this often, in seconds.
PAUSE = 0.25
WHO = "operator via chaos"


@dataclass(frozen=True)
class Asked:
    """A call of ``cancel`` on the uptime clock; whether it was answered, or nobody knows."""

    at: float
    is_sure: bool


class Operators(Background):
    """Act as the seed says until told to stop; ``cancels`` is by uuid."""

    waits_for = "a verb of the operators"

    def __init__(self, seed):
        super().__init__("operators", seed)
        self.cancels = {}
        self.counts = Counter()

    def _pause(self):
        return self._random.uniform(0, 2 * PAUSE)

    def _turn(self):
        try:
            self._act()
        except FAILURES:
            connection.close()

    def _act(self):
        # Rather what runs: the rest is much more.
        tasks = Task.objects.all()
        if self._random.random() < 0.7:
            tasks = tasks.claimed()
        keys = list(tasks.order_by("pk").values_list("pk", flat=True)[:50])
        if not keys:
            return
        instance = Instance.objects.filter(pk=self._random.choice(keys)).first()
        if instance is None:
            return
        try:
            if self._random.random() < 0.3:
                queue.release(instance, by=WHO)
                self.counts["release"] += 1
            else:
                self._cancel(instance)
        except (IllegalTransition, UnknownInstance):
            self.counts["refused"] += 1

    def _cancel(self, instance):
        at, uuid = uptime(), str(instance.uuid)
        before = self.cancels.get(uuid)
        self.cancels.setdefault(uuid, Asked(at, is_sure=False))
        try:
            queue.cancel(instance, by=WHO)
        except IllegalTransition:
            if before is None:
                del self.cancels[uuid]  # it was in time
            raise
        self.cancels[uuid] = Asked(uptime(), is_sure=True)
        self.counts["cancel"] += 1
