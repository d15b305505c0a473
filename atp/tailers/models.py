"""The tables for tailers: Cursor says how far a source has been read, Tailer counts records."""

from django.db import models

from ..fields import InstantField
from ..options import MAX_IDENTIFIER

# The longest name of a shard, in characters.
MAX_SHARD = 400


class Cursor(models.Model):
    """The position up to which a tailer has read one shard of its source.

    The source defines its shards: for example the partitions of a topic, or the files in a
    directory. The position is text that only the source can read. One transaction commits the
    position and the Instances for the records before it (G18).
    """

    tailer = models.CharField(max_length=MAX_IDENTIFIER)
    shard = models.CharField(max_length=MAX_SHARD)
    position = models.TextField()
    moved = InstantField()
    missing_since = InstantField(null=True, help_text="When the shard was found to be gone.")

    class Meta:
        ordering = ["tailer", "shard"]
        constraints = [
            models.UniqueConstraint(fields=["tailer", "shard"], name="atp_cursor_once"),
        ]

    def __str__(self) -> str:
        return f"{self.tailer} {self.shard}"


class Tailer(models.Model):
    """The state and the counts of one tailer since its first attempt.

    ``identifier`` is the identifier of the Type whose attempts read the source. ``behind``,
    ``skipped`` and ``notes`` describe the source at the end of the last attempt. ``behind`` counts
    the records that are still to be read; it is null if the source cannot count them. ``gaps``,
    ``lost`` and ``passed_over`` are committed in one transaction with the cursors.
    """

    identifier = models.CharField(max_length=MAX_IDENTIFIER, unique=True)
    source = models.CharField(max_length=500, help_text="The source, without credentials.")
    read_at = InstantField(help_text="When an attempt looked last.")
    records = models.BigIntegerField(default=0, help_text="Records that were settled.")
    enqueued = models.BigIntegerField(default=0, help_text="Instances that they made.")
    rejected = models.BigIntegerField(default=0, help_text="Records that were put aside.")
    rejected_in_a_row = models.IntegerField(default=0, help_text="Since one was mapped last.")
    behind = models.BigIntegerField(null=True)
    gaps = models.BigIntegerField(
        default=0, help_text="Times that records were lost, also where their number is unknown."
    )
    lost = models.BigIntegerField(
        default=0, help_text="Records that the source removed before they were read."
    )
    lost_at = InstantField(null=True, help_text="When records were found to be lost last.")
    passed_over = models.BigIntegerField(
        default=0, help_text="Records that cannot be read, and that the cursor has passed over."
    )
    skipped = models.BigIntegerField(
        default=0, help_text="What is in the source now and cannot be read."
    )
    notes = models.TextField(
        blank=True, default="", help_text="What is skipped, and what waits: a line for each kind."
    )
    error = models.TextField(
        blank=True, default="", help_text="Why the tailer stopped itself; empty after a good look."
    )

    class Meta:
        ordering = ["identifier"]

    def __str__(self) -> str:
        return self.identifier
