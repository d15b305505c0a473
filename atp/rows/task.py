"""Task: the queue."""

from datetime import UTC, datetime

from django.db import models
from django.db.models import F, Q

from ..words.options import MAX_IDENTIFIER
from .daemon import Daemon
from .fields import InstantField
from .instance import Instance
from .querysets import TaskQuerySet
from .type import Type

# The due time of a node that waits for others. It is a valid time in every time zone.
BLOCKED = datetime(9999, 1, 1, tzinfo=UTC)
# ``waits`` of a Task that is no node, but has hooks: these make its end be settled, too.
HOOKED = -1


class Task(models.Model):
    """The queue row of a live Instance. Narrow on purpose: this is the hot table.

    A waiting row says when it is due, a claimed row which daemon holds it. The
    columns that a claim filters by (type, collection, priority, start_before) are
    copies of the Instance's, so a claim never has to read a wider table.

    A node of a graph that ``waits`` for others is due at :data:`BLOCKED`: a claim treats it
    like any Task that is due in the future. If ``waits`` is not null, more follows from the
    end of the Instance: nodes that wait for it are freed, or its hooks are enqueued.
    """

    instance = models.OneToOneField(Instance, models.CASCADE, primary_key=True, db_constraint=False)
    type = models.ForeignKey(Type, models.PROTECT, db_index=False, db_constraint=False)
    collection = models.CharField(max_length=MAX_IDENTIFIER, blank=True, default="")
    priority = models.SmallIntegerField(default=0)
    due_at = InstantField()
    start_before = InstantField(null=True)
    daemon = models.ForeignKey(
        Daemon,
        models.PROTECT,
        null=True,
        db_index=False,
        db_constraint=False,
        related_name="tasks",
    )
    attempt = models.IntegerField(default=0)
    request = models.CharField(max_length=16, blank=True, default="")
    # Last: where these are null, as in most, they take no room.
    waits = models.IntegerField(
        null=True,
        help_text="Edges of its node that are not satisfied; -1 if it is no node, and has hooks.",
    )
    unique_key = models.CharField(
        max_length=MAX_IDENTIFIER, null=True, help_text="No other Task of its Type has it."
    )

    objects = TaskQuerySet.as_manager()

    class Meta:
        indexes = [
            # The claim: the waiting Tasks of a lane in claiming order; and the lanes of a Type.
            models.Index(
                F("type"),
                F("collection"),
                F("priority").desc(),
                F("due_at"),
                F("instance"),
                condition=Q(daemon__isnull=True),
                name="atp_task_claim",
            ),
            # The Tasks that a daemon holds, for expiry, reconciliation and requests; and
            # their lanes, for limits. It begins with the daemon, since there are few.
            models.Index(
                fields=["daemon", "type", "collection"],
                condition=Q(daemon__isnull=False),
                name="atp_task_held",
            ),
            # The Tasks that were not started in time.
            models.Index(
                fields=["start_before"],
                condition=Q(daemon__isnull=True, start_before__isnull=False),
                name="atp_task_missed",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["type", "unique_key"],
                condition=Q(unique_key__isnull=False),
                name="atp_task_unique",
            ),
        ]

    def __str__(self) -> str:
        return f"task of {self.instance_id}"

    @property
    def is_blocked(self) -> bool:
        """Whether this Task waits for other nodes."""
        return self.waits is not None and self.waits > 0
