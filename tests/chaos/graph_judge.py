"""The judge of graphs: nothing was early, nothing is stuck, and every result arrived (G17).

The times of executions are those of the handlers' own record.
"""

from dataclasses import dataclass, field

from atp.models import Edge, LogRecord, Node
from atp.rows.graph import Condition
from atp.states import TERMINAL, Event, Reason, State

from . import history, record


@dataclass(frozen=True)
class FoundNode:
    """A node as it is at the end. ``shape`` is what was submitted, ``value`` its result."""

    uuid: str
    graph: str
    shape: object
    state: str
    reason: str
    attempt: int
    value: int | None = None

    def __str__(self):
        return f"{self.graph} {self.shape.name} ({self.uuid})"


@dataclass
class GraphEvidence:
    """All nodes, edges and transitions by the keys of Instances; executions by their uuids."""

    nodes: dict
    edges: list = field(default_factory=list)
    log: dict = field(default_factory=dict)
    executions: dict = field(default_factory=dict)

    def starts(self, key):
        """Return the first lines of each execution of a node."""
        attempts = self.executions.get(self.nodes[key].uuid, {})
        return [line for each in attempts.values() for line in each.of("start")]

    def returned(self, key):
        """Return when the handler of a node returned in the attempt that counts; or None."""
        node = self.nodes[key]
        execution = self.executions.get(node.uuid, {}).get(node.attempt)
        end = execution and execution.end
        return end.time if end and end.outcome == "returned" else None

    def times(self, key, *, event=None, state=None):
        """Return when this happened to a node, by the database's clock."""
        return [
            time
            for time, own_event, own_state in self.log.get(key, ())
            if (event is None or own_event == event) and (state is None or own_state == state)
        ]


def gather(shapes, path):
    """Return :class:`GraphEvidence`; ``shapes`` are the graphs that were submitted, by name."""
    rows = Node.objects.select_related("graph", "instance__response").order_by()
    nodes = {row.pk: _found(row, shapes) for row in rows.iterator(2000)}
    log = {}
    transitions = LogRecord.objects.transitions().order_by("id")
    for key, time, event, state in transitions.values_list(
        "instance_id", "time", "kind", "state"
    ).iterator(10_000):
        if key in nodes:
            log.setdefault(key, []).append((time.timestamp(), event, state))
    return GraphEvidence(
        nodes=nodes,
        edges=list(Edge.objects.values_list("upstream_id", "downstream_id", "on")),
        log=log,
        executions=record.executions(record.read(path)),
    )


def _found(row, shapes):
    response = getattr(row.instance, "response", None)
    return FoundNode(
        uuid=str(row.instance.uuid),
        graph=row.graph.name,
        shape=shapes[row.graph.name][int(row.name.removeprefix("node-"))],
        state=row.instance.state,
        reason=row.instance.reason,
        attempt=row.instance.attempt,
        value=response.value["value"] if row.instance.state == State.FINISHED else None,
    )


def broken_of(evidence):
    """Yield sentences about whatever breaks the promise."""
    for check in (early, stuck, wrong_results, wrong_reasons):
        yield from check(evidence)


def early(evidence):
    """No handler starts before the end of each node that it waits for."""
    for upstream, downstream, on in evidence.edges:
        node, other = evidence.nodes[downstream], evidence.nodes[upstream]
        if on == Condition.FINISHED:
            returned = evidence.returned(upstream)
            for line in evidence.starts(downstream):
                if other.state != State.FINISHED or returned is None or returned > line.time:
                    yield f"{node} started before {other.shape.name} had returned"
        else:
            ends = [time for state in TERMINAL for time in evidence.times(upstream, state=state)]
            for time in evidence.times(downstream, event=Event.CLAIM):
                if not any(end <= time + history.SLACK for end in ends):
                    yield f"{node} was claimed before {other.shape.name} had ended"


def stuck(evidence):
    """Whoever waits for what has ended goes on."""
    for node in evidence.nodes.values():
        if node.state not in TERMINAL:
            yield f"{node} is {node.state} at the end"


def wrong_results(evidence):
    """Each value is one more than those of the nodes that it waited for: no fan-in lost any."""
    sums = {}
    for upstream, downstream, on in evidence.edges:
        if on == Condition.FINISHED:
            value = evidence.nodes[upstream].value
            sums[downstream] = sums.get(downstream, 0) + (value or 0)
    for key, node in evidence.nodes.items():
        if node.state == State.FINISHED and node.value != 1 + sums.get(key, 0):
            yield f"{node} has the result {node.value}, not {1 + sums.get(key, 0)}"


def wrong_reasons(evidence):
    """Who fails as UPSTREAM waits for what FAILED; who fails by itself was to."""
    upstreams = {}
    for upstream, downstream, on in evidence.edges:
        if on == Condition.FINISHED:
            upstreams.setdefault(downstream, []).append(upstream)
    for key, node in evidence.nodes.items():
        if node.reason == Reason.UPSTREAM:
            until = max(evidence.times(key, state=State.FAILED)) + history.SLACK
            failed = [
                time
                for upstream in upstreams.get(key, ())
                for time in evidence.times(upstream, state=State.FAILED)
            ]
            if not any(time <= until for time in failed):
                yield f"{node} failed as UPSTREAM, and nothing that it waits for had FAILED"
        elif node.reason == Reason.FATAL and node.shape.how != "fails":
            yield f"{node} is FATAL, and its handler never is"
        elif node.reason == Reason.ERROR:
            yield f"{node} failed with an error"
