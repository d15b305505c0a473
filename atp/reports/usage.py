"""Compute how busy the workers of daemons were, and its history, from the rows of Usage."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Max, Sum

from ..conf import settings
from ..models import EPOCH, Span, Usage
from ..store import get_store
from .statistics import MINUTE, step_of

# A daemon's last minute is at most so many minutes old: it adds the row at its next renewal.
_LAST_MINUTES = 3


@dataclass(frozen=True, kw_only=True)
class UsagePoint:
    """What the workers of one daemon, or of all, did in one period, which begins at ``begin``.

    ``seconds`` is the length of the period. The period still goes on if ``is_partial`` is True.
    ``capacity`` and ``busy`` are in seconds of workers: all, and those in which attempts ran.
    ``ended`` counts attempts that ended. ``memory`` is the most memory of the workers of one
    daemon, in bytes, or 0 if it is unknown; see :class:`atp.models.Usage`.
    """

    begin: datetime
    seconds: float
    is_partial: bool
    capacity: float
    busy: float
    ended: int
    memory: int

    @property
    def value(self) -> float | None:
        """The busy part of the capacity, from 0 to 1; None without capacity."""
        return _utilisation(self.busy, self.capacity)


def usage(
    span: timedelta, now: datetime | None = None, *, daemon: UUID | None = None
) -> Sequence[UsagePoint]:
    """Return the history of a daemon's workers, or of all daemons' workers, in one query.

    The points are successive periods, the oldest first. They have the lengths and begins of the
    points of :func:`.statistics.series`, and cover ``span`` up to the end of the period that
    contains ``now``; ``now`` is by default the database's time. What the database keeps by hours is
    in the point in which the hour begins. Raises ValueError if ``span`` is shorter than a minute or
    too long for a chart.
    """
    step = step_of(span)
    now = now or get_store().now()
    number = span // step
    begin = EPOCH + ((now - EPOCH) // step + 1 - number) * step
    rows = Usage.objects.using(settings.DATABASE).filter(
        span__in=(Span.MINUTE, Span.HOUR), start__gte=begin, start__lt=begin + number * step
    )
    if daemon is not None:
        rows = rows.filter(daemon=daemon)
    sums = [[0, 0, 0, 0] for _ in range(number)]
    for start, *found in rows.values_list("start").annotate(
        Sum("capacity_us"), Sum("busy_us"), Sum("ended"), Max("memory")
    ):
        *added, most = sums[(start - begin) // step]
        *counts, memory = found
        both = zip(added, counts, strict=True)
        sums[(start - begin) // step] = [*(a + b for a, b in both), max(most, memory)]
    return [
        UsagePoint(
            begin=begin + at * step,
            seconds=step.total_seconds(),
            is_partial=begin + (at + 1) * step > now,
            capacity=capacity / 1e6,
            busy=busy / 1e6,
            ended=ended,
            memory=memory,
        )
        for at, (capacity, busy, ended, memory) in enumerate(sums)
    ]


def utilisation_now(now: datetime) -> dict[UUID, float]:
    """Return the busy part of each daemon's workers, from 0 to 1, by the daemon's uuid.

    It is that of the daemon's last complete minute. A daemon that has not written such a minute
    within the last three minutes before ``now`` is left out. It is one query.
    """
    minute = now.replace(second=0, microsecond=0)
    rows = Usage.objects.using(settings.DATABASE).filter(
        span=Span.MINUTE, start__gte=minute - _LAST_MINUTES * MINUTE, start__lt=minute
    )
    sums = rows.values("daemon", "start").annotate(capacity=Sum("capacity_us"), busy=Sum("busy_us"))
    found = {}
    for row in sums.order_by("start"):
        part = _utilisation(row["busy"], row["capacity"])
        if part is not None:
            found[row["daemon"]] = part
    return found


def _utilisation(busy: float, capacity: float) -> float | None:
    # An attempt that ended in one period may be counted in the next one, some milliseconds later.
    return min(busy / capacity, 1.0) if capacity else None
