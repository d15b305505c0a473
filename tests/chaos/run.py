"""The main scenario: all kinds of task under a schedule of faults, with every promise judged."""

import json
from collections import Counter

from django.conf import settings

from atp import queue
from atp.states import Reason

from . import evidence, judge, kinds
from .feed import Feed
from .fleet import PROCESSES, START
from .operators import Operators
from .scenario import Scenario

# A run of so many minutes has tasks that outlast a lease.
LONG_FROM = 1.0
# So many breaches of a promise are told in full, with the Instance's log and record.
TOLD = 3
# A long record is told from its beginning and its end.
LINES = 12


class Run(Scenario):
    """A run whose schedule follows from the seed also fails if it had too few faults."""

    promise = "the run"
    drained_within = 120.0

    def __init__(self, **given):
        super().__init__(**given)
        self._feed = Feed(self._seed, self._path, with_long=self._minutes >= LONG_FROM)
        self._operators = Operators(self._seed)

    def _prepare(self):
        super()._prepare()
        self._tell(f"settings {json.dumps(settings.ATP)}")
        self._tell(f"{START} daemons of {PROCESSES} workers at first; files in {self._folder}")
        for words in ("schedule:", *self._actions, "what came of it:"):
            self._tell(str(words))
        for kind in kinds.limited():
            queue.limit(kind.type, max_running=kind.at_once, by="chaos")

    def _disturb(self):
        self._act(self._feed, self._operators)
        self._recover()
        given = {"path": self._path, "feed": self._feed, "operators": self._operators}
        self._found = evidence.gather(self._begun, self._fleet, self._server, **given)

    def _settle(self):
        # What they have asked for may come true, or to light, only now.
        self._operators.settle()

    def _broken(self):
        for promise, breaches in judge.judged(self._found).items():
            self._tell(f"{'BROKEN' if breaches else 'kept  '} {promise}")
            for breach in breaches[:TOLD]:
                self._tell(f"       {breach.uuid} {breach.words}")
                for line in _story_of(breach, self._found):
                    self._tell(f"           {line}")
            if len(breaches) > TOLD:
                self._tell(f"       … and {len(breaches) - TOLD} more")
            if breaches:
                yield promise
        if self._is_drawn:
            yield from self._too_gentle()

    def _too_gentle(self):
        """Yield each respect in which a run had too few faults to show anything."""
        kills, restarts = self._fleet.kills, self._fleet.counts["restart_database"]
        for number, least, name in ((kills, 3, "kills"), (restarts, 1, "restarts")):
            if number < least * self._minutes and (self._server or name == "kills"):
                told = f"only {number} {name} in {self._minutes:g} minutes"
                yield f"the run was to be rougher: {told}"

    def _counts(self):
        found = self._found
        for fate, number in Counter(found.enqueued.values()).items():
            yield number, f"enqueues, {fate.value}"
        executions = [e for attempts in found.executions.values() for e in attempts.values()]
        yield len(executions), "executions"
        yield sum(execution.end is None for execution in executions), "executions that have no end"
        stale = [story for story in found.stories if story.reason == Reason.STALE]
        hit = sum(not kinds.BY_TYPE[each.type].loses(each.attempt) for each in stale)
        yield hit, "Instances STALE, given up because they were hit"
        told = Counter(fact["fact"] for daemon in found.daemons for fact in daemon.facts)
        for name in ("refused", "lease_over", "dispatcher_hung", "database_slow", "rejoined"):
            yield told[name], f"told by daemons: {name}"
        back = [seconds for _, seconds in judge.returns(found) if seconds is not None]
        slowest = round(1000 * max(back, default=0))
        yield slowest, "ms until the slowest daemon was back after the database"


def _story_of(breach, evidence):
    """Yield the log of an Instance, its record, and the faults meanwhile, for a human reader."""
    story = next((s for s in evidence.stories if s.uuid == breach.uuid), None)
    if story is not None:
        budgets = f"restarts {story.restarts}/{story.max_restarts}, lost {story.lost}"
        yield f"{story.type} {story.state} {story.reason} attempt {story.attempt}, {budgets}"
        yield from story.log
    executions = evidence.executions.get(breach.uuid, {}).values()
    lines = sorted((x for e in executions for x in _telling(e)), key=lambda x: x.place)
    yield from lines if len(lines) <= 2 * LINES else [*lines[:LINES], "…", *lines[-LINES:]]
    times = [line.time for line in lines] + [e.time for e in (story.log if story else ())]
    if times:
        yield from (h for h in evidence.hits if h.until >= min(times) and h.since <= max(times))


def _telling(execution):
    """Return the lines of an execution without the ticks between its first and last line."""
    first, *rest = execution.lines
    return [first, *(x for x in rest if x is execution.last or x.event not in ("tick", "child"))]
