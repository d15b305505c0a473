"""The main scenario: all kinds of task under a schedule of faults, with every promise judged."""

import json

from django.conf import settings

from atp import queue

from . import evidence, judge, kinds, report
from .feed import Feed
from .fleet import PROCESSES, START
from .operators import Operators
from .scenario import Scenario

# A run of so many minutes has tasks that outlast a lease.
LONG_FROM = 1.0


class Run(Scenario):
    """If ``is_drawn`` is True, the schedule follows from the seed.

    Such a run fails if it had too few faults.
    """

    promise = "the run"
    drained_within = 120.0

    def __init__(self, *, is_drawn, **given):
        super().__init__(**given)
        self._is_drawn = is_drawn
        self._feed = Feed(self._seed, self._path, with_long=self._minutes >= LONG_FROM)
        self._operators = Operators(self._seed)

    def _prepare(self):
        super()._prepare()
        self._tell(f"settings {json.dumps(settings.ATP)}")
        self._tell(f"{START} daemons of {PROCESSES} workers at first; files in {self._folder}")
        self._tell("schedule:")
        for action in self._actions:
            self._tell(str(action))
        self._tell("what came of it:")
        for kind in kinds.limited():
            queue.limit(kind.type, max_running=kind.at_once, by="chaos")

    def _disturb(self):
        self._act(self._feed, self._operators)
        self._recover()
        self._found = evidence.gather(
            begun=self._begun,
            path=self._path,
            feed=self._feed,
            operators=self._operators,
            fleet=self._fleet,
            server=self._server,
        )

    def _settle(self):
        # What they have asked for may come true, or to light, only now.
        self._operators.settle()

    def _broken(self):
        verdicts = judge.judged(self._found)
        report.written(verdicts, self._found, self._tell)
        yield from (promise for promise, breaches in verdicts.items() if breaches)
        if self._is_drawn:
            has_server = self._server is not None
            yield from report.too_gentle(self._fleet, minutes=self._minutes, has_server=has_server)

    def _counts(self):
        return report.counts(self._found, self._fleet, self._operators)
