"""The state of the queue: counts for each Type, and the condition of the daemons.

Live Instances are always counted exactly. For ended Instances there is a choice: either all are
counted, which takes longer as the history grows, or only the recent ones, for a page that stays
open all day.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet, Subquery

from ..conf import settings
from ..models import BLOCKED, DEPARTURES, Daemon, Instance, Kind, LogRecord, Task, Type
from ..querysets import RowCount
from ..states import CLAIMED, DEAD_LETTER, Reason, State
from ..store import get_store

ALIVE, LATE, LOST = "alive", "late", "lost"

# Without the history, ends are counted for this period, and up to these limits.
RECENTLY = timedelta(hours=1)
MOST_ENDED = 1000
MOST_FAILED = 1_000  # for each Type and reason, so that frequent failures do not hide others
MAX_DEPARTED = 100  # daemons that have left


@dataclass(frozen=True, kw_only=True)
class LiveCounts:
    """The exact numbers of live Instances of a Type.

    ``due`` and ``later`` are the numbers of waiting Instances that are due now or later, and
    ``oldest_due`` is the earliest due time among the due ones, or None. ``scheduled``, ``running``
    and ``paused`` are the numbers of Instances that a daemon holds, by state.
    """

    type: str
    due: int = 0
    oldest_due: datetime | None = None
    later: int = 0
    scheduled: int = 0
    running: int = 0
    paused: int = 0


@dataclass(frozen=True, kw_only=True)
class TypeCounts(LiveCounts):
    """The numbers of all Instances of a Type; ``reasons`` counts the FAILED ones by reason."""

    finished: int = 0
    failed: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RecentCounts(LiveCounts):
    """The numbers of live and recently ended Instances of a Type.

    ``ended`` is the number of Instances that FINISHED or FAILED since ``Overview.since``, at most
    MOST_ENDED; ``ended_more`` is True if there are more. ``failed`` is the number of FAILED
    Instances of any age, at most MOST_FAILED for each reason. ``reasons`` has these numbers by
    reason, and ``more_of`` the reasons with more failures than that. ``failed_lately`` is the
    number of dead letters since ``Overview.since`` that are not muted, among the newest MOST_FAILED
    for each reason; ``failed_lately_more`` is True if there may be more.
    """

    ended: int = 0
    ended_more: bool = False
    failed: int = 0
    failed_lately: int = 0
    failed_lately_more: bool = False
    reasons: dict[str, int] = field(default_factory=dict)
    more_of: frozenset[str] = frozenset()

    @property
    def failed_more(self) -> bool:
        return bool(self.more_of)

    @property
    def is_idle(self) -> bool:
        """True if the Type has no live Instances and no recently ended or failed Instances."""
        live = (self.due, self.later, self.scheduled, self.running, self.paused)
        return not any((*live, self.ended, self.failed_lately))


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The state of the queue at ``time``.

    ``oldest_due`` is the due time of the Task that has been due for the longest time; ``next_due``
    is the earliest due time in the future. Both can be None. ``types`` is sorted by identifier, and
    contains TypeCounts, or RecentCounts if the history was left out. ``since`` is the time from
    which RecentCounts count ends; None with TypeCounts.
    """

    time: datetime
    oldest_due: datetime | None
    next_due: datetime | None
    types: tuple[TypeCounts | RecentCounts, ...]
    since: datetime | None = None

    def has(self, name: str) -> bool:
        """Return True if the flag with this name, such as ``failed_more``, is set for any Type."""
        return any(getattr(counts, name, False) for counts in self.types)

    def total(self, name: str) -> int:
        """Return the sum over all Types for the count with this name, such as ``due``."""
        return sum(getattr(counts, name) for counts in self.types)


def now() -> datetime:
    """Return the time of the clock that decides about leases and due times."""
    return get_store().now()


def overview(*, history: bool = True) -> Overview:
    """Return an :class:`Overview` of the queue, with all Types that have Instances.

    Without ``history``, the overview takes six queries, and a long history does not slow it down.
    """
    time = now()
    since = None if history else time - RECENTLY
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    found: list[tuple[int, TypeCounts | RecentCounts]]
    oldest, next_due = _count_waiting(counts, time)
    _count_claimed(counts)
    if since is None:
        _count_terminal(counts)
        types = Type.objects.using(settings.DATABASE).order_by("identifier")
        found = [
            (row.pk, _type_counts(row, counts[row.pk])) for row in types.filter(pk__in=list(counts))
        ]
    else:
        rows = list(_types_with_recent_counts(since))
        lately = _count_failed_lately(rows, since)
        found = [(row.pk, _recent_counts(row, counts[row.pk], lately.get(row.pk))) for row in rows]
    return Overview(
        time=time,
        oldest_due=min(oldest.values(), default=None),
        next_due=next_due,
        types=tuple(replace(each, oldest_due=oldest.get(key)) for key, each in found),
        since=since,
    )


def daemons() -> list[Daemon]:
    """Return all Daemon rows, sorted by the time of their start, earliest first."""
    rows = Daemon.objects.using(settings.DATABASE).select_related("spare_lease")
    return list(rows.order_by("started", "pk"))


@dataclass(frozen=True, kw_only=True)
class DepartedDaemon:
    """A daemon that left at ``time``, because it shut down or was lost.

    ``seen`` is when a lost daemon renewed its lease last, or ``time`` if the log does not tell.
    """

    name: str
    uuid: UUID
    time: datetime
    seen: datetime
    was_lost: bool

    @classmethod
    def of(cls, record: LogRecord) -> Self:
        """Return the daemon that this record of the log says has left."""
        uuid, _, seen = record.detail.partition(" ")
        return cls(
            name=record.subject.removeprefix("daemon:"),
            uuid=UUID(uuid),
            time=record.time,
            seen=datetime.fromisoformat(seen) if seen else record.time,
            was_lost=record.kind == Kind.LOST,
        )


def departed_daemons(
    uuid: UUID | str | None = None, *, since: datetime | None = None
) -> list[DepartedDaemon]:
    """Return the last MAX_DEPARTED daemons that have left, latest first, from the log.

    With ``uuid``, return only the daemon with this uuid. With ``since``, return only daemons that
    have left since then.
    """
    records = LogRecord.objects.using(settings.DATABASE).about_any().filter(kind__in=DEPARTURES)
    if uuid is not None:
        records = records.filter(detail__startswith=str(uuid))
    if since is not None:
        records = records.filter(time__gte=since)
    return [DepartedDaemon.of(record) for record in records.reverse()[:MAX_DEPARTED]]


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A lane of a Type with the numbers of its due and claimed Tasks.

    ``oldest_due`` is the earliest due time of the due Tasks, or None.
    """

    collection: str
    due: int = 0
    oldest_due: datetime | None = None
    claimed: int = 0


def lanes(type: Type, now: datetime, limit: int) -> tuple[list[Lane], int]:
    """Return the lanes of a Type with due or claimed Tasks, and the number of all such lanes.

    The lanes with most due Tasks come first; at most ``limit`` are returned. This takes two
    queries, which read all waiting Tasks of the Type from an index.
    """
    tasks = Task.objects.using(settings.DATABASE).filter(type=type).order_by()
    by_lane = tasks.due(now).values("collection")
    due = by_lane.annotate(number=Count("*"), oldest=Min("due_at"))
    found = {
        row["collection"]: Lane(
            collection=row["collection"], due=row["number"], oldest_due=row["oldest"]
        )
        for row in due
    }
    for row in tasks.claimed().values("collection").annotate(number=Count("*")):
        lane = found.get(row["collection"]) or Lane(collection=row["collection"])
        found[row["collection"]] = replace(lane, claimed=row["number"])
    ordered = sorted(found.values(), key=lambda lane: (-lane.due, -lane.claimed, lane.collection))
    return ordered[:limit], len(ordered)


def longest_attempts(type: Type, limit: int) -> list[Task]:
    """Return the claimed Tasks of a Type whose attempt has run longest, with their Instances.

    The attribute ``last_heard`` of each Task is the time of the newest log record, or None.
    """
    records = LogRecord.objects.using(settings.DATABASE).filter(instance=OuterRef("pk"))
    newest = records.order_by("-pk").values("time")[:1]
    running = Task.objects.using(settings.DATABASE).claimed().filter(type=type)
    running = running.filter(instance__state__in=CLAIMED, instance__started__isnull=False)
    rows = running.order_by("instance__started", "pk").annotate(last_heard=Subquery(newest))
    return list(rows.select_related("instance", "daemon")[:limit])


def condition(daemon: Daemon, time: datetime) -> str:
    """Return the condition of a daemon at ``time``: "alive", "late" or "lost".

    A daemon is lost when its lease has expired. A daemon is late when its lease is valid but a
    renewal is overdue, according to this process's settings.
    """
    if get_store().daemons.is_over(daemon, time):
        return LOST
    patience = timedelta(seconds=settings.RENEW_EVERY + settings.STATEMENT_TIMEOUT)
    return LATE if time - daemon.seen > patience else ALIVE


def _types_with_recent_counts(since: datetime) -> QuerySet[Any]:
    """Select the Types that have Instances, and count their recent ends and their failures."""
    own = Instance.objects.using(settings.DATABASE).filter(type=OuterRef("pk"))
    ended = own.filter(finished__gte=since).order_by()
    failed = {
        f"failed_{reason.lower()}": RowCount(
            own.selected(state=State.FAILED, reason=reason).values("pk")[: MOST_FAILED + 1]
        )
        for reason in Reason.values
    }
    types = Type.objects.using(settings.DATABASE).filter(Exists(own)).order_by("identifier")
    return types.annotate(ended=RowCount(ended.values("pk")[: MOST_ENDED + 1]), **failed)


def _count_failed_lately(rows: Iterable[Any], since: datetime) -> dict[int, Any]:
    """Count the recent dead letters that are not muted; return a row for each Type, by its key."""
    dead = [
        row
        for row in rows
        if row.ended and any(_failed_count(row, reason) for reason in DEAD_LETTER)
    ]
    own = Instance.objects.using(settings.DATABASE).filter(type=OuterRef(OuterRef("pk")))
    ended = own.filter(finished__gte=since).order_by().values("pk")

    def newest(reason: str) -> QuerySet[Any]:
        return own.selected(state=State.FAILED, reason=reason).newest_first().values("pk")

    # Where few have ended, it is faster to look through these than through the newest failures.
    few = [row.pk for row in dead if row.ended <= MOST_ENDED]
    many = [row.pk for row in dead if row.ended > MOST_ENDED]
    found = _count_unmuted(few, since, lambda reason: ended[:MOST_ENDED])
    return found | _count_unmuted(many, since, lambda reason: newest(reason)[:MOST_FAILED])


def _count_unmuted(
    types: Collection[int], since: datetime, keys: Callable[[str], QuerySet[Any]]
) -> dict[int, Any]:
    """Count those of the Instances with these keys that failed since then and are not muted.

    ``keys`` returns the keys of Instances of the Type in the outer query, for each reason.
    """
    if not types:
        return {}
    lately = {}
    for reason in DEAD_LETTER:
        recent = Instance.objects.using(settings.DATABASE).filter(
            pk__in=keys(reason), finished__gte=since, state=State.FAILED, reason=reason
        )
        unmuted = recent.exclude(error__muted_by__gt="").order_by()
        lately[f"lately_{reason.lower()}"] = RowCount(unmuted.values("pk"))
    rows = Type.objects.using(settings.DATABASE).filter(pk__in=types)
    return {row.pk: row for row in rows.annotate(**lately)}


def _failed_count(row: Any, reason: str) -> int:
    return getattr(row, f"failed_{reason.lower()}")


def _type_counts(type: Any, counted: Counter[str]) -> TypeCounts:
    reasons = {reason: counted.pop(reason) for reason in Reason.values if counted[reason]}
    failed = sum(reasons.values())
    live: dict[str, Any] = {name: count for name, count in counted.items() if count}
    return TypeCounts(type=type.identifier, reasons=reasons, failed=failed, **live)


def _recent_counts(row: Any, live: Counter[str], lately: Any) -> RecentCounts:
    found = {reason: _failed_count(row, reason) for reason in Reason.values}
    reasons = {reason: min(count, MOST_FAILED) for reason, count in found.items() if count}
    recent = [getattr(lately, f"lately_{reason.lower()}", 0) for reason in DEAD_LETTER]
    live_counts: dict[str, Any] = dict(live)
    return RecentCounts(
        type=row.identifier,
        ended=min(row.ended, MOST_ENDED),
        ended_more=row.ended > MOST_ENDED,
        failed=sum(reasons.values()),
        failed_lately=sum(recent),
        failed_lately_more=any(count == MOST_FAILED for count in recent),
        reasons=reasons,
        more_of=frozenset(reason for reason, count in found.items() if count > MOST_FAILED),
        **live_counts,
    )


def _count_waiting(
    counts: defaultdict[int, Counter[str]], time: datetime
) -> tuple[dict[int, datetime], datetime | None]:
    """Add the waiting Tasks to ``counts``.

    Return the oldest due time of each Type with due Tasks, by key, and the next due time of all.
    """
    waiting = Task.objects.using(settings.DATABASE).waiting()
    is_later = Q(due_at__gt=time)
    counted = waiting.values("type_id").annotate(
        waiting=Count("*"),
        later=Count("pk", filter=is_later),
        first=Min("due_at"),
        next=Min("due_at", filter=is_later & Q(due_at__lt=BLOCKED)),
    )
    rows = list(counted)
    for row in rows:
        counts[row["type_id"]].update(due=row["waiting"] - row["later"], later=row["later"])
    oldest = {row["type_id"]: row["first"] for row in rows if row["first"] <= time}
    return oldest, min((row["next"] for row in rows if row["next"]), default=None)


def _count_claimed(counts: defaultdict[int, Counter[str]]) -> None:
    tasks = Task.objects.using(settings.DATABASE).claimed()
    claimed = tasks.filter(instance__state__in=CLAIMED)
    for row in claimed.values("type_id", "instance__state").annotate(n=Count("pk")):
        counts[row["type_id"]][row["instance__state"].lower()] += row["n"]


def _count_terminal(counts: defaultdict[int, Counter[str]]) -> None:
    terminal = Instance.objects.using(settings.DATABASE).terminal()
    for row in terminal.values("type_id", "state", "reason").annotate(n=Count("pk")):
        counts[row["type_id"]][row["reason"] or "finished"] += row["n"]
