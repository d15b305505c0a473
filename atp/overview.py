"""What the queue looks like now: counts for each Type, and how the daemons are.

For operators. What is live is always counted exactly. Of what has ended either
everything is counted, which takes longer the longer the history is, or, for a
page that somebody looks at all day, only what is recent.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Count, Exists, IntegerField, Min, OuterRef, Q, Subquery

from .conf import settings
from .models import Daemon, Instance, Task, Type
from .states import CLAIMED, Reason, State
from .store import get_store

ALIVE, LATE, LOST = "alive", "late", "lost"

# How far back, and how many, without the history.
RECENTLY = timedelta(hours=1)
MOST_ENDED = 1000
MOST_FAILED = 10_000


@dataclass(frozen=True, kw_only=True)
class LiveCounts:
    """How many live Instances of a Type there are: exact.

    ``due`` and ``later`` are those that wait, now or for their time;
    ``scheduled``, ``running`` and ``paused`` those that a daemon holds.
    """

    type: str
    due: int = 0
    later: int = 0
    scheduled: int = 0
    running: int = 0
    paused: int = 0


@dataclass(frozen=True, kw_only=True)
class TypeCounts(LiveCounts):
    """How many Instances of a Type there are; ``reasons`` splits those that failed."""

    finished: int = 0
    failed: int = 0
    reasons: dict = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RecentCounts(LiveCounts):
    """How many Instances of a Type are live, and what has ended of late.

    ``ended`` are those that FINISHED or FAILED since ``Overview.since``, and
    ``ended_more`` says that there are more than that. ``failed`` are those
    among the newest MOST_FAILED failures of all Types, however long ago they
    were; ``reasons`` splits them.
    """

    ended: int = 0
    ended_more: bool = False
    failed: int = 0
    reasons: dict = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The queue at ``time``; ``oldest_due`` and ``next_due`` are due times, or None.

    ``types`` are TypeCounts, or without the history RecentCounts, by
    identifier. Then ``since`` says from when on ``ended`` counts, and
    ``failed_more`` that there are older failures than those counted.
    """

    time: datetime
    oldest_due: datetime | None
    next_due: datetime | None
    types: tuple[TypeCounts, ...] | tuple[RecentCounts, ...]
    since: datetime | None = None
    failed_more: bool = False

    def total(self, name):
        """The sum of one count over all Types."""
        return sum(getattr(counts, name) for counts in self.types)


def now():
    """The time by the clock that leases and due times are compared with."""
    return get_store().now()


def overview(*, history=True):
    """Return an :class:`Overview` of the queue, with the Types that have Instances.

    Without ``history`` it takes as long after a year as on the first day, and
    five queries.
    """
    time = now()
    since = None if history else time - RECENTLY
    counts = defaultdict(Counter)
    oldest_due, next_due = _count_waiting(counts, time)
    _count_claimed(counts)
    failed_more = False
    if history:
        _count_terminal(counts)
    else:
        failed_more = _count_newest_failures(counts)
    types = [_type_counts(type, counts[type.pk], history=history) for type in _types(counts, since)]
    return Overview(
        time=time,
        oldest_due=oldest_due,
        next_due=next_due,
        types=tuple(types),
        since=since,
        failed_more=failed_more,
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


def _types(counts, since):
    """Return the Types that have Instances, by identifier; with what has ended since then."""
    types = Type.objects.using(settings.DATABASE).order_by("identifier")
    if since is None:
        return types.filter(pk__in=list(counts))
    own = Instance.objects.filter(type=OuterRef("pk"))
    ended = own.filter(finished__gte=since).order_by()
    return types.filter(Exists(own)).annotate(ended=_Counted(ended.values("pk")[: MOST_ENDED + 1]))


class _Counted(Subquery):
    """How many rows a query has, which may be cut off at some number."""

    template = "(SELECT count(*) FROM (%(subquery)s) counted)"
    output_field = IntegerField()


def _type_counts(type, counted, *, history):
    reasons = {reason: counted[reason] for reason in Reason.values if counted[reason]}
    named = {name: count for name, count in counted.items() if name not in Reason.values}
    named |= {"type": type.identifier, "reasons": reasons, "failed": sum(reasons.values())}
    if history:
        return TypeCounts(**named)
    ended, more = min(type.ended, MOST_ENDED), type.ended > MOST_ENDED
    return RecentCounts(ended=ended, ended_more=more, **named)


def _count_waiting(counts, time):
    """Count what waits, in one pass; return since when, and until when, the first does."""
    waiting = Task.objects.using(settings.DATABASE).waiting()
    is_later = Q(due_at__gt=time)
    counted = waiting.values("type_id").annotate(
        waiting=Count("*"),
        later=Count("pk", filter=is_later),
        first=Min("due_at"),
        next=Min("due_at", filter=is_later),
    )
    rows = list(counted)
    for row in rows:
        counts[row["type_id"]].update(due=row["waiting"] - row["later"], later=row["later"])
    oldest = min((row["first"] for row in rows if row["first"] <= time), default=None)
    return oldest, min((row["next"] for row in rows if row["next"]), default=None)


def _count_claimed(counts):
    tasks = Task.objects.using(settings.DATABASE).claimed()
    claimed = tasks.filter(instance__state__in=CLAIMED)
    for row in claimed.values("type_id", "instance__state").annotate(n=Count("pk")):
        counts[row["type_id"]][row["instance__state"].lower()] += row["n"]


def _count_terminal(counts):
    terminal = Instance.objects.using(settings.DATABASE).terminal()
    for row in terminal.values("type_id", "state", "reason").annotate(n=Count("pk")):
        counts[row["type_id"]][row["reason"] or "finished"] += row["n"]


def _count_newest_failures(counts):
    """Count the newest of those that failed; return whether there are more."""
    failed = Instance.objects.using(settings.DATABASE).selected(state=State.FAILED)
    newest = failed.newest_first().values_list("type_id", "reason")[: MOST_FAILED + 1]
    found = list(newest)
    for type, reason in found[:MOST_FAILED]:
        counts[type][reason] += 1
    return len(found) > MOST_FAILED
