"""Statistic: counts of events per minute and Type. Uncounted: records that are still to count."""

from datetime import UTC, datetime

from django.db import models

from ..states import Reason
from ..words.options import MAX_IDENTIFIER
from .fields import InstantField

# The buckets of a histogram. The first is for durations of less than a millisecond. The upper
# bound of each other is twice that of the one before; the last has no upper bound.
BUCKETS = 24
# When the row of totals begins.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def failed(reason: Reason | str) -> str:
    """Return the column that counts the failures for this reason."""
    return f"failed_{reason.lower()}"


FAILED = tuple(failed(reason.value) for reason in Reason)
# The columns that are added up, and those that are lists of BUCKETS numbers.
COUNTS = ("started", "finished", "retried", "deferred", "lost", *FAILED, "wall_us")
HISTOGRAMS = ("wait", "run")


def bucket(microseconds: int) -> int:
    """Return the index of the bucket for a duration."""
    if microseconds < 1000:
        return 0
    place = (microseconds // 1000).bit_length()
    return place if place < BUCKETS else BUCKETS - 1


class Span(models.IntegerChoices):
    """The length of time that a row covers, in seconds; a row of totals covers all time."""

    MINUTE = 60, "a minute"
    HOUR = 3600, "an hour"
    TOTAL = 0, "all before"


class Statistic(models.Model):
    """Events of one Type within a span of time, by the times of their LogRecords.

    Rows are inserted and never updated: one Type and span may have several rows, and readers
    add these up. Housekeeping replaces several rows by one, in one transaction.
    ``type`` is the identifier, so that the counts of a Type outlive its registration.
    ``wait`` and ``run`` are histograms: from due to start, and from start to end.
    """

    span = models.PositiveSmallIntegerField(choices=Span)
    start = InstantField()
    type = models.CharField(max_length=MAX_IDENTIFIER)
    started = models.BigIntegerField(default=0)
    finished = models.BigIntegerField(default=0)
    retried = models.BigIntegerField(default=0)
    deferred = models.BigIntegerField(default=0)
    lost = models.BigIntegerField(default=0)
    failed_error = models.BigIntegerField(default=0)
    failed_fatal = models.BigIntegerField(default=0)
    failed_stale = models.BigIntegerField(default=0)
    failed_cancelled = models.BigIntegerField(default=0)
    failed_dropped = models.BigIntegerField(default=0)
    failed_missed = models.BigIntegerField(default=0)
    failed_upstream = models.BigIntegerField(default=0)
    wall_us = models.BigIntegerField(default=0, help_text="All runs together, in microseconds.")
    wait = models.JSONField(default=list, help_text="Numbers of starts, by bucket.")
    run = models.JSONField(default=list, help_text="Numbers of ends, by bucket.")

    class Meta:
        indexes = [models.Index(fields=["span", "start", "type"], name="atp_statistic_key")]

    def __str__(self) -> str:
        return f"{self.type} {self.start:%Y-%m-%d %H:%M}"


class Uncounted(models.Model):
    """LogRecords that a daemon had not counted yet when its identity, ``daemon``, ended.

    They are the records that ``who`` or one of its workers has signed, with keys greater than
    ``after`` and up to ``until``. Records that are counted already are not among them.
    """

    daemon = models.UUIDField(unique=True)
    who = models.CharField(max_length=200)
    after = models.BigIntegerField()
    until = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.who} {self.after}-{self.until}"
