"""Graphs on PostgreSQL: one statement for many nodes."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ... import messages
from ...graphs.plan import PlannedNode
from ...models import HOOKED, Graph, Instance
from ...states import State
from ..common.enqueueing import Ended
from ..common.graph_ends import GraphEnds as ORMGraphEnds
from ..common.graphs import Graphs as ORMGraphs
from ..values import Enqueued
from .sessions import session_of
from .statements import FEW, array, cursor_of, execute, texts, waiting

if TYPE_CHECKING:
    from . import PostgreSQLStore

_LOCK = """
    SELECT instance_id FROM atp_node WHERE instance_id = ANY (%s::bigint[])
    ORDER BY instance_id FOR UPDATE
"""
_LOCK_ENDS = """
    WITH node AS MATERIALIZED (
        SELECT instance_id FROM atp_node WHERE instance_id = ANY (%(keys)s::bigint[])
        ORDER BY instance_id FOR UPDATE
    )
    SELECT instance_id, true FROM node
    UNION ALL
    SELECT instance_id, false FROM atp_task
    WHERE waits = %(hooked)s AND instance_id = ANY (ARRAY(
        SELECT unnest(%(keys)s::bigint[]) EXCEPT SELECT instance_id FROM node
    ))
"""
# In seconds: how long a statement of an addition to a graph may wait, as for a unique name.
_HURRY = 1.0
_LOCK_GRAPH = "SELECT * FROM atp_graph WHERE id = %s FOR {} SKIP LOCKED"
_LOCK_UPSTREAMS = """
    SELECT instance_id FROM atp_node WHERE instance_id = ANY (%s::bigint[])
    ORDER BY instance_id FOR {} SKIP LOCKED
"""
_NODES = """
    INSERT INTO atp_node (instance_id, graph_id, name, not_before, undoes)
    SELECT id, %s, name, to_timestamp(not_before), undoes
    FROM unnest(%s::bigint[], %s::text[], %s::float8[], %s::bigint[])
        AS node (id, name, not_before, undoes)
"""
_EDGES = """
    INSERT INTO atp_edge (upstream_id, downstream_id, "on")
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[])
"""
# LATERAL with OFFSET looks up the edges of each node by the index: a join may read all edges for
# each step of a chain, since the planner expects few steps. LIMIT ends the recursion.
_DOOMED = """
    WITH RECURSIVE doomed (id) AS (
        SELECT unnest(%(keys)s::bigint[])
        UNION
        SELECT dependant.id FROM doomed CROSS JOIN LATERAL (
            SELECT edge.downstream_id AS id
            FROM atp_edge edge
            JOIN atp_task task ON task.instance_id = ANY (ARRAY[edge.downstream_id])
            WHERE edge.upstream_id = ANY (ARRAY[doomed.id])
              AND edge."on" = 'finished' AND task.waits > 0
            OFFSET 0
        ) dependant
    )
    SELECT id FROM doomed WHERE id <> ALL (%(keys)s::bigint[]) LIMIT %(most)s
"""


class Graphs(ORMGraphs):
    store: "PostgreSQLStore"

    def _hurry(self) -> None:
        if len(self.store.connection.savepoint_ids) == 0:
            with cursor_of(self.store.connection) as cursor:
                cursor.execute(waiting("SET LOCAL", _HURRY))

    def _lock_graph(self, key: int, is_alone: bool) -> Graph | None:
        strength = "NO KEY UPDATE" if is_alone else "SHARE"
        found = self.rows(Graph).raw(_LOCK_GRAPH.format(strength), [key])
        return next(iter(found), None)

    def lock_upstreams(self, keys: Collection[int], ends: bool) -> set[int]:
        if not keys:
            return set()
        with cursor_of(self.store.connection) as cursor:
            statement = _LOCK_UPSTREAMS.format("UPDATE" if ends else "KEY SHARE")
            cursor.execute(statement, [array(list(keys))])
            return {key for (key,) in cursor.fetchall()}

    @staticmethod
    def _keys_of(instances: Sequence[Instance]) -> list[int]:
        return instances.keys if isinstance(instances, Enqueued) else ORMGraphs._keys_of(instances)

    def write_nodes(
        self, graph: Graph, nodes: Sequence[PlannedNode], keys: Mapping[str, int]
    ) -> None:
        dues = [node.submission.due for node in nodes]
        with cursor_of(self.store.connection) as cursor:
            cursor.execute(
                _NODES,
                [
                    graph.pk,
                    array([keys[node.name] for node in nodes]),
                    texts([node.name for node in nodes]),
                    array([None if due is None else due.timestamp() for due in dues]),
                    array([node.undoes for node in nodes]),
                ],
            )

    def write_edges(self, edges: Collection[tuple[int, int, str]]) -> None:
        if not edges:
            return
        with cursor_of(self.store.connection) as cursor:
            cursor.execute(
                _EDGES,
                [
                    array([upstream for upstream, _, _ in edges]),
                    array([downstream for _, downstream, _ in edges]),
                    texts([str(on) for _, _, on in edges]),
                ],
            )


class GraphEnds(ORMGraphEnds):
    store: "PostgreSQLStore"

    def lock(self, instances: Collection[int], *, waits: bool = True) -> set[int]:
        session_of(self.store.connection).meets_settled = True
        if not waits:
            return super().lock(instances, waits=False)
        with cursor_of(self.store.connection) as cursor:
            cursor.execute(_LOCK, [array(list(instances))])
            return {key for (key,) in cursor.fetchall()}

    def lock_ends(self, instances: Collection[int], *, is_all: bool) -> tuple[set[int], set[int]]:
        """Lock those of these Instances that are nodes.

        Returns the keys of the nodes, and of other Instances with hooks. ``is_all`` says that no
        other Instances end in this transaction.
        """
        with cursor_of(self.store.connection) as cursor:
            cursor.execute(_LOCK_ENDS, {"keys": array(list(instances)), "hooked": HOOKED})
            found = dict(cursor.fetchall())
        if found or is_all:
            session_of(self.store.connection).meets_settled = bool(found)
        hooked = {key for key, is_node in found.items() if not is_node}
        return found.keys() - hooked, hooked

    def expects_settled(self) -> bool:
        """Return whether this connection last recorded nodes, or Instances with hooks.

        Most batches have none; then nothing is looked up for them.
        """
        connection = self.store.connection
        return connection.connection is not None and session_of(connection).meets_settled

    def satisfy(self, ended: Mapping[int, State], who: str) -> set[int]:
        parameters = {
            "instances": array(list(ended)),
            "finished": [state == State.FINISHED for state in ended.values()],
            "who": who,
            "message": messages.node_freed(),
        }
        with cursor_of(self.store.connection) as cursor:
            execute(cursor, "settle", parameters, prepared=len(ended) <= FEW)
            freed, doomed, hooked = cursor.fetchone()
        if freed:
            self.store.tell()
        if hooked:
            self.store.hooks.write([Ended(*each) for each in json.loads(hooked)], who)
        return set(doomed or ())

    def _doomed(self, failed: Collection[int], most: int) -> list[int]:
        with cursor_of(self.store.connection) as cursor:
            cursor.execute(_DOOMED, {"keys": array(sorted(failed)), "most": most})
            return [key for (key,) in cursor.fetchall()]
