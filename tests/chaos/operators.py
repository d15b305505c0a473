"""The operators: they cancel and release what lives, whatever it is doing."""

import random
import threading
from collections import Counter
from dataclasses import dataclass

from django.db import DatabaseError, InterfaceError, connection

from atp import queue
from atp.daemon.processes import uptime
from atp.exceptions import IllegalTransition, UnknownInstance
from atp.models import Instance, Task

# One of them does something about this often, in seconds.
PAUSE = 0.25
WHO = "operator via chaos"
_FAILURES = (DatabaseError, InterfaceError, OSError)


@dataclass(frozen=True)
class Asked:
    """A call of ``cancel`` on the uptime clock; whether it was answered, or nobody knows."""

    at: float
    is_sure: bool


class Operators(threading.Thread):
    """Act as the seed says until told to stop; ``cancels`` is by uuid."""

    def __init__(self, seed):
        super().__init__(name="operators", daemon=True)
        self._random = random.Random(f"operators {seed}")
        self._enough = threading.Event()
        self.cancels = {}
        self.counts = Counter()
        self.error = None

    def run(self):
        try:
            while not self._enough.wait(self._random.uniform(0, 2 * PAUSE)):
                try:
                    self._turn()
                except _FAILURES:
                    connection.close()
        except BaseException as error:
            self.error = error
        finally:
            connection.close()

    def stop(self):
        """Do nothing more, and wait until the last call has ended."""
        self._enough.set()
        self.join(60)
        if self.is_alive():
            raise AssertionError("a verb of the operators has not come back for a minute")

    def _turn(self):
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
