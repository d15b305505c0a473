"""Chaos with graphs: faults hit daemons and database, operators cancel and redrive (G17).

Afterwards the handlers' own record is compared with the edges: no node was early, none is stuck,
and no result was lost. The shapes of the graphs follow from the seed.
"""

from collections import Counter
from dataclasses import dataclass, field

from atp import Graph as Submission
from atp import queue, result
from atp.exceptions import IllegalTransition, UnknownInstance
from atp.graphs.models import Condition
from atp.graphs.operations import cancel_graph, redrive_graph
from atp.models import Edge, Failing, Graph, Instance, LogRecord, Node, Task
from atp.operations.registry import registry
from atp.states import TERMINAL, Event, Reason, State

from . import record
from .background import WHO, Background, Calling
from .feed import Fate
from .judge import LOG_SLACK
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
        self._found = gather(self._feed.shapes, self._path)
        return [*self._feed.broken(), *broken_of(self._found)]

    def _counts(self):
        yield Graph.objects.count(), f"graphs, {dict(self._feed.counts)}"
        yield sum(len(each.after) for each in self._found), "edges"
        yield sum(len(each.attempts) for each in self._found), "executions"


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


# The judge. The times of executions come from the handlers' own record.


@dataclass(kw_only=True)
class FoundNode:
    """A node at the end of the run; ``shape`` is what was submitted, ``value`` its result.

    ``after`` maps each upstream node to its Condition. ``log`` has the transitions as tuples of
    time, event and state. ``attempts`` are the Executions.
    """

    uuid: str
    graph: str
    shape: object
    state: str
    reason: str
    attempt: int
    value: int | None = None
    after: list = field(default_factory=list)
    log: list = field(default_factory=list)
    attempts: dict = field(default_factory=dict)

    def __str__(self):
        return f"{self.graph} {self.shape.name} ({self.uuid})"

    def results(self):
        """Return the nodes whose results the node gets."""
        return [node for node, on in self.after if on == Condition.FINISHED]

    def starts(self):
        """Return the times at which the executions of the node began."""
        return [line.time for each in self.attempts.values() for line in each.of("start")]

    def returned(self):
        """Return the time at which the handler returned in the counted attempt, or None."""
        execution = self.attempts.get(self.attempt)
        end = execution and execution.end
        return end.time if end and end.outcome == "returned" else None

    def times(self, *wanted):
        """Return the times of these events, or of the transitions to these states."""
        return [time for time, event, state in self.log if event in wanted or state in wanted]


def gather(shapes, path):
    """Return the nodes; ``shapes`` are the submitted graphs by name."""
    executions = record.read(path)
    rows = Node.objects.select_related("graph", "instance__response").order_by()
    nodes = {row.pk: _found(row, shapes, executions) for row in rows.iterator(2000)}
    columns = "instance_id", "time", "kind", "state"
    transitions = LogRecord.objects.transitions().order_by("id").values_list(*columns)
    for key, time, event, state in transitions.iterator(10_000):
        if key in nodes:
            nodes[key].log.append((time.timestamp(), event, state))
    for upstream, downstream, on in Edge.objects.values_list("upstream_id", "downstream_id", "on"):
        nodes[downstream].after.append((nodes[upstream], on))
    return list(nodes.values())


def _found(row, shapes, executions):
    instance = row.instance
    response = getattr(instance, "response", None)
    return FoundNode(
        uuid=str(instance.uuid),
        graph=row.graph.name,
        shape=shapes[row.graph.name][int(row.name.removeprefix("node-"))],
        state=instance.state,
        reason=instance.reason,
        attempt=instance.attempt,
        value=response.value["value"] if instance.state == State.FINISHED else None,
        attempts=executions.get(str(instance.uuid), {}),
    )


def broken_of(nodes):
    """Yield a sentence for each breach of the promise."""
    for node in nodes:
        for check in (early, stuck, wrong_result, wrong_reason):
            yield from (f"{node} {words}" for words in check(node))


def early(node):
    """No handler may start before the upstream nodes have ended."""
    for other, on in node.after:
        if on == Condition.FINISHED:
            returned = other.returned()
            for time in node.starts():
                if other.state != State.FINISHED or returned is None or returned > time:
                    yield f"started before {other.shape.name} had returned"
        else:
            ends = other.times(*TERMINAL)
            for time in node.times(Event.CLAIM):
                if not any(end <= time + LOG_SLACK for end in ends):
                    yield f"was claimed before {other.shape.name} had ended"


def stuck(node):
    """A node must continue when all its upstream nodes have ended."""
    if node.state not in TERMINAL:
        yield f"is {node.state} at the end"


def wrong_result(node):
    """The value of a node must be one more than the sum of its upstream values."""
    wanted = 1 + sum(other.value or 0 for other in node.results())
    if node.state == State.FINISHED and node.value != wanted:
        yield f"has the result {node.value}, not {wanted}"


def wrong_reason(node):
    """A node fails as UPSTREAM only if an upstream node FAILED, otherwise only on purpose."""
    if node.reason == Reason.UPSTREAM:
        until = max(node.times(State.FAILED)) + LOG_SLACK
        failed = [time for other in node.results() for time in other.times(State.FAILED)]
        if not any(time <= until for time in failed):
            yield "failed as UPSTREAM, and nothing that it waits for had FAILED"
    elif node.reason == Reason.FATAL and node.shape.how != "fails":
        yield "is FATAL, and its handler never is"
    elif node.reason == Reason.ERROR:
        yield "failed with an error"
