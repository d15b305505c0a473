"""The models for schedules and their slots."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q

from ..fields import InstantField
from ..options import MAX_IDENTIFIER
from ..payload import codec


class Missed(models.TextChoices):
    """What to do about slots that no daemon planned in time."""

    SKIP = "skip", "run none of them"
    ONE = "one", "run the newest of them"
    ALL = "all", "run the newest of them, up to a number"


class Overlap(models.TextChoices):
    """What to do about a slot if the last Instance of the schedule has not ended."""

    ALLOW = "allow", "run beside it"
    SKIP = "skip", "skip the slot"
    QUEUE = "queue", "wait until it has ended"
    CANCEL = "cancel", "cancel it, and wait until it has ended"


# With these, the Instances of a schedule wait in line: each waits for all earlier ones.
IN_LINE = (Overlap.QUEUE, Overlap.CANCEL)
# The maximum number of Instances of a schedule that wait in line. The number of edges grows with
# the square of it.
LONGEST_LINE = 100


class Outcome(models.TextChoices):
    """The outcome of a slot."""

    ENQUEUED = "ENQUEUED", "an Instance was enqueued"
    SKIPPED = "SKIPPED", "the last Instance had not ended"
    MISSED = "MISSED", "nobody planned it in time"
    PAUSED = "PAUSED", "the schedule was paused"


class Schedule(models.Model):
    """A periodic job that enqueues Instances of a Type, with their timing and inputs.

    ``next_at`` is the next slot. ``due_at`` is the time at which a daemon plans this slot: the slot
    plus its jitter. All slots up to ``planned_until`` have an outcome, and ``next_at`` is the first
    slot after that time. ``planned_offset`` is the offset of the time zone from UTC at
    ``planned_until``; a later change of this offset shows that the rules of the zone have changed.
    ``declared`` contains the values that the code declares, or null if no code declares the
    schedule. If ``is_set`` is True, an operator has created or edited the schedule, and
    registration does not change the schedule. ``revision`` is the number of edits. ``trouble`` says
    why a daemon could not plan the schedule; otherwise it is empty.
    """

    identifier = models.CharField(max_length=MAX_IDENTIFIER, unique=True)
    type = models.ForeignKey("atp.Type", models.PROTECT, related_name="schedules")
    format = models.CharField(max_length=16, default=codec.JSON)
    data = models.TextField(default="{}")
    takes_slot = models.BooleanField(
        default=False, help_text="Whether its handler has a parameter for the slot."
    )
    collection = models.CharField(max_length=MAX_IDENTIFIER, blank=True, default="")
    priority = models.IntegerField(default=0)
    cron = models.CharField(max_length=200, blank=True, default="")
    every = models.DurationField(null=True, help_text="Aligned to the Unix epoch.")
    timezone = models.CharField(max_length=64, default="UTC")
    missed = models.CharField(max_length=4, choices=Missed, default=Missed.ONE)
    most = models.PositiveIntegerField(
        default=100, help_text="Most missed slots to run; most Instances to wait in line."
    )
    window = models.DurationField(help_text="Missed slots that are older are not run.")
    late_after = models.DurationField(
        help_text="A slot is missed if no daemon planned it within this time."
    )
    overlap = models.CharField(max_length=6, choices=Overlap, default=Overlap.ALLOW)
    jitter = models.DurationField(help_text="A slot is planned up to this much after its time.")
    start_before = models.DurationField(
        null=True, help_text="An Instance must start within this time after its slot."
    )
    timeout = models.DurationField(
        null=True, help_text="The time-out of its Instances; null: that of the Type."
    )
    hooks = models.JSONField(
        null=True, help_text="The hooks of its Instances; see atp.store.values."
    )
    next_at = InstantField(null=True)
    due_at = InstantField(null=True)
    planned_until = InstantField(null=True)
    planned_offset = models.DurationField(null=True)
    last_id = models.BigIntegerField(null=True, help_text="The key of the last Instance.")
    paused_since = InstantField(null=True)
    paused_until = InstantField(null=True)
    paused_by = models.CharField(max_length=200, blank=True, default="")
    paused_reason = models.CharField(max_length=200, blank=True, default="")
    declared = models.JSONField(null=True)
    is_set = models.BooleanField(
        default=False, help_text="Whether an operator has made or edited it."
    )
    who = models.CharField(max_length=200, blank=True, default="")
    since = InstantField(help_text="When it was last changed.")
    revision = models.PositiveIntegerField(default=1)
    retired = InstantField(null=True, help_text="Since when no code declares it.")
    trouble = models.TextField(blank=True, default="")

    # Set by a pause of a schedule that was already paused: the actor and reason of the old pause.
    was_paused: tuple[str, str] | None = None
    # The database's time when the row was read, if the reader has set it.
    now: datetime | None = None

    class Meta:
        ordering = ["identifier"]
        indexes = [
            # The first schedule that is due: each scan of the queue reads it.
            models.Index(
                fields=["due_at"], condition=Q(due_at__isnull=False), name="atp_schedule_due"
            )
        ]

    def __str__(self) -> str:
        return self.identifier

    def is_paused(self, now: datetime) -> bool:
        """Return True if the schedule is paused at ``now``.

        The row might still contain a pause that has ended.
        """
        if self.paused_since is None:
            return False
        return self.paused_until is None or self.paused_until > now


class Slot(models.Model):
    """One slot of a schedule, or ``count`` successive slots with the same outcome.

    ``at`` is the time of the first slot. If there are several slots, ``until`` is the time of the
    last one. Both times are without jitter. ``instance_id`` is the primary key of the Instance that
    was enqueued, or (for SKIPPED) of the Instance that had not ended. That Instance may have been
    removed since.
    """

    schedule = models.ForeignKey(
        Schedule, models.CASCADE, db_index=False, related_name="slots", db_constraint=False
    )
    at = InstantField()
    until = InstantField(null=True)
    count = models.PositiveIntegerField(default=1)
    is_more = models.BooleanField(
        default=False, help_text="There were more slots than were counted."
    )
    outcome = models.CharField(max_length=8, choices=Outcome)
    instance_id = models.BigIntegerField(null=True)
    decided = InstantField()
    who = models.CharField(max_length=200, blank=True, default="")
    message = models.CharField(max_length=400, blank=True, default="")

    class Meta:
        ordering = ["schedule", "-at"]
        constraints = [models.UniqueConstraint(fields=["schedule", "at"], name="atp_slot_once")]
        indexes = [
            # The list of schedules counts these slots. Most slots have another outcome.
            models.Index(
                fields=["schedule", "at"],
                condition=Q(outcome__in=["MISSED", "SKIPPED"]),
                name="atp_slot_not_run",
            )
        ]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%dT%H:%M:%SZ} {self.outcome}"
