"""Hooks under fire: each end has its hooks, once; and a receiver that was away gets every id.

Instances end in every way while daemons, their processes and the database are hit, and while
operators cancel, redrive and drop. Afterwards the ends that the log has are held against the
hooks that were enqueued, and the ids of the webhooks against those that a real server took.
"""

import json
from collections import Counter
from datetime import timedelta

from django.conf import settings
from django.core.management import call_command
from django.db import connection

from atp import Graph, queue
from atp.daemon.system.processes import uptime
from atp.exceptions import ATPError
from atp.models import Inputs, Instance, LogRecord, Task
from atp.states import TERMINAL, Event, Reason, State
from tests.app.tasks_hooks import hook as HOOK  # noqa: N812 (handlers, declared as Types)
from tests.app.tasks_hooks import hooked as HOOKED  # noqa: N812
from tests.helpers import wait_for

from . import recovery, report
from .background import FAILURES, Background
from .fleet import PROCESSES, START, Fleet
from .server import is_back
from .timeline import Timeline

WHO = "operator via chaos"
WEBHOOK = "atp.webhook"
# The hooks that each end has.
TYPES = (HOOK.identifier, WEBHOOK)
DROPPED = "dropped"
# As long as so few Instances are live others are enqueued.
BACKLOG = 400
DRAINED_WITHIN = 300.0
# The receiver is up, and away, for so long: in seconds, at least and at most.
UP, AWAY = (5, 15), (5, 25)
TOLD = 20
_HOW = ("finish",) * 8 + ("fail", "fatal", "exit", "retry")


class Hooks:
    """A run on the database that Django has been set up with."""

    def __init__(self, *, folder, seed, minutes, actions, server, receiver, tell):
        self._seed = seed
        self._minutes = minutes
        self._actions = actions
        self._server = server
        self._receiver = receiver
        self._tell = tell
        self._fleet = Fleet(folder, server, types=("chaos.*", WEBHOOK))

    def run(self):
        """Do all of it, and return whether the promise was kept."""
        engine = settings.DATABASES["default"]["ENGINE"]
        self._tell(f"seed {self._seed}, {self._minutes:g} minutes, {engine}")
        call_command("migrate", verbosity=0)
        queue.register_all(by="chaos")
        threads = feed, operators, away = (
            HookFeed("feed", self._seed),
            HookOperators("operators", self._seed),
            Away(self._receiver, self._seed),
        )
        timeline = Timeline(self._fleet, self._server, self._tell)
        try:
            for _ in range(START):
                self._fleet.join()
            for member in self._fleet.there():
                member.atpd.ready(workers=PROCESSES)
            for thread in threads:
                thread.start()
            timeline.run(self._actions, self._minutes * 60)
            for thread in threads:
                thread.stop()
            away.back()
            self._drain()
            broken = [*timeline.errors, *recovery.whole(self._fleet)]
            broken += recovery.stopped(self._fleet)
        finally:
            self._fleet.destroy()
        for thread in threads:
            if thread.error is not None:
                raise thread.error
        broken += broken_of(self._receiver.ids())
        if feed.count < 20 * self._minutes:
            broken.append(f"the run was to be rougher: {feed.count} Instances")
        self._told(feed, operators, away, broken)
        return not broken

    def _drain(self):
        """Wait until all is done. What a receiver that was away has to wait for is run now."""
        wait_for(is_back, what="the database")
        if not self._fleet.there():
            self._fleet.join()
        queue.open_gate(HOOKED, collection=DROPPED, by=WHO)
        begun = uptime()
        while uptime() < begun + DRAINED_WITHIN:
            try:
                wait_for(lambda: not Task.objects.exists(), timeout=5)
                if not self._redriven():
                    break
            except AssertionError:
                self._hurry()
        self._tell(f"         all was done after {uptime() - begun:.1f} s")

    @staticmethod
    def _redriven():
        """Redrive hooks that were killed too often; returns how many."""
        failed = Instance.objects.filter(type__identifier__in=TYPES)
        stale = list(failed.filter(state=State.FAILED))
        queue.redrive(*stale, by=WHO)
        return len(stale)

    @staticmethod
    def _hurry():
        waiting = Task.objects.filter(type__identifier=WEBHOOK, daemon=None)
        for task in waiting.select_related("instance"):
            try:
                queue.change(task.instance, due=timedelta(0), by=WHO)
            except ATPError:
                continue

    def _told(self, feed, operators, away, broken):
        ended = Instance.objects.filter(type__identifier=HOOKED.identifier)
        ways = Counter(ended.values_list("state", "reason"))
        ends, hooks = ends_of(HOOKED.identifier), Counter()
        for type in TYPES:
            hooks[type] = sum(hooks_of(type).values())
        self._tell("counted:")
        self._tell(f"{feed.count:8d} Instances with hooks, {dict(ways)}")
        self._tell(f"{sum(ends.values()):8d} ends")
        for type, number in hooks.items():
            self._tell(f"{number:8d} hooks of {type}")
        self._tell(f"{len(self._receiver.ids()):8d} ids that the receiver took")
        self._tell(f"{len(self._receiver.received):8d} requests; it was away {away.count} times")
        self._tell(f"{report.kills(self._fleet):8d} kills")
        for name, number in sorted((operators.counts | self._fleet.counts).items()):
            self._tell(f"{number:8d}   {name}")
        for words in broken[:TOLD]:
            self._tell(f"BROKEN: {words}")
        if len(broken) > TOLD:
            self._tell(f"       … and {len(broken) - TOLD} more")


def ends_of(type):
    """Return the number of ends by uuid and state: those that the logs have."""
    found = LogRecord.objects.filter(instance__type__identifier=type, state__in=TERMINAL)
    found = found.filter(kind__in=Event.values)
    return Counter((str(u), s) for u, s in found.values_list("instance__uuid", "state"))


def hooks_of(type):
    """Return the number of hooks of a Type by the uuid and the state that they were told."""
    texts = Inputs.objects.filter(instance__type__identifier=type).values_list("data", flat=True)
    return Counter((told["uuid"], told["state"]) for told in map(json.loads, texts))


def broken_of(ids):
    """Yield sentences about ends and hooks that do not fit; ``ids`` were taken by the receiver."""
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
    """The receiver is away for a while, again and again; ``count`` says how often."""

    waits_for = "the end of a request"

    def __init__(self, receiver, seed):
        super().__init__("receiver", seed)
        self._receiver = receiver
        self._is_up = True
        self.count = 0

    def _until_next(self):
        return self._random.uniform(*(UP if self._is_up else AWAY))

    def _turn(self):
        if self._is_up:
            self._receiver.down()
            self.count += 1
        else:
            self._receiver.up()
        self._is_up = not self._is_up

    def back(self):
        """Be there for good."""
        if not self._is_up:
            self._turn()


class HookFeed(Background):
    """Enqueues Instances that end in every way; ``count`` says how many, as far as is known."""

    waits_for = "an enqueue"

    def __init__(self, name, seed):
        super().__init__(name, seed)
        self.count = 0

    def _until_next(self):
        return self._random.uniform(0.02, 0.2)

    def _turn(self):
        try:
            if Task.objects.count() < BACKLOG:
                self._random.choice((self._one, self._many, self._chain))()
        except FAILURES:
            connection.close()

    def _given(self):
        return {
            "how": self._random.choice(_HOW),
            "seconds": round(0.01 * 100 ** self._random.random(), 3),
        }

    def _one(self):
        # What is late is MISSED, what is in that collection DROPPED now and then.
        options = self._random.choice(
            (
                {},
                {"start_before": timedelta(seconds=self._random.uniform(0.1, 2))},
                {"collection": DROPPED},
            )
        )
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


class HookOperators(Background):
    """Cancel, redrive and drop; ``counts`` says how often."""

    waits_for = "a verb of the operators"

    def __init__(self, name, seed):
        super().__init__(name, seed)
        self.counts = Counter()

    def _until_next(self):
        return self._random.uniform(0, 0.5)

    def _turn(self):
        verbs = self._cancel, self._redrive, self._drop, self._open
        verb = self._random.choices(verbs, (5, 5, 1, 2))[0]
        try:
            verb()
            self.counts[f"by operators: {verb.__name__[1:]}"] += 1
        except (ATPError, IndexError):
            self.counts["by operators: refused"] += 1
        except FAILURES:
            self.counts["by operators: not answered"] += 1
            connection.close()

    def _of(self, **wanted):
        found = Instance.objects.filter(type__identifier=HOOKED.identifier, **wanted)
        return self._random.choice(list(found.order_by("-pk")[:100]))

    def _cancel(self):
        queue.cancel(self._of(task__isnull=False), by=WHO)

    def _redrive(self):
        reason = self._random.choice([Reason.ERROR, Reason.CANCELLED, Reason.DROPPED, Reason.STALE])
        queue.redrive(self._of(state=State.FAILED, reason=reason), by=WHO)

    def _drop(self):
        queue.drop(HOOKED, collection=DROPPED, by=WHO)

    def _open(self):
        queue.open_gate(HOOKED, collection=DROPPED, by=WHO)
