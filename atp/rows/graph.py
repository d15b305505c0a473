"""Graphs: Instances that wait for the ends of others."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from ..states import TERMINAL, State
from ..words.options import MAX_IDENTIFIER
from ..words.uuids import uuid7
from .fields import InstantField
from .instance import Instance
from .schedule import Schedule
from .type import Type


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


class Graph(models.Model):
    """Nodes that were submitted together, and nodes that were added to them later.

    ``ended`` is set some time after the last node has ended, and is null again when a node is
    redriven. ``request`` is a request to the whole graph, for example to cancel it. ``undone``
    is the time when the undo of its nodes began, after one had FAILED. A graph is undone once.
    """

    uuid = models.UUIDField(default=uuid7, unique=True, editable=False)
    name = models.CharField(max_length=MAX_IDENTIFIER, blank=True, default="")
    created = InstantField()
    created_by = models.CharField(max_length=200, blank=True, default="")
    ended = InstantField(null=True)
    request = models.CharField(max_length=16, blank=True, default="")
    undone = InstantField(null=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            # The graphs that are not known to have ended: a chore looks through them.
            models.Index(fields=["id"], condition=Q(ended__isnull=True), name="atp_graph_live"),
            # The graphs that have ended, the oldest first, for retention.
            models.Index(
                fields=["ended"], condition=Q(ended__isnull=False), name="atp_graph_ended"
            ),
        ]

    def __str__(self) -> str:
        return self.name or str(self.uuid)


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
        Instance, models.PROTECT, primary_key=True, related_name="node", db_constraint=False
    )
    graph = models.ForeignKey(
        Graph, models.CASCADE, null=True, related_name="nodes", db_index=False, db_constraint=False
    )
    # Null in a graph, and if the schedule was removed.
    schedule = models.ForeignKey(
        *(Schedule, models.SET_NULL),
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
    type = models.ForeignKey(Type, models.PROTECT, related_name="+", db_constraint=False)
    format = models.CharField(max_length=8)
    data = models.TextField()
    collection = models.CharField(max_length=MAX_IDENTIFIER, blank=True, default="")
    priority = models.SmallIntegerField(default=0)
    created_by = models.CharField(max_length=200, blank=True, default="")
    own = models.TextField(null=True, help_text="Values for the undo alone; see atp.payload.own.")

    def __str__(self) -> str:
        return f"undo of {self.node_id}"
