"""Counting events from the log: what daemons owe, or everything for a recount."""

from django.db.models import F, Q

from ....models import Daemon, Instance, LogRecord, Statistic, Uncounted
from ....states import Event, Reason
from ...counts import COUNTED, Counts
from ...protocol import Statistics

# The number of Instances in one query.
CHUNK = 1000
_NAMES = ("pk", "instance", "attempt", "kind", "time")


class Counting(Statistics):
    def pay(self, limit=20_000):
        with self.store.atomic():
            open = self.rows(Uncounted).filter(after__lt=F("until")).order_by("pk")
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

    def _forget(self):
        """Delete the notes of debts that have been counted, if the daemon is gone."""
        living = self.rows(Daemon).values("uuid")
        done = self.rows(Uncounted).filter(after__gte=F("until")).exclude(daemon__in=living)
        if done.exists():
            done.delete()

    def counted(self, records):
        counts = Counts()
        records = records.filter(kind__in=COUNTED, instance__isnull=False)
        rows = list(records.order_by("pk").values_list(*_NAMES))
        for start in range(0, len(rows), CHUNK):
            self._count(counts, rows[start : start + CHUNK])
        return counts

    def _count(self, counts, rows):
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

    def _instances(self, keys):
        rows = self.rows(Instance).filter(pk__in=keys)
        found = list(rows.values_list("pk", "type__identifier", "reason"))
        return {key: type for key, type, _ in found}, {key: reason for key, _, reason in found}
