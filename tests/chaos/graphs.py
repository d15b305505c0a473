"""Graphs under fire: daemons and database are hit, operators cancel and redrive (G17).

Afterwards the handlers' own record is held against the edges: nothing was early, nothing is
stuck, and no result was lost on its way.
"""

import random
from collections import Counter

from django.conf import settings
from django.core.management import call_command
from django.db import connection

from atp import queue
from atp.daemon.system.processes import uptime
from atp.exceptions import IllegalTransition, UnknownInstance
from atp.models import Failing, Graph, Instance, Task
from atp.states import Reason, State
from atp.verbs.graphs import cancel_graph, redrive_graph
from tests.helpers import wait_for

from . import graph_judge, graph_shapes, recovery, report
from .background import FAILURES, Background
from .feed import Fate
from .fleet import PROCESSES, START, Fleet
from .server import is_back
from .timeline import Timeline

WHO = "operator via chaos"
# Graphs are submitted as long as so few Instances are live, up to so many each minute.
BACKLOG, EACH_MINUTE = 1500, 100
# Time to execute what is left when nothing is hit any more, in seconds.
DRAINED_WITHIN = 300.0
# Sentences about what is broken that are told.
TOLD = 20
_REFUSALS = (IllegalTransition, UnknownInstance)


class Graphs:
    """A run on the database that Django has been set up with."""

    def __init__(self, *, folder, seed, minutes, actions, server, tell):
        self._seed = seed
        self._minutes = minutes
        self._actions = actions
        self._server = server
        self._tell = tell
        self._path = folder / "record.jsonl"
        self._fleet = Fleet(folder, server)

    def run(self):
        """Do all of it, and return whether the promise was kept."""
        engine = settings.DATABASES["default"]["ENGINE"]
        self._tell(f"seed {self._seed}, {self._minutes:g} minutes, {engine}")
        call_command("migrate", verbosity=0)
        queue.register_all(by="chaos")
        feed = GraphFeed(self._seed, self._path, round(EACH_MINUTE * self._minutes))
        operators = GraphOperators(self._seed)
        timeline = Timeline(self._fleet, self._server, self._tell)
        try:
            for _ in range(START):
                self._fleet.join()
            for member in self._fleet.there():
                member.atpd.ready(workers=PROCESSES)
            feed.start()
            operators.start()
            timeline.run(self._actions, self._minutes * 60)
            feed.stop()
            operators.stop()
            self._drain()
            broken = [*timeline.errors, *recovery.whole(self._fleet)]
            broken += recovery.stopped(self._fleet)
        finally:
            self._fleet.destroy()
        for thread in (feed, operators):
            if thread.error is not None:
                raise thread.error
        broken += feed.broken()
        found = graph_judge.gather(feed.shapes, self._path)
        broken += graph_judge.broken_of(found)
        self._told(found, feed, operators, broken)
        return not broken

    def _drain(self):
        wait_for(is_back, what="the database")
        if not self._fleet.there():
            self._fleet.join()
        begun = uptime()
        while uptime() < begun + DRAINED_WITHIN:
            try:
                wait_for(self._is_done, timeout=5)
            except AssertionError:
                continue
            break
        self._tell(f"         all was done after {uptime() - begun:.1f} s")

    @staticmethod
    def _is_done():
        try:
            return not (
                Task.objects.exists()
                or Failing.objects.exists()
                or Graph.objects.filter(ended=None).exists()
            )
        except FAILURES:
            connection.close()
            return False

    def _told(self, found, feed, operators, broken):
        states = Counter(
            (node.state, node.reason) if node.reason else node.state
            for node in found.nodes.values()
        )
        attempts = sum(len(each) for each in found.executions.values())
        self._tell("counted:")
        self._tell(f"{Graph.objects.count():8d} graphs, {dict(feed.counts)}")
        self._tell(f"{Graph.objects.filter(ended=None).count():8d} of them have no end")
        self._tell(f"{len(found.nodes):8d} nodes: {dict(states)}")
        self._tell(f"{len(found.edges):8d} edges")
        self._tell(f"{attempts:8d} executions")
        self._tell(f"{report.kills(self._fleet):8d} kills")
        for name, number in sorted((operators.counts | self._fleet.counts).items()):
            self._tell(f"{number:8d}   {name}")
        for words in broken[:TOLD]:
            self._tell(f"BROKEN G17: {words}")
        if len(broken) > TOLD:
            self._tell(f"       … and {len(broken) - TOLD} more")


class GraphFeed(Background):
    """Submits graphs until there are so many; ``shapes`` and ``fates`` are by name."""

    waits_for = "the submission of a graph"

    def __init__(self, seed, path, most):
        super().__init__("graphs", seed)
        self._seed = seed
        self._path = path
        self._most = most
        self.shapes, self.fates = {}, {}

    @property
    def counts(self):
        return Counter(fate.value for fate in self.fates.values())

    def _until_next(self):
        return 0.05

    def _turn(self):
        name = f"graph-{len(self.shapes)}"
        try:
            if len(self.shapes) >= self._most or Task.objects.count() > BACKLOG:
                return
        except FAILURES:
            connection.close()
            return
        self.shapes[name] = graph_shapes.drawn(random.Random(f"{self._seed} {name}"))
        # Nobody knows what became of it if the answer does not come.
        self.fates[name] = Fate.UNKNOWN
        try:
            graph_shapes.submit(name, self.shapes[name], self._path)
            self.fates[name] = Fate.COMMITTED
        except FAILURES:
            connection.close()

    def broken(self):
        """Yield sentences about graphs of which not all is there, or that are lost."""
        for name, fate in self.fates.items():
            count = Instance.objects.filter(node__graph__name=name).count()
            if count != graph_shapes.NODES and (count or fate is Fate.COMMITTED):
                yield f"{name}, {fate.value}, has {count} nodes"
        if self.counts[Fate.COMMITTED.value] < self._most / 10:
            yield f"the run was to be rougher: no more than {dict(self.counts)}"


class GraphOperators(Background):
    """Cancel and redrive nodes and whole graphs; ``counts`` says how often."""

    waits_for = "a verb of the operators"

    def __init__(self, seed):
        super().__init__("operators", seed)
        self.counts = Counter()
        self._choices = self._to_cancel, self._to_redrive, self._to_cancel_all, self._to_go_on
        self._weights = 4, 1, 1, 3

    def _until_next(self):
        return self._random.uniform(0, 0.5)

    def _turn(self):
        try:
            chosen = self._random.choices(self._choices, self._weights)[0]
            name, verb, target = chosen()
            if target is None:
                return
            verb(target, by=WHO)
            self.counts[f"by operators: {name}"] += 1
        except _REFUSALS:
            self.counts["by operators: refused"] += 1
        except FAILURES:
            self.counts["by operators: not answered"] += 1
            connection.close()

    def _to_cancel(self):
        live = Instance.objects.filter(node__isnull=False, task__isnull=False).order_by("pk")
        return "cancel", queue.cancel, self._one_of(live)

    def _to_redrive(self):
        failed = Instance.objects.filter(node__isnull=False, state=State.FAILED)
        cancelled = failed.filter(reason=Reason.CANCELLED)
        return "redrive", queue.redrive, self._one_of(cancelled.order_by("-pk"))

    def _to_cancel_all(self):
        live = Graph.objects.filter(ended=None).order_by("-pk")
        return "cancel a graph", cancel_graph, self._one_of(live)

    def _to_go_on(self):
        some = Graph.objects.filter(nodes__instance__reason=Reason.CANCELLED).distinct()
        return "redrive a graph", redrive_graph, self._one_of(some.order_by("-pk"))

    def _one_of(self, rows):
        found = list(rows[:200])
        return self._random.choice(found) if found else None
