"""Counts by minute and Type; failures by error group."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import DatabaseError
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet

from ...models import (
    EPOCH,
    Daemon,
    ErrorGroup,
    Failure,
    Instance,
    LogRecord,
    Span,
    Statistic,
    Uncounted,
    Usage,
)
from ...states import Event, Reason
from ..counts import COUNTED, Cell, Counts
from .base import Part

# Counting failures in their error groups.

_FACTS = ("type", "fingerprint", "version", "exception", "title")


class Errors(Part):
    """The error groups of the queue."""

    def count(self, *, limit: int = 2_000) -> int:
        if not self.store.rows(Failure).exists():
            return 0
        with self.store.atomic():
            return self._count(limit)

    def _count(self, limit: int) -> int:
        """Lock failures and then their groups, in key order, leaving out those that are locked.

        New groups are inserted first, in key order and by one statement. If two daemons insert the
        same group, the second waits for the first, which waits for nobody.
        """
        failures = self.store.rows(Failure).select_for_update(skip_locked=True)
        of_group: dict[int, list[Failure]] = defaultdict(list)
        for failure in failures.order_by("pk")[:limit]:
            of_group[failure.group].append(failure)
        if not of_group:
            return 0
        groups = self.store.rows(ErrorGroup)
        known = set(groups.filter(pk__in=of_group).values_list("pk", flat=True))
        new = [_group(of_group[key]) for key in sorted(of_group.keys() - known)]
        groups.bulk_create(new, ignore_conflicts=True)
        locked = groups.filter(pk__in=of_group).select_for_update(skip_locked=True).order_by("pk")
        counted: list[int] = []
        for group in locked:
            self._add(group, of_group[group.pk])
            counted += [failure.pk for failure in of_group[group.pk]]
        self.store.rows(Failure).filter(pk__in=counted).delete()
        return len(counted)

    def _add(self, group: ErrorGroup, failures: Sequence[Failure]) -> None:
        first = min(failures, key=lambda failure: failure.time)
        last = max(failures, key=lambda failure: failure.time)
        group.count += len(failures)
        if first.time < group.first_seen:
            group.first_seen, group.first_instance = first.time, first.instance
        if last.time >= group.last_seen:
            group.last_seen, group.last_instance = last.time, last.instance
        if group.muted_until is not None and last.time >= group.muted_until:
            group.muted_by, group.muted_until = "", None
        group.save(using=self.store.alias)

    def trim(self, *, before: datetime, limit: int = 500) -> int:
        failed = self.store.rows(Instance).filter(error=OuterRef("pk")).order_by()
        with self.store.atomic():
            old = self.store.rows(ErrorGroup).filter(last_seen__lt=before, note="", muted_by="")
            free = old.filter(~Exists(failed)).select_for_update(skip_locked=True)
            keys = [group.pk for group in free.order_by("pk")[:limit]]
            self.store.rows(ErrorGroup).filter(pk__in=keys).delete()
        return len(keys)

    def mute(self, group: ErrorGroup, *, by: str, until: datetime | None = None) -> None:
        rows = self.store.rows(ErrorGroup).filter(pk=group.pk)
        rows.update(muted_by=by, muted_until=until)

    def annotate(self, group: ErrorGroup, note: str) -> None:
        self.store.rows(ErrorGroup).filter(pk=group.pk).update(note=note)


def _group(failures: Sequence[Failure]) -> ErrorGroup:
    """Return the row of a new group whose count is still 0."""
    first = min(failures, key=lambda failure: failure.time)
    facts = {name: getattr(first, name) for name in _FACTS}
    seen = {"first_seen": first.time, "last_seen": first.time}
    instances = {"first_instance": first.instance, "last_instance": first.instance}
    return ErrorGroup(pk=first.group, count=0, **facts, **seen, **instances)


# Adding the counts of daemons, and noting what a daemon still owes when it ends.


class _HasEnded(Exception):
    """The daemon's identity has ended: its uncounted events are counted from the log."""


# Counting events from the log: what daemons owe, or everything for a recount.

# The number of Instances in one query.
CHUNK = 1000
_NAMES = ("pk", "instance", "attempt", "kind", "time")


# Folding: many rows are replaced by one, so that the table stays small.

KEEP_MINUTES, KEEP_HOURS = timedelta(days=2), timedelta(days=90)
# A minute that ended this long ago gets hardly any more rows.
IS_OVER = timedelta(minutes=2)
# The number of groups (span, start, Type) that one fold looks at.
GROUPS = 100


def _no_usage(row: Usage, hour: datetime) -> Usage:
    """Return an unsaved row for the same daemon in an hour, with the numbers 0."""
    numbers = {"capacity_us": 0, "busy_us": 0, "ended": 0, "memory": 0}
    return Usage(span=Span.HOUR, start=hour, daemon=row.daemon, name=row.name, **numbers)


def _hour(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


class Statistics(Part):
    """Counts by minute and Type."""

    def position(self) -> int:
        return self.store.vendor.log_position(self.store.connection)

    def add(self, daemon: UUID, counts: Counts) -> bool:
        try:
            with self.store.atomic():
                # Code that ends the identity locks the daemon's row, so it comes before this or
                # after.
                own = self.rows(Daemon).filter(uuid=daemon)
                is_there = own.update(counted=self.position())
                if not is_there or self.rows(Uncounted).filter(daemon=daemon).exists():
                    raise _HasEnded
                self.rows(Statistic).bulk_create(counts.rows())
                self.rows(Usage).bulk_create(period.row(daemon) for period in counts.usage)
        except _HasEnded:
            return False
        except DatabaseError:
            # A lock of another session, or a full disk: the daemon goes on and renews its lease.
            if not self.store.connection.is_usable():
                raise
            return False
        return True

    def owe(self, daemon: UUID, who: str, counted: int | None, until: int | None) -> None:
        if counted is None:
            return
        position = self.position()
        until = position if until is None else min(until, position)
        owed = {"who": who, "after": counted, "until": until}
        self.rows(Uncounted).get_or_create(daemon=daemon, defaults=owed)

    def pay(self, limit: int = 20_000) -> int:
        with self.store.atomic():
            open = self._open_debts().order_by("pk")
            owed = open.select_for_update(skip_locked=True).first()
            if owed is None:
                self._forget()
                return 0
            own = Q(who=owed.who) | Q(who__startswith=f"{owed.who} worker ")
            records = self.rows(LogRecord).filter(pk__gt=owed.after, pk__lte=owed.until)
            found = list(records.order_by("pk").values_list("pk", flat=True)[:limit])
            until = found[-1] if len(found) == limit else owed.until
            piece = records.filter(own, pk__lte=until, counted=None)
            self.rows(Statistic).bulk_create(self.counted(piece).rows())
            self.rows(Uncounted).filter(pk=owed.pk).update(after=until)
            return max(1, len(found))

    def are_owed(self) -> bool:
        """Return whether a daemon has left LogRecords uncounted."""
        return self._open_debts().exists()

    def _open_debts(self) -> QuerySet[Uncounted]:
        return self.rows(Uncounted).filter(after__lt=F("until"))

    def _forget(self) -> None:
        """Delete the notes of debts that have been counted, if the daemon is gone."""
        living = self.rows(Daemon).values("uuid")
        done = self.rows(Uncounted).filter(after__gte=F("until")).exclude(daemon__in=living)
        if done.exists():
            done.delete()

    def counted(self, records: QuerySet[LogRecord]) -> Counts:
        counts = Counts()
        records = records.filter(kind__in=COUNTED, instance__isnull=False)
        rows = list(records.order_by("pk").values_list(*_NAMES))
        for start in range(0, len(rows), CHUNK):
            self._count(counts, rows[start : start + CHUNK])
        return counts

    def _count(self, counts: Counts, rows: Sequence[tuple[Any, ...]]) -> None:
        keys = {key for _, key, *_ in rows}
        log = self.rows(LogRecord).filter(instance__in=keys)
        starts = log.filter(kind=Event.START).values_list("instance", "attempt", "time")
        began = {(key, attempt): time for key, attempt, time in starts}
        types, reasons = self._instances(keys)
        redriven = log.filter(kind=Event.REDRIVE, detail__gt="").order_by("pk")
        redrives = list(redriven.values_list("pk", "instance", "detail"))
        for pk, key, attempt, kind, time in rows:
            if key not in types:
                continue  # it has been removed meanwhile
            reason = ""
            if kind == Event.FAIL:
                later = (why for at, own, why in redrives if own == key and at > pk)
                reason = next(later, None) or reasons[key] or Reason.ERROR.value
            start = began.get((key, attempt)) if kind != Event.START else None
            counts.add(types[key], kind, time, reason=reason, began=start)

    def _instances(self, keys: Collection[int]) -> tuple[dict[int, str], dict[int, str]]:
        rows = self.rows(Instance).filter(pk__in=keys)
        found = list(rows.values_list("pk", "type__identifier", "reason"))
        return {key: type for key, type, _ in found}, {key: reason for key, _, reason in found}

    def fold(self, now: datetime, limit: int = 1000) -> int:
        with self.store.atomic():
            rows = self._old(now)[:limit] or self._several(now)[:limit]
            keys = [row.pk for row in rows]
            locked = self.rows(Statistic).filter(pk__in=keys).order_by("pk")
            folded: dict[tuple[Span, datetime, str], Cell] = defaultdict(Cell)
            rows = list(locked.select_for_update(skip_locked=True))
            for row in rows:
                folded[self._into(row, now)].add(row)
            self.rows(Statistic).filter(pk__in=[row.pk for row in rows]).delete()
            self.rows(Statistic).bulk_create(cell.row(*key) for key, cell in folded.items())
            return len(rows)

    def _old(self, now: datetime) -> QuerySet[Statistic]:
        """Return the rows of minutes and hours that are older than rows are kept."""
        minutes = Q(span=Span.MINUTE, start__lt=_hour(now - KEEP_MINUTES))
        hours = Q(span=Span.HOUR, start__lt=_hour(now - KEEP_HOURS))
        return self.rows(Statistic).filter(minutes | hours).order_by("pk")

    def _several(self, now: datetime) -> QuerySet[Statistic]:
        """Return the rows that share span, start and Type with another row."""
        over = self.rows(Statistic).filter(start__lt=now - IS_OVER)
        several = over.values("span", "start", "type").annotate(number=Count("pk"))
        found = several.filter(number__gt=1).order_by("span", "start", "type")[:GROUPS]
        groups = Q(pk__in=())
        for one in found:
            groups |= Q(span=one["span"], start=one["start"], type=one["type"])
        return self.rows(Statistic).filter(groups).order_by("pk")

    def fold_usage(self, now: datetime, limit: int = 1000) -> int:
        minutes = self.rows(Usage).filter(span=Span.MINUTE, start__lt=_hour(now - KEEP_MINUTES))
        hours = self.rows(Usage).filter(span=Span.HOUR, start__lt=_hour(now - KEEP_HOURS))
        over = list(hours.order_by("start").values_list("pk", flat=True)[:limit])
        first = minutes.order_by("start").first()
        if first is None and not over:
            return 0
        with self.store.atomic():
            self.rows(Usage).filter(pk__in=over).delete()
            folded = 0 if first is None else self._fold_hour(minutes, _hour(first.start), limit)
        return len(over) + folded

    def _fold_hour(self, minutes: QuerySet[Usage], hour: datetime, limit: int) -> int:
        """Replace the minutes of one hour by a row for each daemon."""
        rows = minutes.filter(start__lt=hour + timedelta(hours=1)).order_by("daemon", "start", "pk")
        keys = list(rows.values_list("pk", flat=True)[:limit])
        locked = self.rows(Usage).filter(pk__in=keys).order_by("pk")
        folded: dict[UUID, Usage] = {}
        rows = list(locked.select_for_update(skip_locked=True))
        for row in rows:
            into = folded.setdefault(row.daemon, _no_usage(row, hour))
            for name in ("capacity_us", "busy_us", "ended"):
                setattr(into, name, getattr(into, name) + getattr(row, name))
            into.memory = max(into.memory, row.memory)
        self.rows(Usage).filter(pk__in=[row.pk for row in rows]).delete()
        self.rows(Usage).bulk_create(folded.values())
        return len(rows)

    @staticmethod
    def _into(row: Statistic, now: datetime) -> tuple[Span, datetime, str]:
        """Return span, start and Type of the row that this row is added to."""
        span, start = Span(row.span), row.start
        if span is Span.MINUTE and start < _hour(now - KEEP_MINUTES):
            span, start = Span.HOUR, _hour(start)
        if span is Span.HOUR and start < _hour(now - KEEP_HOURS):
            span, start = Span.TOTAL, EPOCH
        return span, start, row.type
