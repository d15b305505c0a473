"""Tailer: what has come out of one source."""

from django.db import models

from ...words.options import MAX_IDENTIFIER
from ..fields import InstantField


class Tailer(models.Model):
    """The counts of one tailer, since its row was made.

    ``identifier`` is that of the Type whose attempts read the source. ``behind`` is the number of
    records that were left at the last look; null if the source does not tell.
    """

    identifier = models.CharField(max_length=MAX_IDENTIFIER, unique=True)
    source = models.CharField(max_length=500, help_text="The source, without credentials.")
    read_at = InstantField(help_text="When an attempt looked last.")
    records = models.BigIntegerField(default=0, help_text="Records that were settled.")
    enqueued = models.BigIntegerField(default=0, help_text="Instances that they made.")
    rejected = models.BigIntegerField(default=0, help_text="Records that were put aside.")
    rejected_in_a_row = models.IntegerField(default=0, help_text="Since one was mapped last.")
    behind = models.BigIntegerField(null=True)

    class Meta:
        ordering = ["identifier"]

    def __str__(self) -> str:
        return self.identifier
