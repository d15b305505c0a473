"""Redriving nodes: locking what they wait for, and recounting their unsatisfied edges."""

from collections import defaultdict
from graphlib import TopologicalSorter

from django.db.models import F, Q

from ....commands import CANCEL
from ....graphs.models import Condition, is_satisfied
from ....models import BLOCKED, Edge, Failing, Graph, Instance, Node, Task
from ....states import State

# The value of ``request`` of a graph that is being removed.
REMOVE = "remove"


class Reviving:
    def upstreams(self, keys):
        """Lock these nodes, their upstream nodes and their graphs; returns :class:`Upstreams`."""
        nodes = list(self.rows(Node).filter(pk__in=keys))
        if not nodes:
            return Upstreams(self.rows, {}, {}, {}, set(), {})
        graphs = {node.pk: node.graph_id for node in nodes}
        locked = self.rows(Graph).select_for_update(no_key=True).filter(pk__in=graphs.values())
        of_node = {graph.pk: graph for graph in locked.order_by("pk")}
        closed = {node.pk for node in nodes if _is_closed(node, of_node.get(node.graph_id))}
        edges = defaultdict(list)
        found = self.rows(Edge).filter(downstream__in=graphs)
        for key, upstream, on in found.values_list("downstream_id", "upstream_id", "on"):
            edges[key].append((upstream, on))
        upstreams = {upstream for own in edges.values() for upstream, _ in own}
        self.lock(upstreams | graphs.keys())
        # Read after the locks: no upstream node can end between this and the commit.
        states = dict(self.rows(Instance).filter(pk__in=upstreams).values_list("pk", "state"))
        not_before = {node.pk: node.not_before for node in nodes}
        return Upstreams(self.rows, graphs, edges, states, closed, not_before)


def _is_closed(node, graph):
    """Return whether a node cannot be redriven: its graph is being removed, or was undone.

    After an undo, only the nodes that undo others can be redriven.
    """
    if graph is None or graph.request == REMOVE:
        return True
    return graph.undone is not None and node.undoes is None


class Upstreams:
    """Facts for a redrive of nodes: their graphs, their edges, and the states of upstream nodes.

    The nodes in ``closed`` cannot be redriven. Nodes that are redriven together have to be redriven
    in graph order: see :meth:`in_order`.
    """

    def __init__(self, rows, graphs, edges, states, closed, not_before):
        self._rows = rows
        self._graphs = graphs
        self._edges = edges
        self._states = states
        self._closed = closed
        self._not_before = not_before
        self._revived = set()

    def __contains__(self, key):
        return key in self._graphs

    def in_order(self, moves):
        """Return the moves sorted in graph order: upstream nodes first."""
        edges = {
            key: [upstream for upstream, _ in self._edges.get(key, ())] for key in self._graphs
        }
        places = {key: place for place, key in enumerate(TopologicalSorter(edges).static_order())}
        return sorted(moves, key=lambda move: places.get(move.instance, -1))

    def allow(self, key):
        """Return whether an Instance may be redriven: nothing that it waits for has FAILED."""
        if key in self._closed:
            return False
        return not any(
            self._state(upstream) == State.FAILED and on == Condition.FINISHED
            for upstream, on in self._edges.get(key, ())
        )

    def waits(self, key):
        """Return the number of a node's unsatisfied edges; None if the Instance is no node."""
        return len(self._open(key)) if key in self else None

    def due(self, instance, now):
        """Return when an Instance is due: now, or after its upstream nodes.

        A node that has never begun is not due before its ``run_after``.
        """
        if self.waits(instance.pk):
            return BLOCKED
        not_before = self._not_before.get(instance.pk)
        return now if instance.started or not_before is None else max(now, not_before)

    def revive(self, key):
        """Note that this node is live again."""
        self._revived.add(key)

    def write(self):
        """Reopen the graphs of revived nodes; what waits for any end of theirs waits again."""
        if not self._revived:
            return
        graphs = {self._graphs[key] for key in self._revived}
        self._end_cancelling(graphs)
        self._rows(Graph).filter(pk__in=graphs).update(ended=None)
        self._rows(Failing).filter(pk__in=self._revived).delete()
        again = self._rows(Edge).filter(upstream__in=self._revived, on=Condition.ENDED)
        counts = defaultdict(int)
        for key in again.exclude(downstream__in=self._revived).values_list(
            "downstream_id", flat=True
        ):
            counts[key] += 1
        # What has been freed, and nobody has begun, waits again too.
        free = Q(waits=0, daemon__isnull=True, instance__started__isnull=True)
        locked = self._rows(Task).select_for_update(of=("self",))
        waiting = locked.filter(Q(waits__gt=0) | free, pk__in=counts)
        for task in waiting.order_by("pk"):
            more = {"waits": F("waits") + counts[task.pk], "due_at": BLOCKED}
            self._rows(Task).filter(pk=task.pk).update(**more)

    def _end_cancelling(self, graphs):
        """Let nodes be added again to those cancelled graphs in which nothing else is live."""
        cancelled = self._rows(Graph).filter(pk__in=graphs, request=CANCEL)
        keys = set(cancelled.values_list("pk", flat=True))
        if keys:
            live = self._rows(Node).filter(graph__in=keys, instance__task__isnull=False)
            live = live.exclude(pk__in=self._revived)
            keys -= set(live.values_list("graph", flat=True))
            self._rows(Graph).filter(pk__in=keys).update(request="")

    def _state(self, key):
        return State.ACCEPTED if key in self._revived else self._states.get(key)

    def _open(self, key):
        """Return the upstream nodes that a node must wait for, except those that were removed."""
        return [
            upstream
            for upstream, on in self._edges.get(key, ())
            if (state := self._state(upstream)) is not None and not is_satisfied(on, state)
        ]
