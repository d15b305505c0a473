"""Undoing what nodes of a graph have done, after it has failed.

Each node that has FINISHED and has an Undo is undone by a node of its own. All of these are
written together, once, in the transaction that has locked the graph and found no live node of
it: nobody redrives a node or adds one meanwhile.
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
        """Write the nodes that undo others, unless they were; returns how many."""
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
        # Each behind the node that it undoes, which has FINISHED: so it is seen where it belongs.
        own = [PlannedEdge(undo.node.name, names[key]) for key, undo in undos.items()]
        self._write_edges([*own, *edges], keys)

    def _undo_names(self, graph, undos):
        """Return names by the keys of the nodes that are undone."""
        begun = self.rows(Node).filter(graph=graph.pk, name__startswith=PREFIX)
        taken, names = set(begun.values_list("name", flat=True)), {}
        for key, undo in undos.items():
            name = f"{PREFIX}{undo.node.name}"[:MAX_IDENTIFIER]
            # Somebody may have called a node so.
            names[key] = name if name not in taken else f"{PREFIX}{key}"
            taken.add(names[key])
        return names

    def _write_undos(self, nodes, keys):
        """Keep what undoes these nodes, if the graph fails."""
        types = {}
        for node in nodes:
            if node.undo is not None and node.undo.registration.identifier not in types:
                # Nobody unregisters it until this is committed, and then it is in use.
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
