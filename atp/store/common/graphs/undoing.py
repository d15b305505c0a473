"""Undoing the work of a graph's nodes after the graph has failed.

Each node that has FINISHED and has an Undo is undone by a node of its own. The undo begins in a
transaction that has locked the graph and found none of its nodes live; from then on nobody
redrives or adds a node, so the set of what is to be undone is fixed. The undo nodes are then
written in portions, one transaction each, in the order in which they will run: each portion knows
by ``Node.undoes`` what others have written. Those that are written may run, and end, meanwhile.
"""

from collections import Counter, defaultdict
from graphlib import TopologicalSorter

from django.db import DatabaseError
from django.db.models.functions import Length

from ....commands import CANCEL
from ....graphs.models import Condition
from ....graphs.plan import PlannedNode, undo_order
from ....models import Edge, Graph, Instance, Node, Undo
from ....options import MAX_IDENTIFIER
from ....payload.codec import Payload
from ....states import TERMINAL, State
from ...values import Registration, Submission

PREFIX = "undo-"
# The number of undo nodes that one transaction writes, and the length of their inputs at which it
# takes no more.
MOST, LENGTH = 500, 8_000_000
# The number of edges that one call reads in order to find the order, about, and the number of nodes
# whose edges it reads at a time.
EDGES, NODES = 50_000, 1000
# The number of graphs whose order is kept in memory between portions.
KEPT = 8


class Undoing:
    def undo(self, *, limit=MOST, who=""):
        pending = self.rows(Graph).filter(undo_pending=True).order_by("pk")
        graph = pending.filter(pk__gt=self.undoing_mark).first() or pending.first()
        if graph is None:
            self.undo_orders.clear()
            return False
        # The others have their turn first, even if this fails.
        self.undoing_mark = graph.pk
        is_on = self._undo_portion(graph.pk, limit, who)
        return is_on or pending.exclude(pk=graph.pk).exists()

    def _begin_undo(self, graph):
        """Begin to undo a locked graph at rest, unless nothing is to be undone."""
        if graph.undone is not None:
            return False
        nodes = self.rows(Node).filter(graph=graph.pk).order_by()
        finished = self.rows(Undo).filter(
            node__graph=graph.pk, node__instance__state=State.FINISHED
        )
        if not (finished.exists() and nodes.filter(instance__state=State.FAILED).exists()):
            return False
        # A request to cancel was for the nodes that have ended.
        self.rows(Graph).filter(pk=graph.pk).update(
            undone=self.store.now(), undo_pending=True, request=""
        )
        return True

    def _undo_portion(self, key, limit, who):
        """Write up to ``limit`` undo nodes of a graph; returns whether more can be written now."""
        # What was read of the order outlasts a call that fails.
        order = self.undo_orders[key] = self.undo_orders.pop(key, None) or UndoOrder(key)
        for old in list(self.undo_orders)[:-KEPT]:
            del self.undo_orders[old]
        if not order.read(self.rows):
            return True
        graph, done, position = None, 0, 0
        # To write them, it may have to wait for a Type that another session has locked.
        with self.store.unless_locked() as failed:
            locked = self.rows(Graph).select_for_update(skip_locked=True, no_key=True)
            graph = locked.filter(pk=key, undo_pending=True).first()
            if graph is not None:
                done, position = self._undo_next(graph, order, limit, who)
        if graph is None or failed:
            # Another session writes them, or holds them up.
            return False
        order.position = position
        if order.is_over():
            del self.undo_orders[key]
            return False
        return done > 0

    def _undo_next(self, graph, order, limit, who):
        """Write the next undo nodes; returns how many, and up to where all are written."""
        position, missing = order.position, []
        while position < len(order.keys) and not missing:
            some = order.keys[position : position + limit]
            written = self._undo_nodes(some)
            missing = [key for key in some if key not in written]
            position += 0 if missing else len(some)
        chosen = self._write_undo(graph, order, self._that_fit(missing), who) if missing else set()
        left = next((key for key in missing if key not in chosen), None)
        if missing:
            position += len(some) if left is None else some.index(left)
        if position == len(order.keys):
            self.rows(Graph).filter(pk=graph.pk).update(undo_pending=False)
        if graph.ended is not None:
            # A daemon of an earlier release has not seen that more is to come.
            self.rows(Graph).filter(pk=graph.pk).update(ended=None)
        return len(chosen), position

    def _that_fit(self, keys):
        """Return the first of these keys whose inputs are not too long for one transaction."""
        lengths = self.rows(Undo).filter(pk__in=keys).annotate(length=Length("data"))
        length_of = dict(lengths.values_list("pk", "length"))
        total = 0
        for count, key in enumerate(keys):
            total += length_of.get(key, 0)
            if total > LENGTH and count:
                return keys[:count]
        return keys

    def _write_undo(self, graph, order, keys, who):
        """Write the undo nodes of those nodes behind which nothing is locked; returns the latter.

        Each waits for undo nodes that were written before, and of these some may have ended.
        """
        before = {first for key in keys for first in order.firsts.get(key, ())}
        written = self._undo_nodes(sorted(before.difference(keys)))
        states = self._lock_and_read(written.values())
        chosen, waits = {}, Counter()
        names = self._undo_names(graph, keys)
        for key in keys:
            firsts = order.firsts.get(key, ())
            if all(first in chosen or written.get(first) in states for first in firsts):
                chosen[key] = names[key]
                waits[names[key]] = sum(
                    first in chosen or states[written[first]] not in TERMINAL for first in firsts
                )
        undos = self.rows(Undo).select_related("type").in_bulk(list(chosen))
        planned = [
            PlannedNode(name, Registration.of(undos[key].type), _submission(undos[key]), undoes=key)
            for key, name in chosen.items()
        ]
        made = self._enqueue(planned, waits, who)
        self._write_nodes(graph, planned, made)
        written |= {key: made[name] for key, name in chosen.items()}
        # An edge from the undone node, which has FINISHED, shows each undo at its place.
        own = [(key, written[key], Condition.FINISHED) for key in chosen]
        self._write_edges(
            own
            + [
                (written[first], written[key], Condition.ENDED)
                for key in chosen
                for first in order.firsts.get(key, ())
            ]
        )
        if graph.request == CANCEL:
            self.store.cancel([written[key] for key in chosen], who=who)
        return chosen.keys()

    def _undo_nodes(self, keys):
        """Return the keys of the undo nodes that exist, by the key of the node that each undoes."""
        found = {}
        for start in range(0, len(keys), NODES):
            some = self.rows(Node).filter(undoes__in=keys[start : start + NODES])
            found.update(some.values_list("undoes", "pk"))
        return found

    def _lock_and_read(self, keys):
        """Lock nodes so that they cannot end; returns the states of those that could be locked."""
        ordered, states = sorted(keys), {}
        for start in range(0, len(ordered), NODES):
            locked = self._lock_upstreams(set(ordered[start : start + NODES]), False)
            states.update(self.rows(Instance).filter(pk__in=locked).values_list("pk", "state"))
        return states

    def _undo_names(self, graph, keys):
        """Return the names of the new nodes, by the key of the node that each undoes."""
        nodes = self.rows(Node).filter(pk__in=keys).values_list("pk", "name")
        wanted = {key: f"{PREFIX}{name}"[:MAX_IDENTIFIER] for key, name in nodes}
        there = self.rows(Node).filter(graph=graph.pk, name__in=wanted.values())
        taken, names = set(there.values_list("name", flat=True)), {}
        for key in keys:
            # A node of the graph may have this name already.
            names[key] = wanted[key] if wanted[key] not in taken else f"{PREFIX}{key}"
            taken.add(names[key])
        return names

    def _write_undos(self, nodes, keys):
        """Store the Undo of each of these nodes that has one, for the case that the graph fails."""
        types = {}
        for node in nodes:
            if node.undo is not None and node.undo.registration.identifier not in types:
                # The Type stays registered until this commits; from then on it is in use.
                types[node.undo.registration.identifier] = self.store.type_id(
                    node.undo.registration
                )
        self.rows(Undo).bulk_create(
            [
                Undo(
                    node_id=keys[node.name],
                    type_id=types[node.undo.registration.identifier],
                    format=node.undo.submission.inputs.format,
                    data=node.undo.submission.inputs.data,
                    collection=node.undo.submission.collection,
                    priority=node.undo.submission.priority,
                    created_by=node.undo.submission.created_by,
                    own=node.undo.submission.own,
                )
                for node in nodes
                if node.undo is not None
            ],
            batch_size=2000,
        )


def _submission(undo):
    return Submission(
        inputs=Payload(undo.format, undo.data),
        collection=undo.collection,
        priority=undo.priority,
        created_by=undo.created_by,
        own=undo.own,
    )


class UndoOrder:
    """The order in which the nodes of one graph are undone, read in pieces.

    ``keys`` are the undone nodes: each comes after its ``firsts``, those that are undone before it.
    All before ``position`` have undo nodes. Once the undo has begun, the order is the same for all
    daemons.
    """

    def __init__(self, graph):
        self.keys, self.firsts, self.position = None, defaultdict(list), 0
        self._graph = graph
        self._undone = self._nodes = None
        self._edges, self._at, self._piece = [], 0, NODES

    def read(self, rows):
        """Read a piece; returns whether all is read. A piece that fails is read again, halved."""
        if self.keys is not None:
            return True
        if self._nodes is None:
            undos = rows(Undo).filter(node__graph=self._graph, node__instance__state=State.FINISHED)
            self._undone = list(undos.order_by("pk").values_list("pk", flat=True))
            nodes = rows(Node).filter(graph=self._graph, undoes__isnull=True).order_by("pk")
            self._nodes = list(nodes.values_list("pk", flat=True))
        count = len(self._edges)
        while self._at < len(self._nodes):
            if len(self._edges) - count >= EDGES:
                return False
            self._read_edges(rows)
        if len(self._edges) - count >= EDGES:
            # To sort so many takes a call of its own.
            return False
        self._sort()
        return True

    def is_over(self):
        return self.position >= len(self.keys)

    def _read_edges(self, rows):
        some = self._nodes[self._at : self._at + self._piece]
        try:
            edges = rows(Edge).filter(downstream__in=some).order_by("downstream", "upstream")
            self._edges += edges.values_list("upstream", "downstream")
        except DatabaseError:
            self._piece = max(1, self._piece // 2)
            raise
        self._at += len(some)

    def _sort(self):
        for first, then in undo_order(self._undone, self._edges):
            self.firsts[then].append(first)
        sorter = TopologicalSorter({key: self.firsts.get(key, ()) for key in self._undone})
        self.keys = list(sorter.static_order())
        self._undone, self._nodes, self._edges = None, (), []
