"""Folding: many rows are replaced by one, so that the table stays small."""

from collections import defaultdict
from datetime import timedelta

from django.db.models import Count, Q

from ....models import EPOCH, Span, Statistic, Usage
from ...counts import Cell
from ...protocol import Statistics

KEEP_MINUTES, KEEP_HOURS = timedelta(days=2), timedelta(days=90)
# A minute that ended this long ago gets hardly any more rows.
IS_OVER = timedelta(minutes=2)
# The number of groups (span, start, Type) that one fold looks at.
GROUPS = 100


class Folding(Statistics):
    def fold(self, now, limit=1000):
        with self.store.atomic():
            rows = self._old(now)[:limit] or self._several(now)[:limit]
            keys = [row.pk for row in rows]
            locked = self.rows(Statistic).filter(pk__in=keys).order_by("pk")
            folded = defaultdict(Cell)
            rows = list(locked.select_for_update(skip_locked=True))
            for row in rows:
                folded[self._into(row, now)].add(row)
            self.rows(Statistic).filter(pk__in=[row.pk for row in rows]).delete()
            self.rows(Statistic).bulk_create(cell.row(*key) for key, cell in folded.items())
            return len(rows)

    def _old(self, now):
        """Return the rows of minutes and hours that are older than rows are kept."""
        minutes = Q(span=Span.MINUTE, start__lt=_hour(now - KEEP_MINUTES))
        hours = Q(span=Span.HOUR, start__lt=_hour(now - KEEP_HOURS))
        return self.rows(Statistic).filter(minutes | hours).order_by("pk")

    def _several(self, now):
        """Return the rows that share span, start and Type with another row."""
        over = self.rows(Statistic).filter(start__lt=now - IS_OVER)
        several = over.values("span", "start", "type").annotate(number=Count("pk"))
        found = several.filter(number__gt=1).order_by("span", "start", "type")[:GROUPS]
        groups = Q(pk__in=())
        for one in found:
            groups |= Q(span=one["span"], start=one["start"], type=one["type"])
        return self.rows(Statistic).filter(groups).order_by("pk")

    def fold_usage(self, now, limit=1000):
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

    def _fold_hour(self, minutes, hour, limit):
        """Replace the minutes of one hour by a row for each daemon."""
        rows = minutes.filter(start__lt=hour + timedelta(hours=1)).order_by("daemon", "start", "pk")
        keys = list(rows.values_list("pk", flat=True)[:limit])
        locked = self.rows(Usage).filter(pk__in=keys).order_by("pk")
        folded = {}
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
    def _into(row, now):
        """Return span, start and Type of the row that this row is added to."""
        span, start = Span(row.span), row.start
        if span is Span.MINUTE and start < _hour(now - KEEP_MINUTES):
            span, start = Span.HOUR, _hour(start)
        if span is Span.HOUR and start < _hour(now - KEEP_HOURS):
            span, start = Span.TOTAL, EPOCH
        return span, start, row.type


def _no_usage(row, hour):
    """Return an unsaved row for the same daemon in an hour, with the numbers 0."""
    numbers = {"capacity_us": 0, "busy_us": 0, "ended": 0, "memory": 0}
    return Usage(span=Span.HOUR, start=hour, daemon=row.daemon, name=row.name, **numbers)


def _hour(time):
    return time.replace(minute=0, second=0, microsecond=0)
