"""Chaos with graphs: faults hit daemons and database, operators cancel and redrive (G17).

Afterwards the handlers' own record is compared with the edges: no node was early, none is stuck,
and no result was lost. The shapes of the graphs follow from the seed.
"""

from collections import Counter
from dataclasses import dataclass

from atp import Graph as Submission
from atp import queue, result
from atp.exceptions import IllegalTransition, UnknownInstance
from atp.graphs.operations import cancel_graph, redrive_graph
from atp.models import Failing, Graph, Instance, Task
from atp.operations.registry import registry
from atp.states import Reason, State

from . import graph_judge, report
from .background import WHO, Background, Calling
from .feed import Fate
from .scenario import Scenario

# Graphs are submitted as long as so few Instances are live, up to so many each minute.
BACKLOG, EACH_MINUTE = 1500, 100
TYPE = "chaos.node"
NODES = 50
# How a node ends, and how often beside each other.
HOWS = {"returns": 88, "works": 5, "retries": 4, "fails": 3}
# The number of nodes that one waits for, and how often beside each other.
UPSTREAMS = {0: 10, 1: 50, 2: 25, 3: 15}
# Of those that wait, this share runs however the others end.
RUNS_ANYHOW = 0.2
# Some wait for many at once.
FANS_IN, FAN_IN = 0.03, 20


class Graphs(Scenario):
    """A scenario with graphs under a schedule of faults."""

    promise = "G17"

    def _disturb(self):
        self._feed = GraphFeed(self._seed, self._path, round(EACH_MINUTE * self._minutes))
        self._operators = GraphOperators(self._seed)
        self._act(self._feed, self._operators)
        self._recover()

    def _left(self):
        failing, endless = Failing.objects.count(), Graph.objects.filter(ended=None).count()
        more = [f"{failing} are failing, {endless} graphs have no end"]
        return super()._left() or (more if failing or endless else [])

    def _broken(self):
        self._found = graph_judge.gather(self._feed.shapes, self._path)
        return [*self._feed.broken(), *graph_judge.broken_of(self._found)]

    def _counts(self):
        nodes = self._found
        states = Counter((each.state, each.reason) if each.reason else each.state for each in nodes)
        yield Graph.objects.count(), f"graphs, {dict(self._feed.counts)}"
        yield len(nodes), f"nodes: {dict(states)}"
        yield sum(len(each.after) for each in nodes), "edges"
        yield sum(len(each.attempts) for each in nodes), "executions"
        yield from report.hits(self._fleet, self._operators)


@dataclass(frozen=True)
class Shape:
    """The shape of a node: its number, which is its name, and the numbers of its upstream nodes."""

    number: int
    how: str
    after: tuple[int, ...]
    runs_anyhow: bool

    @property
    def name(self):
        return f"node-{self.number}"


def drawn(number, source):
    """Return the random shape of a node, whose upstream nodes have smaller numbers."""
    count = source.choices([*UPSTREAMS], [*UPSTREAMS.values()])[0]
    if source.random() < FANS_IN:
        count = FAN_IN
    # Rather the last ones, so that there are long ways.
    ahead = range(max(0, number - 12), number) if count < FAN_IN else range(number)
    after = tuple(sorted(source.sample(ahead, min(count, len(ahead)))))
    how = source.choices([*HOWS], [*HOWS.values()])[0]
    return Shape(number, how, after, bool(after) and source.random() < RUNS_ANYHOW)


class GraphFeed(Background):
    """Submits graphs until their number reaches a limit; ``shapes`` and ``fates`` are by name."""

    def __init__(self, seed, path, most):
        super().__init__("graphs", seed)
        self._path = str(path)
        self._most = most
        self.shapes, self.fates = {}, {}

    @property
    def counts(self):
        return Counter(fate.value for fate in self.fates.values())

    def _turn(self):
        if len(self.shapes) >= self._most or Task.objects.count() > BACKLOG:
            return
        name = f"graph-{len(self.shapes)}"
        self.shapes[name] = [drawn(number, self._random) for number in range(NODES)]
        # Nobody knows what became of it if the answer does not come.
        self.fates[name] = Fate.UNKNOWN
        self._submit(name)
        self.fates[name] = Fate.COMMITTED

    def _submit(self, name):
        """Submit a graph in one transaction."""
        type, nodes = registry.get(TYPE), {}
        with Submission(name, by="chaos") as graph:
            for shape in self.shapes[name]:
                after = [nodes[number] for number in shape.after]
                nodes[shape.number] = graph.add(
                    type,
                    path=self._path,
                    how=shape.how,
                    # Who runs anyhow may find no result.
                    parts=[] if shape.runs_anyhow else [result(node)["value"] for node in after],
                    after=after,
                    on_failure="run" if shape.runs_anyhow else "stop",
                    name=shape.name,
                )

    def broken(self):
        """Yield a sentence for each graph that is incomplete or was lost."""
        for name, fate in self.fates.items():
            count = Instance.objects.filter(node__graph__name=name).count()
            if count != NODES and (count or fate is Fate.COMMITTED):
                yield f"{name}, {fate.value}, has {count} nodes"
        if self.counts[Fate.COMMITTED.value] < self._most / 10:
            yield f"the run was to be rougher: no more than {dict(self.counts)}"


class GraphOperators(Calling):
    """Cancels and redrives nodes and whole graphs."""

    verbs = {"cancel": 4, "redrive": 1, "cancel_all": 1, "go_on": 3}
    refusals = (IllegalTransition, UnknownInstance)

    def _cancel(self):
        live = Instance.objects.filter(node__isnull=False, task__isnull=False)
        queue.cancel(self._one_of(live.order_by("pk")), by=WHO)

    def _redrive(self):
        failed = Instance.objects.filter(node__isnull=False, state=State.FAILED)
        cancelled = failed.filter(reason=Reason.CANCELLED)
        queue.redrive(self._one_of(cancelled.order_by("-pk")), by=WHO)

    def _cancel_all(self):
        live = Graph.objects.filter(ended=None)
        cancel_graph(self._one_of(live.order_by("-pk")), by=WHO)

    def _go_on(self):
        some = Graph.objects.filter(nodes__instance__reason=Reason.CANCELLED).distinct()
        redrive_graph(self._one_of(some.order_by("-pk")), by=WHO)
