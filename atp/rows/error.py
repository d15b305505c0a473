"""Error groups: dead letters that have one cause, and the failures that are yet to be counted."""

from django.db import models

from ..words.options import MAX_IDENTIFIER
from .fields import InstantField

# A title is one line.
MAX_TITLE = 200
# The digits of a group's key, of which the first few name it.
DIGITS = 16


class _Facts(models.Model):
    """What is known of a cause when something fails of it."""

    type = models.CharField(max_length=MAX_IDENTIFIER)
    fingerprint = models.BinaryField(max_length=16)
    version = models.SmallIntegerField(help_text="Of the rules that made the fingerprint.")
    exception = models.CharField(max_length=255, blank=True, default="")
    title = models.CharField(max_length=MAX_TITLE, blank=True, default="")

    class Meta:
        abstract = True


class ErrorGroup(_Facts):
    """Dead letters of one Type that have one cause.

    Its key is made of Type, fingerprint and version, so that whoever records a failure knows
    it without a look. ``count`` is the number of failures ever; an Instance that is redriven
    and fails again counts again.
    """

    id = models.BigIntegerField(primary_key=True)
    count = models.BigIntegerField(default=0)
    first_seen = InstantField()
    last_seen = InstantField()
    # No references: a group outlives its Instances.
    first_instance = models.UUIDField()
    last_instance = models.UUIDField()
    muted_by = models.CharField(max_length=200, blank=True, default="")
    muted_until = InstantField(null=True, help_text="Null while muted: until it is unmuted.")
    note = models.TextField(blank=True, default="")

    class Meta:
        indexes = [
            models.Index(fields=["-last_seen", "-id"], name="atp_errorgroup_newest"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def digits(self) -> str:
        """All digits of its key."""
        return f"{self.pk:0{DIGITS}x}"

    @property
    def name(self) -> str:
        """The first digits of its key."""
        return self.digits[:8]

    @property
    def is_muted(self) -> bool:
        """Whether it is muted, as it was when something failed last."""
        return bool(self.muted_by)


class Failure(_Facts):
    """One failure that is not counted in its group as yet.

    It is written in the statement that records the end, and waits for nobody: a row of
    its own collides with no other. A chore of a daemon adds it to its group.
    """

    group = models.BigIntegerField()
    instance = models.UUIDField()
    time = InstantField()

    def __str__(self) -> str:
        return f"failure of {self.instance}"
