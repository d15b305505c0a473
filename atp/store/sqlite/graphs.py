"""Graphs on SQLite: one statement for many nodes."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ... import messages
from ...graphs.plan import PlannedNode
from ...models import Graph, Kind, Task
from ..common.graph_ends import GraphEnds as ORMGraphEnds
from ..common.graphs import Graphs as ORMGraphs
from .sessions import as_json, as_text

if TYPE_CHECKING:
    from . import SQLiteStore

_NODES = """
    INSERT INTO atp_node (instance_id, graph_id, name, not_before, undoes)
    VALUES (%s, %s, %s, %s, %s)
"""
_EDGES = 'INSERT INTO atp_edge (upstream_id, downstream_id, "on") VALUES (%s, %s, %s)'
_FREE = """
    UPDATE atp_task SET waits = 0, due_at = max(%(now)s, coalesce(
        (SELECT not_before FROM atp_node WHERE instance_id = atp_task.instance_id), %(now)s
    ))
    WHERE instance_id IN (SELECT value FROM json_each(%(keys)s))
"""
# CROSS JOIN keeps this order: from a node along its edges, never through all Tasks.
_DOOMED = """
    WITH RECURSIVE doomed (id) AS (
        SELECT edge.downstream_id FROM json_each(%(keys)s) failed
        CROSS JOIN atp_edge edge ON edge.upstream_id = failed.value AND edge."on" = 'finished'
        CROSS JOIN atp_task task ON task.instance_id = edge.downstream_id AND task.waits > 0
        UNION
        SELECT edge.downstream_id FROM doomed
        CROSS JOIN atp_edge edge ON edge.upstream_id = doomed.id AND edge."on" = 'finished'
        CROSS JOIN atp_task task ON task.instance_id = edge.downstream_id AND task.waits > 0
    )
    SELECT id FROM doomed LIMIT %(most)s
"""
_LOG = """
    INSERT INTO atp_logrecord
        (instance_id, subject, time, kind, state, attempt, level, who, message)
    SELECT instance_id, '', %(now)s, %(kind)s, 'ACCEPTED', attempt, 20, %(who)s, %(message)s
    FROM atp_task WHERE instance_id IN (SELECT value FROM json_each(%(keys)s))
    ORDER BY instance_id
"""


class Graphs(ORMGraphs):
    store: "SQLiteStore"

    def write_nodes(
        self, graph: Graph, nodes: Iterable[PlannedNode], keys: Mapping[str, int]
    ) -> None:
        rows = [
            (keys[n.name], graph.pk, n.name, as_text(n.submission.due), n.undoes) for n in nodes
        ]
        self.store.run_many(_NODES, rows)

    def write_edges(self, edges: Iterable[tuple[int, int, str]]) -> None:
        self.store.run_many(_EDGES, [(up, down, str(on)) for up, down, on in edges])


class GraphEnds(ORMGraphEnds):
    store: "SQLiteStore"

    def _doomed(self, failed: Iterable[int], most: int) -> list[int]:
        found = self.store.select(_DOOMED, keys=as_json(sorted(failed)), most=most)
        return [key for (key,) in found]

    def _free(self, tasks: Iterable[Task], who: str) -> None:
        given = {"keys": as_json([task.pk for task in tasks]), "now": as_text(self.store.now())}
        self.store.run(_FREE, **given)
        said = {"kind": Kind.FREED.value, "who": who, "message": messages.node_freed()}
        self.store.run(_LOG, **given, **said)
        self.store.tell()
