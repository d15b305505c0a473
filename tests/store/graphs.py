"""Graphs under test: how they are written, and what must always be true of them (G17)."""

from collections import defaultdict
from itertools import pairwise
from uuid import uuid4

from atp.graphs.plan import GraphPlan, PlannedEdge, PlannedNode, PlannedUndo
from atp.models import BLOCKED, Edge, Failing, Instance, Node, Task
from atp.payload.codec import Payload
from atp.states import TERMINAL, Event, Reason, State
from atp.store.values import Submission

from .ends import finish
from .world import ONE, registration


def planned(node, type=ONE, undo=None, results=(), **options):
    submission = Submission(inputs=Payload("json", "{}"), **options)
    return PlannedNode(node, registration(type), submission, results, undo=undo)


def plan(nodes, edges, *, types=None, options=None, undos=()):
    """Return a GraphPlan; ``nodes`` are names, ``edges`` triples of upstream, downstream, on.

    ``types`` are the Types of nodes that are not of ONE, and ``options`` what is submitted.
    ``undos`` are the nodes that have an undo, of ONE.
    """
    types, own = types or {}, options or {}
    undo = PlannedUndo(registration(ONE), Submission(inputs=Payload("json", "{}")))
    undone = dict.fromkeys(undos, undo)
    return GraphPlan(
        uuid=uuid4(),
        name="graph",
        created_by="tests",
        nodes=[
            planned(node, types.get(node, ONE), undo=undone.get(node), **own.get(node, {}))
            for node in nodes
        ],
        edges=[PlannedEdge(*edge) for edge in edges],
    ).checked()


def submit(world, nodes, edges, **more):
    """Write a graph and return the keys of its Instances, by name."""
    graph = world.store.graphs.submit(plan(nodes, edges, **more))
    return dict(Node.objects.filter(graph=graph).values_list("name", "pk"))


def chain(world, *nodes, on="finished", **more):
    """Write a chain, each node after the one before; returns the keys in their order."""
    keys = submit(world, nodes, [(*pair, on) for pair in pairwise(nodes)], **more)
    return [keys[node] for node in nodes]


def run(host, *failing):
    """Let all run until nothing is due; returns the names. What has one of these names FAILS."""
    ran = []
    while cases := host.claim():
        names = dict(Node.objects.values_list("pk", "name"))
        for case in cases:
            ran.append(names.get(case.instance))
            (fail if ran[-1] in failing else finish)(host, case)
    return ran


def fail(host, case):
    now = host.world.store.now()
    host.move(case, Event.FAIL, started=now, time=now, reason=Reason.FATAL)


def is_satisfied(on, state):
    """Whether an edge is, by the state at its upper end: in words of its own."""
    return state == State.FINISHED or (on == "ended" and state == State.FAILED)


def check():
    """G17: what waits is counted right, and waits for something that is live, or worked off."""
    nodes = set(Node.objects.values_list("pk", flat=True))
    states = dict(Instance.objects.filter(pk__in=nodes).values_list("pk", "state"))
    failing = set(Failing.objects.values_list("pk", flat=True))
    open_edges = defaultdict(list)
    for upstream, downstream, on in Edge.objects.values_list("upstream", "downstream", "on"):
        if not is_satisfied(on, states[upstream]):
            open_edges[downstream].append(upstream)
    for task in Task.objects.all():
        assert (task.waits is not None) == (task.pk in nodes), task.pk
        if task.waits == 0 and task.attempt == 0:
            assert not open_edges[task.pk]
        if task.waits:
            assert task.waits == len(open_edges[task.pk])
            assert task.due_at == BLOCKED
            assert states[task.pk] == State.ACCEPTED
            for upstream in open_edges[task.pk]:
                assert states[upstream] not in TERMINAL or upstream in failing
