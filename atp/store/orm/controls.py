"""Gates and limits in the portable store: setting them."""

import logging
from datetime import timedelta

from ... import told
from ...exceptions import GateChanged
from ...models import Gate, Limit, Type
from .base import ORMBase

# Gates that have been open for so long are forgotten when the next one is set.
KEPT = timedelta(days=1)
# What a row of Limit says where nothing is limited.
NOTHING = {"max_running": None, "rate": "", "per_second": None, "burst": 1, "weight": 1.0}


class Controls(ORMBase):
    def shut(self, place, mode, *, who="", reason="", until=None, expected=None):
        with self.atomic():
            now = self.now()
            columns = {"mode": mode, "reason": reason, "until": until, "who": who, "since": now}
            # Of two who shut what was open, the second finds the row of the first.
            rows = self.rows(Gate).select_for_update(of=("self",)).select_related("type")
            gate, created = rows.get_or_create(
                subject=place.subject, defaults=columns | place.columns
            )
            was = None
            if not created:
                # The time is that of its turn: the one before may have taken its own later.
                columns["since"] = now = self.now()
                was = _if_shut(gate, now)
            check_expected(place, was, expected)
            if not created:
                self.rows(Gate).filter(pk=gate.pk).update(**columns)
                gate = self.rows(Gate).select_related("type").get(pk=gate.pk)
            gate.was = was
            self.rows(Gate).filter(until__lt=now - KEPT).delete()
            until = f", until {told.in_utc(until)}" if until else ""
            self._log_gate(place, now, who, f"{mode}{until}", reason, was)
            # What one gate lets go, and another time does, is to be known.
            self.tell()
            return gate

    def open(self, place, *, who="", reason="", expected=None):
        with self.atomic():
            rows = self.rows(Gate).filter(subject=place.subject)
            found = rows.select_for_update(of=("self",)).select_related("type").first()
            now = self.now()
            was = None if found is None else _if_shut(found, now)
            check_expected(place, was, expected)
            if was is not None:
                # A scan asks since when it has been open.
                rows.update(until=now)
                self._log_gate(place, now, who, "open", reason, was)
                self.tell()
        return was

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
            self._log_place(place, now, who, f"limits: {_told(_columns(row))}")
            self.tell()
            return row

    def unlimit(self, place, declared, *, who=""):
        with self.atomic():
            rows = self.rows(Limit).filter(subject=place.subject)
            row = rows.select_for_update().first()
            if row is None or not row.is_set:
                return False
            now, before = self.now(), _columns(row)
            after = before if declared is None else NOTHING | declared
            if after == NOTHING:
                rows.delete()
            else:
                columns = after | {"is_set": False, "who": who, "since": now}
                if before["per_second"] != after["per_second"]:
                    columns |= {"tokens": 0.0, "refilled": None}
                rows.update(**columns)
            whose = (
                "as they were, until the next registration" if declared is None else "the code's"
            )
            self._log_place(place, now, who, f"limits: {whose}: {_told(after)}")
            self.tell()
        return True

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
        said = ", ".join(f"{name}: {value}" for name, value in declared.items()) or "none"
        self.log(subject=subject, time=now, who=who, message=f"limits by the code: {said}")
        self.tell()

    def _log_gate(self, place, now, who, message, reason, was):
        why = f": {reason}" if reason else ""
        before = f" (was: {told.state_of(was, told.in_utc)})" if was is not None else ""
        self._log_place(place, now, who, f"gate: {message}{why}{before}")

    def _log_place(self, place, now, who, message):
        # A lane's name may be longer than what a record has room for.
        self.log(
            subject=place.subject[:255], time=now, who=who, message=message, level=logging.WARNING
        )


def _columns(row):
    return {name: getattr(row, name) for name in NOTHING}


def _told(limits):
    found = [f"max_running: {limits['max_running']}"] if limits["max_running"] is not None else []
    found += [f"rate: {limits['rate']}, burst: {limits['burst']}"] if limits["rate"] else []
    found += [f"weight: {limits['weight']:g}"] if limits["weight"] != 1 else []
    return "; ".join(found) or "none"


def _if_shut(gate, now):
    """The gate, or None if it has opened by itself or been opened."""
    return gate if gate.until is None or gate.until > now else None


def check_expected(place, gate, expected):
    """Raises GateChanged if a gate, None where it is open, is not as expected."""
    if expected is None or expected in ("open" if gate is None else gate.mode, gate and gate.since):
        return
    identifier = None if place.type is None else place.type.identifier
    raise GateChanged(
        f"The gate of {told.where(identifier, place.collection)} is not as expected: "
        f"it is {told.state_of(gate)}.",
        gate=gate,
    )
