"""The feed enqueues tasks during the run and keeps the outcome of each enqueue."""

import contextlib
from datetime import timedelta
from enum import Enum
from functools import partial

from django.db import connection, transaction

from atp.models import Task
from atp.operations.registry import registry

from . import kinds
from .background import FAILURES, Background
from .record import uptime

# As long as fewer than this many Instances are live, more are enqueued.
BACKLOG = 40
# How many are live is looked at this often, in seconds.
LOOK_EVERY = 1.0


class Fate(Enum):
    """The known outcome of an enqueue."""

    COMMITTED = "committed"
    UNKNOWN = "unknown"
    ROLLED_BACK = "rolled back"


class _Undone(Exception):
    """Raised to roll a transaction back."""


class Feed(Background):
    """Enqueues random tasks that follow from the seed; ``fates`` has the outcomes by identifier."""

    def __init__(self, seed, path, *, with_long):
        super().__init__("feed", seed)
        self._path = str(path)
        self._with_long = with_long
        self._looked, self._is_full = 0.0, False
        self.fates = {}

    def _turn(self):
        if uptime() >= self._looked + LOOK_EVERY:
            # What cannot be asked is tried: it may be answered.
            self._looked, self._is_full = uptime(), False
            self._is_full = Task.objects.count() >= BACKLOG
        if self._is_full:
            return
        how = self._random.random()
        if how < 0.05:
            self._enqueue_in_transaction(1, Fate.ROLLED_BACK, Fate.ROLLED_BACK)
        elif how < 0.10:
            self._enqueue_in_transaction(self._random.randint(2, 10), Fate.COMMITTED, Fate.UNKNOWN)
        else:
            self._enqueue_one(*self._next())

    def _next(self):
        """Return a new identifier, whose fate is unknown, and a function that enqueues its task."""
        source = self._random
        kind = kinds.choose(source, with_long=self._with_long)
        inputs = kind.inputs(source)
        identifier = f"chaos-{len(self.fates) + 1}"
        self.fates[identifier] = Fate.UNKNOWN
        options = {
            "identifier": identifier,
            "existing": "return",
            "priority": source.choice((-10, 0, 0, 0, 10)),
            "collection": source.choice(("", "", "esa", "dem")),
        }
        if source.random() < 0.1:
            options["run_after"] = timedelta(seconds=source.uniform(0.1, 3))
        task_type = registry.get(kind.type).using(**options)
        return identifier, partial(task_type.enqueue, path=self._path, **inputs)

    def _enqueue_one(self, identifier, enqueue):
        """Enqueue a task; half of the callers repeat the enqueue if they get no answer."""
        is_patient = self._random.random() < 0.5
        while True:
            try:
                enqueue()
            except FAILURES:
                connection.close()
            else:
                self.fates[identifier] = Fate.COMMITTED
                return
            if not is_patient or self._enough.wait(self.pause[0]):
                return

    def _enqueue_in_transaction(self, count, fate, without_answer):
        """Enqueue several tasks in one transaction, which might be rolled back."""
        calls = dict(self._next() for _ in range(count))
        self.fates |= dict.fromkeys(calls, without_answer)
        with contextlib.suppress(_Undone), transaction.atomic():
            for enqueue in calls.values():
                enqueue()
            if fate is Fate.ROLLED_BACK:
                raise _Undone
        self.fates |= dict.fromkeys(calls, fate)
