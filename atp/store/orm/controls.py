"""Gates and limits in the portable store: setting them."""

import logging
from datetime import timedelta

from django.db.models import Q

from ...models import Gate, Limit, Type
from .base import ORMBase

# Gates that have been open for so long are forgotten when the next one is set.
KEPT = timedelta(days=1)
# What a row of Limit says where nothing is limited.
NOTHING = {"max_running": None, "rate": "", "per_second": None, "burst": 1, "weight": 1.0}


class Controls(ORMBase):
    def shut(self, place, mode, *, who="", reason="", until=None):
        with self.atomic():
            now = self.now()
            columns = {"mode": mode, "reason": reason, "until": until, "who": who, "since": now}
            gate, _ = self.rows(Gate).update_or_create(
                subject=place.subject, defaults=columns, create_defaults=columns | place.columns
            )
            told = f", until {until:%Y-%m-%d %H:%M:%S} UTC" if until else ""
            self.rows(Gate).filter(until__lt=now - KEPT).delete()
            self._log_place(place, now, who, f"gate: {mode}{told}{f': {reason}' if reason else ''}")
            # What one gate lets go, and another time does, is to be known.
            self.tell()
            return gate

    def open(self, place, *, who="", reason=""):
        with self.atomic():
            now = self.now()
            gate = self.rows(Gate).filter(Q(until=None) | Q(until__gt=now), subject=place.subject)
            # A scan asks since when it has been open.
            found = gate.update(until=now)
            if found:
                told = f": {reason}" if reason else ""
                self._log_place(place, now, who, f"gate: open{told}")
                self.tell()
        return bool(found)

    def limit(self, place, *, who="", **changes):
        with self.atomic():
            now = self.now()
            rows = self.rows(Limit).select_for_update().filter(subject=place.subject)
            row = rows.first()
            before = NOTHING if row is None else _columns(row)
            after = before | changes
            columns = after | {"is_set": True, "who": who, "since": now}
            if row is None or before["per_second"] != after["per_second"]:
                columns |= {"tokens": 0.0, "refilled": None}
            if row is None:
                row = self.rows(Limit).create(subject=place.subject, **place.columns, **columns)
            elif before != after or not row.is_set:
                rows.update(**columns)
                row.refresh_from_db(using=self.alias)
            else:
                return row
            self._log_place(place, now, who, f"limits: {_told(row)}")
            self.tell()
            return row

    def unlimit(self, place, *, who=""):
        with self.atomic():
            found, _ = self.rows(Limit).filter(subject=place.subject).delete()
            if found:
                self._log_place(place, self.now(), who, "limits: as the code has them")
                self.tell()
        return bool(found)

    def declare(self, limits, *, who=""):
        """Write what code declares, by identifier, where no operator has set anything."""
        rows = self.rows(Limit).filter(type__identifier__in=limits, collection=None)
        known = {row.type.identifier: row for row in rows.select_related("type")}
        for identifier, declared in limits.items():
            row = known.get(identifier)
            wanted = NOTHING | declared
            if (row is not None and row.is_set) or (
                NOTHING if row is None else _columns(row)
            ) == wanted:
                continue
            with self.atomic():
                self._declare(identifier, declared, wanted, who)

    def _declare(self, identifier, declared, wanted, who):
        now, subject = self.now(), f"type:{identifier}"
        # An operator may set the same just now.
        own = self.rows(Limit).filter(subject=subject, is_set=False)
        if not declared:
            own.delete()
        elif not own.update(**wanted, tokens=0.0, refilled=None, who=who, since=now):
            type = self.rows(Type).get(identifier=identifier)
            limit = Limit(subject=subject, type=type, who=who, since=now, **wanted)
            self.rows(Limit).bulk_create([limit], ignore_conflicts=True)
        told = ", ".join(f"{name}: {value}" for name, value in declared.items()) or "none"
        self.log(subject=subject, time=now, who=who, message=f"limits by the code: {told}")
        self.tell()

    def _log_place(self, place, now, who, message):
        # A lane's name may be longer than what a record has room for.
        self.log(
            subject=place.subject[:255], time=now, who=who, message=message, level=logging.WARNING
        )


def _columns(row):
    return {name: getattr(row, name) for name in NOTHING}


def _told(row):
    told = [f"max_running: {row.max_running}"] if row.max_running is not None else []
    told += [f"rate: {row.rate}, burst: {row.burst}"] if row.rate else []
    told += [f"weight: {row.weight:g}"] if row.weight != 1 else []
    return "; ".join(told) or "none"
