"""Graphs: Instances that wait for the ends of others."""

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
from ..querysets import none_alive
from ..states import LIVE, TERMINAL, State


class Condition(models.TextChoices):
    """The end of the upstream node that satisfies an Edge."""

    FINISHED = "finished", "the upstream node FINISHED; if it fails, the waiting node fails too"
    ENDED = "ended", "the upstream node ended: FINISHED or FAILED"


# The edges that are satisfied, for queries; and the same rule for values.
SATISFIED = Q(upstream__instance__state=State.FINISHED) | Q(
    on=Condition.ENDED, upstream__instance__state__in=TERMINAL
)


def is_satisfied(on: str, state: str | None) -> bool:
    """Whether an Edge with the Condition ``on`` is satisfied by an upstream in this state."""
    return state == State.FINISHED or (on == Condition.ENDED and state in TERMINAL)


# The first and the longest pause between two looks at a graph, in seconds.
_FIRST, _LONGEST = 0.01, 0.5


class Graph(models.Model):
    """Nodes that were submitted together, and nodes that were added to them later.

    ``ended`` is set some time after the last node has ended, and is null again when a node is
    redriven. ``request`` is a request to the whole graph, for example to cancel it. ``undone``
    is the time when the undo of its nodes began, after one had FAILED. A graph is undone once.
    ``undo_pending`` says that some nodes that undo others are still to be written.
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
            # The graphs that are not known to have ended: a chore looks through them.
            models.Index(fields=["id"], condition=Q(ended__isnull=True), name="atp_graph_live"),
            # The graphs that have ended, the oldest first, for retention.
            models.Index(
                fields=["ended"], condition=Q(ended__isnull=False), name="atp_graph_ended"
            ),
            # The graphs for which nodes that undo others are still to be written.
            models.Index(
                fields=["id"], condition=Q(undo_pending=True), name="atp_graph_undo_pending"
            ),
        ]

    def __str__(self) -> str:
        return self.name or str(self.uuid)

    @property
    def state(self) -> str:
        """The state now: waiting, running, finished, failed, undoing or undone. Two queries.

        It is "waiting" or "running" while a node is live, otherwise "failed" if a node has FAILED,
        or "finished". Once the undo has begun it is "undoing", then "undone", unless an undo node
        FAILED.
        """
        self.refresh_from_db(fields=["ended", "request", "undone", "undo_pending"])
        nodes = self._nodes().annotate(is_undo=Q(undoes__isnull=False))
        own = nodes.values_list("instance__state", "is_undo")
        counts: Counter[str] = Counter()
        not_undone = 0
        for state, is_undo, number in own.annotate(n=Count("pk")):
            counts[state] += number
            if is_undo and state == State.FAILED:
                not_undone += number
        return state_of(self, counts, not_undone)

    @property
    def counts(self) -> dict[str, int]:
        """The number of nodes in each state that a node has now. One query."""
        own = self._nodes().values_list("instance__state")
        return {State(state): number for state, number in own.annotate(n=Count("pk"))}

    def results(self) -> dict[str, NodeResult]:
        """Return the results of all nodes that have ended, by name, in one query.

        That of a FAILED node has its ``state`` and ``reason``, and no ``output``.
        """
        ended = self._nodes().filter(instance__state__in=TERMINAL).order_by("pk")
        return {node.name: result_of(node) for node in ended.select_related("instance__response")}

    def result(self, name: str) -> Any:
        """Return the output of the node of this name.

        Raises NoResult if the node has not FINISHED, or if there is no such node.
        """
        node = self._nodes().filter(name=name).select_related("instance__response").first()
        if node is None:
            raise NoResult(f"There is no node {name!r} in the graph {self}.")
        return result_of(node).value

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until no node is live and no node is still to be undone; however the nodes end.

        ``timeout`` is in seconds; None waits for ever. Raises WaitTimeout, and WaitInTransaction
        inside a transaction, which would never see the graph end.
        """
        if connections[settings.DATABASE].in_atomic_block:
            raise WaitInTransaction("wait() inside a transaction would never return: commit first.")
        last = self._nodes().filter(instance__task__isnull=False).values_list("pk", flat=True)
        deadline = None if timeout is None else time.monotonic() + timeout
        pause, known = _FIRST, None
        while True:
            # While the node found last is live, the graph has not ended: look at no other node.
            if known is None or not last.filter(pk=known).exists():
                known = last.first()
            if known is None and not self._is_to_be_undone():
                # The undo nodes may have been written after the first look: look once more.
                known = last.first()
                if known is None:
                    return self
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                told = f"The graph {self} has not ended after {timeout} s."
                raise WaitTimeout(f"{told}{none_alive()}")
            time.sleep(pause if left is None else min(pause, left))
            pause = min(2 * pause, _LONGEST)

    def _is_to_be_undone(self) -> bool:
        """Whether a graph without live nodes will still get nodes that undo others."""
        nodes = self._nodes().filter(graph__undone__isnull=True)
        finished = nodes.filter(undo__isnull=False, instance__state=State.FINISHED)
        if finished.exists() and nodes.filter(instance__state=State.FAILED).exists():
            return True
        # This comes last: a daemon that begins the undo in between sets undone and undo_pending.
        own = Graph.objects.using(settings.DATABASE).filter(pk=self.pk)
        return own.filter(undo_pending=True).exists()

    def _nodes(self) -> models.QuerySet[Node]:
        return Node.objects.using(settings.DATABASE).filter(graph=self.pk).order_by()


def state_of(graph: Graph, counts: Counter[str], not_undone: int) -> str:
    """Return the state of a graph with these numbers of nodes by state: see :attr:`Graph.state`.

    ``not_undone`` is the number of undo nodes that FAILED.
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
    """The output of a FINISHED node, as its handler returned it, or the node's state and reason."""

    name: str
    state: str
    reason: str = ""
    output: Any = None

    @property
    def value(self) -> Any:
        """The output. Raises NoResult if the node has not FINISHED."""
        if self.state != State.FINISHED:
            why = f" ({self.reason})" if self.reason else ""
            raise NoResult(f"There is no result of {self.name!r}: it is {self.state}{why}.")
        return self.output


def result_of(node: Node) -> NodeResult:
    """Return the result of a node; this opens its response."""
    instance = node.instance
    response = getattr(instance, "response", None)
    output = None if response is None else response.value
    return NodeResult(node.name, instance.state, instance.reason, output)


class Node(models.Model):
    """A node ties an Instance to a graph, under a name, or to the line of a schedule.

    The line of a schedule consists of its live Instances: each waits for those before it. A
    node of a line belongs to no graph, and is removed with its edges when its Instance ends.
    The Instance of a node of a graph is removed only with the whole graph.

    Whoever adds an edge from a node locks the node FOR KEY SHARE; whoever ends a node locks it
    FOR UPDATE. So nobody has to lock a Task, which a daemon may hold. ``not_before`` is the
    ``run_after`` of the enqueue. ``undoes`` is the key of the node that this one undoes.
    """

    instance = models.OneToOneField(
        "atp.Instance", models.PROTECT, primary_key=True, related_name="node", db_constraint=False
    )
    graph = models.ForeignKey(
        Graph, models.CASCADE, null=True, related_name="nodes", db_index=False, db_constraint=False
    )
    # Null in a graph, and if the schedule was removed.
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
    """One node waits for the end of another: the downstream for the upstream.

    ``Task.waits`` counts the Edges to a node that are not satisfied.
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
            # Its index also leads from a node that ended to the nodes that wait for it.
            models.UniqueConstraint(fields=["upstream", "downstream"], name="atp_edge_once"),
            models.CheckConstraint(
                condition=~Q(upstream=F("downstream")), name="atp_edge_of_two_nodes"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.downstream_id} waits for {self.upstream_id}"


# The nodes that may be redriven, for queries; in a graph that was undone, only those that undo.
REDRIVABLE = Q(graph__undone__isnull=True) | Q(undoes__isnull=False)


class Failing(models.Model):
    """A node that FAILED, and that has dependants which are yet to be failed."""

    node = models.OneToOneField(Node, models.CASCADE, primary_key=True, db_constraint=False)

    class Meta:
        verbose_name_plural = "failing"

    def __str__(self) -> str:
        return f"dependants of {self.node_id}"


class Undo(models.Model):
    """The plan to undo a node: an Instance to enqueue if the graph fails after the node FINISHED.

    Its inputs are serialized together with those of the node, when the node is written.
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
