"""Undoing the work of a graph's nodes after the graph has failed.

Each node that has FINISHED and has an Undo is undone by a node of its own. All these nodes are
written once, in one transaction, which has locked the graph and found none of its nodes live.
So nobody redrives or adds a node meanwhile.
"""

from collections import Counter

from ....graphs.plan import ENDED, PlannedEdge, PlannedNode
from ....graphs.undoing import undo_order
from ....models import Edge, Graph, Node, Undo
from ....payload.codec import Payload
from ....rows.instance import MAX_IDENTIFIER
from ....states import State
from ...values import Registration, Submission

PREFIX = "undo-"


class Undoing:
    def undo(self, graph, who):
        """Write the nodes that undo others, unless this was done before; returns how many."""
        own = self.rows(Undo).filter(node__graph=graph.pk).order_by()
        if graph.undone is not None or not own.exists():
            return 0
        nodes = self.rows(Node).filter(graph=graph.pk).order_by()
        if not nodes.filter(instance__state=State.FAILED).exists():
            return 0
        finished = own.filter(node__instance__state=State.FINISHED)
        undos = {undo.pk: undo for undo in finished.select_related("node", "type").order_by("pk")}
        if undos:
            edges = self.rows(Edge).filter(downstream__graph=graph.pk).order_by()
            order = undo_order(undos.keys(), list(edges.values_list("upstream", "downstream")))
            self._write_undo(graph, undos, order, who)
            self.rows(Graph).filter(pk=graph.pk).update(undone=self.store.now())
        return len(undos)

    def _write_undo(self, graph, undos, order, who):
        keys = {undo.node.name: key for key, undo in undos.items()}
        names = self._undo_names(graph, undos)
        planned = [
            PlannedNode(names[key], Registration.of(undo.type), _submission(undo), undoes=key)
            for key, undo in undos.items()
        ]
        edges = [PlannedEdge(names[first], names[then], ENDED) for first, then in order]
        waits = Counter(edge.downstream for edge in edges)
        keys |= self._enqueue(planned, waits, who)
        self._write_nodes(graph, planned, keys)
        # An edge from the undone node, which has FINISHED, shows each undo at its place.
        own = [PlannedEdge(undo.node.name, names[key]) for key, undo in undos.items()]
        self._write_edges([*own, *edges], keys)

    def _undo_names(self, graph, undos):
        """Return the names of the new nodes, by the key of the node that each undoes."""
        begun = self.rows(Node).filter(graph=graph.pk, name__startswith=PREFIX)
        taken, names = set(begun.values_list("name", flat=True)), {}
        for key, undo in undos.items():
            name = f"{PREFIX}{undo.node.name}"[:MAX_IDENTIFIER]
            # A node of the graph may have this name already.
            names[key] = name if name not in taken else f"{PREFIX}{key}"
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
