"""The feed: what the application enqueues meanwhile, and what came of each enqueue."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from django.db import connection, transaction

from atp.daemon.system.processes import uptime
from atp.models import Task
from atp.verbs.registry import registry

from . import kinds
from .background import FAILURES, Background

# As long as fewer than this many Instances are live, more are enqueued.
BACKLOG = 40
# How many do is looked at this often, and something enqueued, in seconds.
LOOK_EVERY, PAUSE = 1.0, 0.05


class Fate(Enum):
    """What is known of an enqueue."""

    COMMITTED = "committed"
    UNKNOWN = "unknown"
    ROLLED_BACK = "rolled back"


@dataclass(frozen=True)
class Enqueued:
    """One call of ``enqueue``, by the identifier that it was made under."""

    identifier: str
    type: str
    fate: Fate


class _Undone(Exception):
    """Raised to roll a transaction back."""


class Feed(Background):
    """Enqueues tasks as the seed says until it is told to stop; ``enqueued`` is by identifier."""

    waits_for = "an enqueue"

    def __init__(self, seed, path, *, with_long):
        super().__init__("feed", seed)
        self._path = str(path)
        self._with_long = with_long
        self._number = 0
        self._looked, self._is_full = 0.0, False
        self.enqueued = {}

    @property
    def counts(self):
        return Counter(each.fate for each in self.enqueued.values())

    def _until_next(self):
        return PAUSE

    def _turn(self):
        if uptime() >= self._looked + LOOK_EVERY:
            self._look()
        if self._is_full:
            return
        how = self._random.random()
        if how < 0.05:
            self._roll_back(self._next())
        elif how < 0.10:
            self._enqueue_many([self._next() for _ in range(self._random.randint(2, 10))])
        else:
            self._enqueue_one(self._next())

    def _look(self):
        """See whether enough is live. What cannot be asked is tried: it may be answered."""
        self._looked = uptime()
        try:
            self._is_full = Task.objects.count() >= BACKLOG
        except FAILURES:
            self._is_full = False
            connection.close()

    def _next(self):
        """Choose a task: its kind, its identifier, and a function that enqueues it."""
        source, self._number = self._random, self._number + 1
        kind = kinds.choose(source, with_long=self._with_long)
        inputs = kind.inputs(source)
        identifier = f"chaos-{self._number}"
        options = {
            "identifier": identifier,
            "existing": "return",
            "priority": source.choice((-10, 0, 0, 0, 10)),
            "collection": source.choice(("", "", "esa", "dem")),
        }
        if source.random() < 0.1:
            options["run_after"] = timedelta(seconds=source.uniform(0.1, 3))
        patient = source.random() < 0.5
        task_type = registry.get(kind.type).using(**options)
        return kind, identifier, lambda: task_type.enqueue(path=self._path, **inputs), patient

    def _note(self, call, fate):
        kind, identifier, *_ = call
        self.enqueued[identifier] = Enqueued(identifier, kind.type, fate)

    def _enqueue_one(self, call):
        """Enqueue; where the answer is lost, half are enqueued once more under their identifier."""
        *_, enqueue, patient = call
        try:
            enqueue()
        except FAILURES:
            connection.close()
            self._note(call, Fate.UNKNOWN)
            while patient and not self._enough.wait(PAUSE):
                try:
                    enqueue()
                except FAILURES:
                    connection.close()
                    continue
                self._note(call, Fate.COMMITTED)
                return
        else:
            self._note(call, Fate.COMMITTED)

    def _enqueue_many(self, calls):
        """Enqueue several in one transaction."""
        fate = Fate.UNKNOWN
        try:
            with transaction.atomic():
                for *_, enqueue, _ in calls:
                    enqueue()
            fate = Fate.COMMITTED
        except FAILURES:
            connection.close()
        for call in calls:
            self._note(call, fate)

    def _roll_back(self, call):
        """Enqueue in a transaction that comes to nothing."""
        *_, enqueue, _ = call
        self._note(call, Fate.ROLLED_BACK)
        try:
            with transaction.atomic():
                enqueue()
                raise _Undone
        except _Undone:
            return
        except FAILURES:
            connection.close()
