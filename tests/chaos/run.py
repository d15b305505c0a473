"""One run: set up, disturb, recover, judge, report."""

import json

from django.conf import settings
from django.core.management import call_command

from atp import queue
from atp.daemon.system.processes import uptime

from . import evidence, judge, kinds, recovery, report, schedule
from .feed import Feed
from .fleet import PROCESSES, START, Fleet
from .operators import Operators
from .timeline import Timeline

# A run of so many minutes has tasks that outlast a lease.
LONG_FROM = 1.0


class Run:
    """A run on the database that Django has been set up with.

    ``tell(line)`` is told everything. ``is_drawn`` says that the schedule follows from the
    seed, and so has to be rough enough to show anything.
    """

    def __init__(self, *, folder, seed, minutes, actions, is_drawn, server, tell):
        self._folder = folder
        self._seed = seed
        self._minutes = minutes
        self._actions = actions
        self._is_drawn = is_drawn
        self._server = server
        self._tell = tell
        self._path = folder / "record.jsonl"
        self._fleet = Fleet(folder, server)
        self._weaknesses = []

    def run(self):
        """Do all of it, and return whether every promise was kept."""
        self._announce()
        call_command("migrate", verbosity=0)
        queue.register_all(by="chaos")
        for kind in kinds.limited():
            queue.limit(kind.type, max_running=kind.at_once, by="chaos")
        begun = uptime()
        feed = Feed(self._seed, self._path, with_long=self._minutes >= LONG_FROM)
        operators = Operators(self._seed)
        try:
            for _ in range(START):
                self._fleet.join()
            for member in self._fleet.there():
                member.atpd.ready(workers=PROCESSES)
            feed.start()
            operators.start()
            self._disturb()
            feed.stop()
            operators.stop()
            self._weaknesses += recovery.recovered(self._fleet, operators, self._tell)
            self._weaknesses += recovery.stopped(self._fleet)
            found = evidence.gather(
                begun=begun,
                path=self._path,
                feed=feed,
                operators=operators,
                fleet=self._fleet,
                server=self._server,
                weaknesses=self._weaknesses,
            )
        finally:
            self._fleet.destroy()
        for thread in (feed, operators):
            if thread.error is not None:
                raise thread.error
        return self._report(found)

    def _announce(self):
        file = self._folder / "schedule.json"
        schedule.write(self._actions, file, seed=self._seed, minutes=self._minutes)
        engine = settings.DATABASES["default"]["ENGINE"]
        self._tell(f"seed {self._seed}, {self._minutes:g} minutes, {engine}")
        self._tell(f"settings {json.dumps(settings.ATP)}")
        self._tell(f"{START} daemons of {PROCESSES} workers at first; files in {self._folder}")
        self._tell(f"schedule, also in {file}:")
        for action in self._actions:
            self._tell(str(action))
        self._tell("what came of it:")

    def _disturb(self):
        timeline = Timeline(self._fleet, self._server, self._tell)
        timeline.run(self._actions, self._minutes * 60)
        self._weaknesses += timeline.errors

    def _report(self, found):
        verdicts = judge.judged(found)
        self._tell("counted:")
        for name, number in report.counts(found, self._fleet):
            self._tell(f"{number:8d} {name}")
        report.written(verdicts, found, self._tell)
        has_server = self._server is not None
        gentle = list(
            report.too_gentle(self._fleet, minutes=self._minutes, has_server=has_server)
            if self._is_drawn
            else ()
        )
        for words in gentle:
            self._tell(f"BROKEN the run was to be rougher: {words}")
        return all(verdict.is_kept for verdict in verdicts) and not gentle
