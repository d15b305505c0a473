"""Writing a graph: its Instances, its nodes and its edges in one transaction."""

from collections import Counter, defaultdict

from ....models import BLOCKED, Edge, Graph, Node
from ...values import Registration


class Submitting:
    def submit(self, plan):
        store = self.store
        waits = Counter(edge.downstream for edge in plan.edges)
        with store.atomic():
            graph = self.rows(Graph).create(
                uuid=plan.uuid, name=plan.name, created=store.now(), created_by=plan.created_by
            )
            keys = self._enqueue(plan.nodes, waits, plan.created_by)
            self._write_nodes(graph, plan.nodes, keys)
            self._write_edges(edges_of(plan.edges, keys))
            self._write_undos(plan.nodes, keys)
        return graph

    def _enqueue(self, nodes, waits, who):
        """Enqueue nodes; ``waits`` counts each one's open edges. Returns their keys by name."""
        of_type, keys = defaultdict(list), {}
        for node in nodes:
            of_type[node.registration.identifier].append(node)
        for own in of_type.values():
            submissions = [_waiting(node.submission, waits[node.name]) for node in own]
            registration = Registration.of_all(node.registration for node in own)
            made = self.store.enqueue(registration, submissions, who=who)
            keys.update(zip((node.name for node in own), self._keys_of(made), strict=True))
        return keys

    @staticmethod
    def _keys_of(instances):
        return [instance.pk for instance in instances]

    def _write_nodes(self, graph, nodes, keys):
        self.rows(Node).bulk_create(
            [
                Node(
                    instance_id=keys[node.name],
                    graph=graph,
                    name=node.name,
                    not_before=node.submission.due,
                    undoes=node.undoes,
                )
                for node in nodes
            ],
            batch_size=2000,
        )

    def _write_edges(self, edges):
        """Write edges: triples of the upstream key, the downstream key and the Condition."""
        self.rows(Edge).bulk_create(
            [Edge(upstream_id=up, downstream_id=down, on=on) for up, down, on in edges],
            batch_size=2000,
        )


def edges_of(edges, keys):
    """Return planned edges as triples for the database; ``keys`` are the nodes' keys by name."""
    return [(keys[edge.upstream], keys[edge.downstream], edge.on) for edge in edges]


def _waiting(submission, waits):
    return submission._replace(waits=waits, due=BLOCKED if waits else submission.due)
