"""The models for graphs, in which Instances wait for the ends of other Instances."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Self

from django.db import connections, models
from django.db.models import Count, F, Q

from ..conf import settings
from ..exceptions import NoResult, WaitInTransaction, WaitTimeout
from ..fields import InstantField, uuid7
from ..options import MAX_IDENTIFIER
from ..querysets import no_daemon_suffix
from ..states import LIVE, TERMINAL, State


class Condition(models.TextChoices):
    """The kind of end of the upstream node that satisfies an Edge."""

    FINISHED = "finished", "the upstream node FINISHED; if it fails, the waiting node fails too"
    ENDED = "ended", "the upstream node ended: FINISHED or FAILED"


# The satisfied edges, for queries; is_satisfied() is the same rule for values.
SATISFIED = Q(upstream__instance__state=State.FINISHED) | Q(
    on=Condition.ENDED, upstream__instance__state__in=TERMINAL
)


def is_satisfied(on: str, state: str | None) -> bool:
    """Return True if an upstream node in this state satisfies an Edge with the Condition ``on``."""
    return state == State.FINISHED or (on == Condition.ENDED and state in TERMINAL)


# The nodes that may be redriven, for queries; in a graph that was undone, only the undo nodes.
REDRIVABLE = Q(graph__undone__isnull=True) | Q(undoes__isnull=False)
# The first and the longest pause between two reads of a graph, in seconds.
_FIRST, _LONGEST = 0.01, 0.5


class Graph(models.Model):
    """A graph of nodes that an application submitted together, or that handlers added later.

    A daemon sets ``ended`` some time after the last node has ended; if a node is redriven,
    ``ended`` becomes null again. ``request`` is a command to the whole graph, such as "cancel".
    ``undone`` is the time at which the undo of the graph began, after a node had FAILED. A graph is
    undone at most once. While ``undo_pending`` is True, the store still has to write some of the
    undo nodes.
    """

    uuid = models.UUIDField(default=uuid7, unique=True, editable=False)
    name = models.CharField(max_length=MAX_IDENTIFIER, blank=True, default="")
    created = InstantField()
    created_by = models.CharField(max_length=200, blank=True, default="")
    ended = InstantField(null=True)
    request = models.CharField(max_length=16, blank=True, default="")
    undone = InstantField(null=True)
    undo_pending = models.BooleanField(default=False, db_default=False)

    class Meta:
        ordering = ["-id"]
        indexes = [
            # The graphs without ``ended``: a maintenance job reads them.
            models.Index(fields=["id"], condition=Q(ended__isnull=True), name="atp_graph_live"),
            # The ended graphs, the oldest first, for retention.
            models.Index(
                fields=["ended"], condition=Q(ended__isnull=False), name="atp_graph_ended"
            ),
            # The graphs for which the store has still to write undo nodes.
            models.Index(
                fields=["id"], condition=Q(undo_pending=True), name="atp_graph_undo_pending"
            ),
        ]

    def __str__(self) -> str:
        return self.name or str(self.uuid)

    @property
    def state(self) -> str:
        """The current state: waiting, running, finished, failed, undoing or undone.

        While a node is live, the state is "waiting" if no node is claimed, otherwise "running".
        After that, it is "failed" if a node has FAILED, otherwise "finished". From the start of an
        undo, it is "undoing" and then "undone", unless an undo node has FAILED. Reading the state
        takes two queries.
        """
        self.refresh_from_db(fields=["ended", "request", "undone", "undo_pending"])
        nodes = self._nodes().annotate(is_undo=Q(undoes__isnull=False))
        groups = nodes.values_list("instance__state", "is_undo")
        counts: Counter[str] = Counter()
        not_undone = 0
        for state, is_undo, number in groups.annotate(n=Count("pk")):
            counts[state] += number
            if is_undo and state == State.FAILED:
                not_undone += number
        return graph_state(self, counts, not_undone)

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of nodes by their current state, without states that no node has.

        Reading the numbers takes one query.
        """
        groups = self._nodes().values_list("instance__state")
        return {State(state): number for state, number in groups.annotate(n=Count("pk"))}

    def results(self) -> dict[str, NodeResult]:
        """Return the results of all ended nodes by name, in one query.

        The result of a FAILED node has a ``state`` and a ``reason``, but no ``output``.
        """
        ended = self._nodes().filter(instance__state__in=TERMINAL).order_by("pk")
        return {node.name: result_of(node) for node in ended.select_related("instance__response")}

    def result(self, name: str) -> Any:
        """Return the output of the node with this name.

        Raises NoResult if the node has not FINISHED, or if no node has this name.
        """
        node = self._nodes().filter(name=name).select_related("instance__response").first()
        if node is None:
            raise NoResult(f"There is no node {name!r} in the graph {self}.")
        return result_of(node).value

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until all nodes have ended in any way, and any undo of the graph has ended, too.

        ``timeout`` is in seconds; None waits for ever. Raises WaitTimeout. Raises WaitInTransaction
        inside a transaction, because the transaction would never see the end.
        """
        if connections[settings.DATABASE].in_atomic_block:
            raise WaitInTransaction("wait() inside a transaction would never return. Commit first.")
        live = self._nodes().filter(instance__task__isnull=False).values_list("pk", flat=True)
        deadline = None if timeout is None else time.monotonic() + timeout
        pause, node = _FIRST, None
        while True:
            # While one node is live, the graph has not ended, so do not search for another node.
            if node is None or not live.filter(pk=node).exists():
                node = live.first()
            if node is None and not self._is_to_be_undone():
                # The store may have written undo nodes after the first query: query once more.
                node = live.first()
                if node is None:
                    return self
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise WaitTimeout(
                    f"The graph {self} has not ended after {timeout} s.{no_daemon_suffix()}"
                )
            time.sleep(pause if left is None else min(pause, left))
            pause = min(2 * pause, _LONGEST)

    def _is_to_be_undone(self) -> bool:
        """Return True if a graph without live nodes will still get undo nodes."""
        nodes = self._nodes().filter(graph__undone__isnull=True)
        finished = nodes.filter(undo__isnull=False, instance__state=State.FINISHED)
        if finished.exists() and nodes.filter(instance__state=State.FAILED).exists():
            return True
        # The last query, because a daemon may begin the undo before it: then it sets undone and
        # undo_pending.
        graphs = Graph.objects.using(settings.DATABASE).filter(pk=self.pk)
        return graphs.filter(undo_pending=True).exists()

    def _nodes(self) -> models.QuerySet[Node]:
        return Node.objects.using(settings.DATABASE).filter(graph=self.pk).order_by()


def graph_state(graph: Graph, counts: Counter[str], not_undone: int) -> str:
    """Return the state of a graph, as :attr:`Graph.state` describes it.

    ``counts`` are the numbers of nodes by state, and ``not_undone`` is the number of undo nodes
    that have FAILED.
    """
    live = sum(counts[state] for state in LIVE)
    if graph.undone is not None and not not_undone:
        return "undoing" if live or graph.undo_pending else "undone"
    if live:
        return "waiting" if counts[State.ACCEPTED] == live else "running"
    if graph.undo_pending:
        return "running"
    return "failed" if counts[State.FAILED] else "finished"


@dataclass(frozen=True)
class NodeResult:
    """The state and reason of a node, and the output of its handler if the node has FINISHED."""

    name: str
    state: str
    reason: str = ""
    output: Any = None

    @property
    def value(self) -> Any:
        """The output. Raises NoResult if the node has not FINISHED."""
        if self.state != State.FINISHED:
            why = f" ({self.reason})" if self.reason else ""
            raise NoResult(f"{self.name!r} has no result, because it is {self.state}{why}.")
        return self.output


def result_of(node: Node) -> NodeResult:
    """Return the result of a node. This reads its response, and the file of a large response."""
    instance = node.instance
    response = getattr(instance, "response", None)
    output = None if response is None else response.value
    return NodeResult(node.name, instance.state, instance.reason, output)


class Node(models.Model):
    """A node makes an Instance part of a graph, or part of the line of a schedule.

    The line of a schedule contains its live Instances, each of which waits for all earlier ones. A
    node in a line belongs to no graph; when its Instance ends, the store removes the node and its
    edges. The Instance of a node in a graph is removed only together with the whole graph.

    The store locks a node FOR KEY SHARE before it adds an edge from the node, and FOR UPDATE before
    it ends the node. So the store does not have to lock the Task, which a daemon may hold. ``name``
    is unique in a graph. ``not_before`` is the ``run_after`` of the enqueue. ``undoes`` is the
    primary key of the node that this node undoes.
    """

    instance = models.OneToOneField(
        "atp.Instance", models.PROTECT, primary_key=True, related_name="node", db_constraint=False
    )
    graph = models.ForeignKey(
        Graph, models.CASCADE, null=True, related_name="nodes", db_index=False, db_constraint=False
    )
    # Null for a node of a graph, and after the schedule was removed.
    schedule = models.ForeignKey(
        *("atp.Schedule", models.SET_NULL),
        null=True,
        related_name="line",
        db_index=False,
        db_constraint=False,
    )
    name = models.CharField(max_length=MAX_IDENTIFIER)
    not_before = InstantField(null=True)
    undoes = models.BigIntegerField(null=True)

    class Meta:
        ordering = ["graph_id", "instance_id"]
        indexes = [
            models.Index(fields=["schedule"], condition=Q(graph__isnull=True), name="atp_node_line")
        ]
        constraints = [
            models.UniqueConstraint(fields=["graph", "name"], name="atp_node_name"),
            # A node is undone only once.
            models.UniqueConstraint(
                fields=["undoes"], condition=Q(undoes__isnull=False), name="atp_node_undoes"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Edge(models.Model):
    """An edge makes its downstream node wait for the end of its upstream node.

    ``Task.waits`` is the number of Edges of a node that are not satisfied.
    """

    upstream = models.ForeignKey(
        Node, models.CASCADE, related_name="downstreams", db_index=False, db_constraint=False
    )
    downstream = models.ForeignKey(
        Node, models.CASCADE, related_name="upstreams", db_index=False, db_constraint=False
    )
    on = models.CharField(max_length=8, choices=Condition, default=Condition.FINISHED)

    class Meta:
        indexes = [models.Index(fields=["downstream"], name="atp_edge_of_downstream")]
        constraints = [
            # With its index the store also finds the nodes that wait for an ended node.
            models.UniqueConstraint(fields=["upstream", "downstream"], name="atp_edge_once"),
            models.CheckConstraint(
                condition=~Q(upstream=F("downstream")), name="atp_edge_of_two_nodes"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.downstream_id} waits for {self.upstream_id}"


class Failing(models.Model):
    """A FAILED node, as long as the store still has to fail nodes that depend on it."""

    node = models.OneToOneField(Node, models.CASCADE, primary_key=True, db_constraint=False)

    class Meta:
        verbose_name_plural = "failing"

    def __str__(self) -> str:
        return f"dependants of {self.node_id}"


class Undo(models.Model):
    """The plan to undo a node: an Instance to enqueue if the graph fails after the node FINISHED.

    The application serializes the inputs of this Instance together with those of the node.
    """

    node = models.OneToOneField(Node, models.CASCADE, primary_key=True, db_constraint=False)
    type = models.ForeignKey("atp.Type", models.PROTECT, related_name="+", db_constraint=False)
    format = models.CharField(max_length=8)
    data = models.TextField()
    collection = models.CharField(max_length=MAX_IDENTIFIER, blank=True, default="")
    priority = models.SmallIntegerField(default=0)
    created_by = models.CharField(max_length=200, blank=True, default="")
    own = models.TextField(null=True, help_text="Values for the undo alone; see atp.options.")

    def __str__(self) -> str:
        return f"undo of {self.node_id}"
