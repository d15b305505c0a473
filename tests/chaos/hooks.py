"""Chaos with hooks: each end has its hooks once, and a receiver gets every id after an outage.

Instances end in every way while faults hit daemons and database, and while operators cancel,
redrive and drop. Afterwards the ends in the log are compared with the enqueued hooks, and the ids
of the webhooks with those that a real server received.
"""

import contextlib
import json
from collections import Counter
from datetime import timedelta

from django.utils import timezone

from atp import Graph, queue
from atp.exceptions import ATPError
from atp.models import Inputs, Instance, LogRecord, Task
from atp.states import TERMINAL, Event, Reason, State
from tests.app.tasks_hooks import hook as HOOK  # noqa: N812 (handlers, declared as Types)
from tests.app.tasks_hooks import hooked as HOOKED  # noqa: N812
from tests.helpers import wait_for

from .background import WHO, Background, Calling
from .scenario import Scenario
from .server import is_back

WEBHOOK = "atp.webhook"
# The hooks that each end has.
TYPES = (HOOK.identifier, WEBHOOK)
DROPPED = "dropped"
# As long as so few Instances are live others are enqueued.
BACKLOG = 400
# The receiver is up, and away, for so long: in seconds, at least and at most.
UP, AWAY = (5, 15), (5, 25)
_HOW = ("finish",) * 8 + ("fail", "fatal", "exit", "retry")


class Hooks(Scenario):
    """A scenario with hooks under a schedule of faults; ``outside`` is the receiver."""

    types = ("chaos.*", WEBHOOK)
    promise = "G1, G6"

    def _disturb(self):
        self._feed = HookFeed(self._seed)
        self._operators = HookOperators(self._seed)
        self._away = Away(self._outside, self._seed)
        self._act(self._feed, self._operators, self._away)
        self._away.back()
        wait_for(is_back, what="the database")
        queue.open_gate(HOOKED, collection=DROPPED, by=WHO)
        self._recover()

    def _broken(self):
        yield from broken_of(self._outside.ids())
        if self._feed.count < 20 * self._minutes:
            yield f"the run was to be rougher: {self._feed.count} Instances"

    def _left(self):
        """Redrive hooks that were killed too often, after all other work is done."""
        if left := super()._left():
            return left
        failed = Instance.objects.filter(type__identifier__in=TYPES, state=State.FAILED)
        stale = list(failed)
        queue.redrive(*stale, by=WHO)
        return [f"{each.uuid} has FAILED" for each in stale]

    def _settle(self):
        """Make hooks that wait for their retry due now."""
        waiting = Task.objects.filter(type__identifier=WEBHOOK, daemon=None)
        for task in waiting.filter(due_at__gt=timezone.now()).select_related("instance"):
            with contextlib.suppress(ATPError):
                queue.change(task.instance, due=timedelta(0), by=WHO)

    def _counts(self):
        yield self._feed.count, "Instances with hooks"
        yield sum(ends_of(HOOKED.identifier).values()), "ends"
        for type in TYPES:
            yield sum(hooks_of(type).values()), f"hooks of {type}"
        yield len(self._outside.ids()), "ids that the receiver took"
        yield len(self._outside.received), f"requests; it was away {self._away.count} times"


def ends_of(type):
    """Return the number of ends in the logs by uuid and state."""
    found = LogRecord.objects.filter(instance__type__identifier=type, state__in=TERMINAL)
    found = found.filter(kind__in=Event.values)
    return Counter((str(u), s) for u, s in found.values_list("instance__uuid", "state"))


def hooks_of(type):
    """Return the number of hooks of a Type by the uuid and the state in their inputs."""
    texts = Inputs.objects.filter(instance__type__identifier=type).values_list("data", flat=True)
    return Counter((told["uuid"], told["state"]) for told in map(json.loads, texts))


def broken_of(ids):
    """Yield a sentence for each mismatch of ends and hooks; ``ids`` are the received ones."""
    ends = ends_of(HOOKED.identifier)
    for type in TYPES:
        hooks = hooks_of(type)
        for key in sorted(ends.keys() | hooks.keys()):
            if ends[key] != hooks[key]:
                uuid, state = key
                yield f"{uuid}: {ends[key]} × {state}, and {hooks[key]} hooks of {type}"
    live = Instance.objects.exclude(state__in=TERMINAL)
    yield from (f"{each} is {each.state}" for each in live)
    for uuid in Instance.objects.filter(type__identifier=WEBHOOK).values_list("uuid", flat=True):
        if str(uuid) not in ids:
            yield f"the receiver has never got {uuid}"


class Away(Background):
    """Takes the receiver down for a while, repeatedly; ``count`` is the number of times."""

    pause = UP
    forgiven = ()

    def __init__(self, receiver, seed):
        super().__init__("receiver", seed)
        self._receiver = receiver
        self._is_up = True
        self.count = 0

    def _turn(self):
        if self._is_up:
            self._receiver.down()
            self.count += 1
        else:
            self._receiver.up()
        self._is_up = not self._is_up
        self.pause = UP if self._is_up else AWAY

    def back(self):
        """Bring the receiver back for good."""
        if not self._is_up:
            self._turn()


class HookFeed(Background):
    """Enqueues Instances that end in every way; ``count`` is the number of known enqueues."""

    pause = 0.02, 0.2

    def __init__(self, seed):
        super().__init__("feed", seed)
        self.count = 0

    def _turn(self):
        if Task.objects.count() < BACKLOG:
            self._random.choice((self._one, self._many, self._chain))()

    def _given(self):
        seconds = round(0.01 * 100 ** self._random.random(), 3)
        return {"how": self._random.choice(_HOW), "seconds": seconds}

    def _one(self):
        # What is late is MISSED, what is in that collection DROPPED now and then.
        late = {"start_before": timedelta(seconds=self._random.uniform(0.1, 2))}
        options = self._random.choice(({}, late, {"collection": DROPPED}))
        HOOKED.using(**options).enqueue(**self._given())
        self.count += 1

    def _many(self):
        given = [self._given() for _ in range(self._random.randint(2, 10))]
        HOOKED.enqueue_many(given)
        self.count += len(given)

    def _chain(self):
        with Graph("chain") as g:
            last = g.add(HOOKED, **self._given())
            for _ in range(3):
                last = g.add(HOOKED, **self._given(), after=last)
        self.count += 4


class HookOperators(Calling):
    """Cancels, redrives and drops Instances."""

    verbs = {"cancel": 5, "redrive": 5, "drop": 1, "open": 2}

    def _of(self, **wanted):
        found = Instance.objects.filter(type__identifier=HOOKED.identifier, **wanted)
        return self._one_of(found.order_by("-pk"))

    def _cancel(self):
        queue.cancel(self._of(task__isnull=False), by=WHO)

    def _redrive(self):
        reason = self._random.choice([Reason.ERROR, Reason.CANCELLED, Reason.DROPPED, Reason.STALE])
        queue.redrive(self._of(state=State.FAILED, reason=reason), by=WHO)

    def _drop(self):
        queue.drop(HOOKED, collection=DROPPED, by=WHO)

    def _open(self):
        queue.open_gate(HOOKED, collection=DROPPED, by=WHO)
