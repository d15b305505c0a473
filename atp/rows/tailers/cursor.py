"""Cursor: how far one shard of a source has been read."""

from django.db import models

from ...words.options import MAX_IDENTIFIER
from ..fields import InstantField

# The longest name of a shard, in characters.
MAX_SHARD = 400


class Cursor(models.Model):
    """The position up to which a tailer has read one shard of its source.

    The source says which shards it has: the partitions of a topic, the files of a directory. The
    position is text that only the source reads. It is committed together with the Instances of
    the records before it (G18).
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
