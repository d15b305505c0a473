"""The controls that operators set: Gate and Limit."""

from django.db import models

from ..words.options import MAX_IDENTIFIER, MAX_SUBJECT
from .fields import InstantField
from .type import Type


class Gate(models.Model):
    """A shut gate: no Task of a lane, of a Type or of the whole queue can be claimed.

    An open gate has no row. If ``type`` is null, the gate is for the whole queue; if
    ``collection`` is null, it is for all lanes of the Type.
    """

    subject = models.CharField(max_length=MAX_SUBJECT, unique=True)
    type = models.ForeignKey(Type, models.CASCADE, null=True, db_index=False)
    collection = models.CharField(max_length=MAX_IDENTIFIER, null=True)
    mode = models.CharField(max_length=4, choices=[("hold", "hold"), ("drop", "drop")])
    reason = models.CharField(max_length=200, blank=True, default="")
    who = models.CharField(max_length=200, blank=True, default="")
    since = InstantField()
    until = InstantField(null=True, help_text="When the gate opens by itself.")

    # On a Gate that has just been set: the Gate that it replaced, if that was shut.
    was: "Gate | None" = None

    class Meta:
        ordering = ["subject"]

    def __str__(self) -> str:
        return self.subject


class Limit(models.Model):
    """The limits of a lane or a Type, which all daemons share; and a Type's weight.

    A lane or Type without limits and weight has no row. ``tokens`` is the number of tokens
    that the rate had left at the time ``refilled``. Registration writes the limits that code
    declares, unless ``is_set`` says that an operator has set others.
    """

    subject = models.CharField(max_length=MAX_SUBJECT, unique=True)
    type = models.ForeignKey(Type, models.CASCADE, db_index=False, related_name="limits")
    collection = models.CharField(max_length=MAX_IDENTIFIER, null=True)
    max_running = models.PositiveIntegerField(
        null=True, help_text="Tasks that may be claimed at a time."
    )
    max_running_per_collection = models.PositiveIntegerField(
        null=True, help_text="Tasks of each lane of the Type that may be claimed at a time."
    )
    rate = models.CharField(
        max_length=32,
        blank=True,
        default="",
        help_text='Tasks that may start in a time, as "100/m".',
    )
    per_second = models.FloatField(null=True, help_text="The rate in tasks a second.")
    burst = models.PositiveIntegerField(
        default=1, help_text="Tasks that may start at once after a pause."
    )
    weight = models.FloatField(
        default=1.0, help_text="The share of the Type relative to other Types."
    )
    max_waiting = models.PositiveIntegerField(
        null=True, help_text="Tasks that may wait at a time; with more, enqueues are refused."
    )
    max_wait = models.DurationField(
        null=True, help_text="Enqueues are refused only if the oldest due Task has waited longer."
    )
    tokens = models.FloatField(default=0.0)
    refilled = InstantField(null=True)
    is_set = models.BooleanField(default=False, help_text="Whether an operator has set the limits.")
    who = models.CharField(max_length=200, blank=True, default="")
    since = InstantField()

    class Meta:
        ordering = ["subject"]

    def __str__(self) -> str:
        return self.subject
