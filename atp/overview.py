"""What the queue looks like now: counts for each Type, and how the daemons are.

For operators: it counts terminal Instances, which takes longer the longer
the history is.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Count, Min, Q

from .conf import settings
from .models import Daemon, Instance, Task
from .states import CLAIMED, Reason
from .store import get_store

ALIVE, LATE, LOST = "alive", "late", "lost"


@dataclass(frozen=True, kw_only=True)
class TypeCounts:
    """How many Instances of a Type there are; ``reasons`` splits those that failed."""

    type: str
    due: int = 0
    later: int = 0
    scheduled: int = 0
    running: int = 0
    paused: int = 0
    finished: int = 0
    failed: int = 0
    reasons: dict = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The queue at ``time``; ``oldest_due`` and ``next_due`` are due times, or None."""

    time: datetime
    oldest_due: datetime | None
    next_due: datetime | None
    types: tuple[TypeCounts, ...]

    def total(self, name):
        """The sum of one count over all Types."""
        return sum(getattr(counts, name) for counts in self.types)


def now():
    """The time by the clock that leases and due times are compared with."""
    return get_store().now()


def overview():
    """Return an :class:`Overview` of the queue, with the Types that have Instances."""
    time = now()
    counts = defaultdict(Counter)
    _count_waiting(counts, time)
    _count_claimed(counts)
    _count_terminal(counts)
    waiting = Task.objects.using(settings.DATABASE).waiting()
    ends = waiting.aggregate(
        oldest=Min("due_at", filter=Q(due_at__lte=time)),
        next=Min("due_at", filter=Q(due_at__gt=time)),
    )
    return Overview(
        time=time,
        oldest_due=ends["oldest"],
        next_due=ends["next"],
        types=tuple(_type_counts(name, counts[name]) for name in sorted(counts)),
    )


def daemons():
    """Return all Daemon rows, those longest running first."""
    return list(Daemon.objects.using(settings.DATABASE).order_by("started", "pk"))


def condition(daemon, time):
    """Tell how a daemon is at ``time``: "alive", "late" or "lost".

    It is lost when its lease is over, and late when it has a lease but has
    missed a renewal, by the intervals in this process's settings.
    """
    if get_store().is_over(daemon, time):
        return LOST
    patience = timedelta(seconds=settings.RENEW_EVERY + settings.STATEMENT_TIMEOUT)
    return LATE if time - daemon.seen > patience else ALIVE


def _type_counts(name, counted):
    reasons = {reason: counted[reason] for reason in Reason.values if counted[reason]}
    named = {name: count for name, count in counted.items() if name not in Reason.values}
    return TypeCounts(type=name, reasons=reasons, failed=sum(reasons.values()), **named)


def _count_waiting(counts, time):
    tasks = Task.objects.using(settings.DATABASE).waiting().values("type__identifier")
    is_due = Q(due_at__lte=time)
    for row in tasks.annotate(due=Count("pk", filter=is_due), later=Count("pk", filter=~is_due)):
        counts[row["type__identifier"]].update(due=row["due"], later=row["later"])


def _count_claimed(counts):
    tasks = Task.objects.using(settings.DATABASE).claimed()
    claimed = tasks.filter(instance__state__in=CLAIMED)
    for row in claimed.values("type__identifier", "instance__state").annotate(n=Count("pk")):
        counts[row["type__identifier"]][row["instance__state"].lower()] += row["n"]


def _count_terminal(counts):
    terminal = Instance.objects.using(settings.DATABASE).terminal()
    for row in terminal.values("type__identifier", "state", "reason").annotate(n=Count("pk")):
        counts[row["type__identifier"]][row["reason"] or "finished"] += row["n"]
