"""The tables for error groups, and for failures that are not counted in their group yet."""

from django.db import models

from ..fields import InstantField
from ..options import MAX_IDENTIFIER

# A title is one line.
MAX_TITLE = 200
# The number of hexadecimal digits of a group's key; the first few of them name the group.
DIGITS = 16


class _Facts(models.Model):
    """The columns that describe the cause of a failure."""

    type = models.CharField(max_length=MAX_IDENTIFIER)
    fingerprint = models.BinaryField(max_length=16)
    version = models.SmallIntegerField(
        help_text="The version of the rules that made the fingerprint."
    )
    exception = models.CharField(max_length=255, blank=True, default="")
    title = models.CharField(max_length=MAX_TITLE, blank=True, default="")

    class Meta:
        abstract = True


class ErrorGroup(_Facts):
    """Dead letters of one Type with the same cause.

    The primary key is computed from Type, fingerprint and version, so recording a failure needs no
    query for the group. ``count`` is the number of all failures so far. If an Instance is redriven
    and fails again, it counts again.
    """

    id = models.BigIntegerField(primary_key=True)
    count = models.BigIntegerField(default=0)
    first_seen = InstantField()
    last_seen = InstantField()
    # No references: a group outlives its Instances.
    first_instance = models.UUIDField()
    last_instance = models.UUIDField()
    muted_by = models.CharField(max_length=200, blank=True, default="")
    muted_until = InstantField(
        null=True, help_text="When the muting ends; null: when somebody unmutes it."
    )
    note = models.TextField(blank=True, default="")

    class Meta:
        indexes = [
            models.Index(fields=["-last_seen", "-id"], name="atp_errorgroup_newest"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def digits(self) -> str:
        """The primary key as hexadecimal digits."""
        return f"{self.pk:0{DIGITS}x}"

    @property
    def name(self) -> str:
        """The first eight hexadecimal digits of the primary key, which identify the group."""
        return self.digits[:8]

    @property
    def is_muted(self) -> bool:
        """True if the group is muted. The first failure after ``muted_until`` unmutes it."""
        return bool(self.muted_by)


class Failure(_Facts):
    """One failure that is not counted in its error group yet.

    The statement that records the end of an Instance inserts this row, so that it does not have to
    lock the group. Later, a maintenance job of a daemon adds the failure to the group.
    """

    group = models.BigIntegerField()
    instance = models.UUIDField()
    time = InstantField()

    def __str__(self) -> str:
        return f"failure of {self.instance}"
