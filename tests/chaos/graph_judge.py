"""The judge of graphs: no node was early, none is stuck, and every result arrived (G17).

The times of executions come from the handlers' own record.
"""

from dataclasses import dataclass, field

from atp.graphs.models import Condition
from atp.models import Edge, LogRecord, Node
from atp.states import TERMINAL, Event, Reason, State

from . import record
from .history import SLACK


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
                if not any(end <= time + SLACK for end in ends):
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
        until = max(node.times(State.FAILED)) + SLACK
        failed = [time for other in node.results() for time in other.times(State.FAILED)]
        if not any(time <= until for time in failed):
            yield "failed as UPSTREAM, and nothing that it waits for had FAILED"
    elif node.reason == Reason.FATAL and node.shape.how != "fails":
        yield "is FATAL, and its handler never is"
    elif node.reason == Reason.ERROR:
        yield "failed with an error"
