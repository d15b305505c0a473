"""Adding nodes to a graph while one of its nodes runs: its handler adds them (G17).

The graph is locked first, then the upstream nodes of the new edges, then the Task of the adder,
then the nodes that are to wait for the new ones. No lock is waited for: if another session has
one of them, nothing is written, and the caller tries again.
"""

from collections import Counter

from django.db import IntegrityError, transaction
from django.db.models import F

from ....commands import CANCEL
from ....exceptions import GraphClosed, InvalidGraph
from ....graphs.models import Condition, is_satisfied
from ....graphs.plan import PlannedEdge
from ....models import Edge, Graph, Instance, Node, Task
from ....states import State
from ..steps import holds
from .checking import Checking
from .reviving import REMOVE
from .submitting import edges_of

# How often an addition tries again when others take its names meanwhile.
ATTEMPTS = 5
CHUNK = 1000


class Extending(Checking):
    def extend(self, addition, *, who="", ends=False):
        for remaining in reversed(range(ATTEMPTS)):
            try:
                with self.store.atomic():
                    self._hurry()
                    keys = self._extend(addition, who, ends)
                    if keys is None:
                        # Keep no lock while the caller waits.
                        transaction.set_rollback(True, using=self.store.alias)
                    return keys
            except IntegrityError:
                # Since we looked, another session added a node with one of these names.
                if not remaining:
                    raise
        raise AssertionError("unreachable")

    def _extend(self, addition, who, ends):
        own = self.rows(Node).filter(pk=addition.instance, graph__isnull=False).first()
        if own is None:
            raise InvalidGraph("This Instance is in no graph: nothing can be added to it.")
        found = self._found(own.graph_id, addition)
        new = [node for node in addition.nodes if node.name not in found]
        names = {node.name for node in new}
        edges = [edge for edge in addition.edges if edge.downstream in names]
        before = [(name, other) for name, other in addition.before if name in names]
        upstreams = {found[edge.upstream] for edge in edges if edge.upstream not in names}
        # With such edges two concurrent additions could close a circle that neither sees.
        is_alone = bool(before and upstreams - {own.pk})
        graph = self._lock_graph(own.graph_id, is_alone)
        if graph is None:
            return None
        locked = upstreams | {own.pk} if ends else upstreams
        if self._lock_upstreams(locked, ends) != locked:
            return None
        if not holds(self.store, addition.instance, addition.attempt):
            return None
        if new:
            _check_open(graph)
            self._check_before(own.pk, found, edges, before, upstreams)
            if not self._lock_waiting({name: found[name] for _, name in before}):
                return None
            self._check_results(new, found, edges)
            pairs = [*((edge.upstream, edge.downstream) for edge in edges), *before]
            self._check_size(graph, new, found, pairs)
            self._write(graph, new, found, edges, before, who)
        return {node.name: found[node.name] for node in addition.nodes}

    def _found(self, graph, addition):
        """Return the keys of the named nodes that exist, by name. Raises InvalidGraph."""
        names, rows = sorted(addition.names), {}
        for start in range(0, len(names), CHUNK):
            some = self.rows(Node).filter(graph=graph, name__in=names[start : start + CHUNK])
            found = some.values_list("name", "pk", "instance__type__identifier")
            rows |= {name: (pk, type) for name, pk, type in found}
        planned = {node.name: node.registration.identifier for node in addition.nodes}
        for name in names:
            if name not in rows and name not in planned:
                raise InvalidGraph(f"There is no node {name!r}.", parameter="after")
            if name in rows and planned.get(name, rows[name][1]) != rows[name][1]:
                raise InvalidGraph(
                    f"There is a node {name!r} already, and it is of {rows[name][1]!r}, not of "
                    f"{planned[name]!r}.",
                    parameter="name",
                )
        return {name: pk for name, (pk, _) in rows.items()}

    def _hurry(self):
        """Limit how long each statement of this transaction waits for locks. Here: do nothing."""

    def _lock_graph(self, key, is_alone):
        """Lock a graph against cancelling and other requests; None if another session has it."""
        locked = self.rows(Graph).select_for_update(skip_locked=True, no_key=True)
        return locked.filter(pk=key).first()

    def _lock_upstreams(self, keys, ends):
        """Lock nodes so that they cannot end; returns the keys of those that could be locked."""
        nodes = self.rows(Node).filter(pk__in=keys).order_by("pk")
        return set(nodes.select_for_update(skip_locked=True).values_list("pk", flat=True))

    def _lock_waiting(self, keys):
        """Lock the Tasks of these waiting nodes; False if another session has one.

        Raises GraphClosed if a node waits no more.
        """
        tasks = self.rows(Task).filter(pk__in=keys.values(), waits__gt=0).order_by("pk")
        tasks = tasks.values_list("pk", flat=True)
        there = set(tasks)
        for name, key in keys.items():
            if key not in there:
                raise GraphClosed(f"{name!r} waits no more: nothing can be added before it.")
        return set(tasks.select_for_update(skip_locked=True)) == there

    def _write(self, graph, new, found, edges, before, who):
        ends = self.rows(Instance).filter(pk__in={found.get(edge.upstream) for edge in edges})
        states = dict(ends.values_list("pk", "state"))
        waits, doomed = Counter(), set()
        for edge in edges:
            state = states.get(found.get(edge.upstream))
            if not is_satisfied(edge.on, state):
                waits[edge.downstream] += 1
                if state == State.FAILED:
                    doomed.add(found[edge.upstream])
        found |= self._enqueue(new, waits, who)
        self._write_nodes(graph, new, found)
        self._write_undos(new, found)
        on = self._conditions({found[name] for _, name in before})
        more = [PlannedEdge(name, other, on[found[other]]) for name, other in before]
        self._write_edges(edges_of([*edges, *more], found))
        for other, count in Counter(other for _, other in before).items():
            waiting = self.rows(Task).filter(pk=found[other])
            waiting.update(waits=F("waits") + count)
        if doomed:
            self.fail_behind(doomed, who)

    def _conditions(self, keys):
        """Return the condition of new edges to these nodes, by key.

        It is FINISHED for a node that has such an edge already; for the others it is ENDED.
        """
        edges = self.rows(Edge).filter(downstream__in=keys).order_by()
        on = dict.fromkeys(keys, Condition.ENDED)
        for key, condition in edges.values_list("downstream", "on").distinct():
            if condition == Condition.FINISHED:
                on[key] = Condition.FINISHED
        return on


def _check_open(graph):
    if graph.ended is not None:
        raise GraphClosed(f"The graph {graph} has ended: nothing can be added to it.")
    if graph.undone is not None:
        raise GraphClosed(f"The graph {graph} is being undone: nothing can be added to it.")
    if graph.request in (CANCEL, REMOVE):
        asked = "cancelled" if graph.request == CANCEL else "removed"
        raise GraphClosed(f"The graph {graph} is being {asked}: nothing can be added to it.")
