"""Setting gates and limits, in the portable store."""

import logging
from datetime import timedelta

from .... import messages, text
from ....exceptions import GateChanged
from ....models import Gate, Kind, Limit, Type
from ..base import ORMBase

# When a gate is set, the gates that opened this long ago are deleted.
KEPT = timedelta(days=1)
# The columns of a Limit that limits nothing.
NOTHING = {
    "max_running": None,
    "max_running_per_collection": None,
    "rate": "",
    "per_second": None,
    "burst": 1,
    "weight": 1.0,
    "max_waiting": None,
    "max_wait": None,
}


class Setting(ORMBase):
    def shut(self, scope, mode, *, who="", reason="", until=None, expected=None):
        with self.atomic():
            now = self.now()
            columns = {"mode": mode, "reason": reason, "until": until, "who": who, "since": now}
            # If two operators shut an open gate at once, the second finds the row of the first.
            rows = self.rows(Gate).select_for_update(of=("self",)).select_related("type")
            gate, created = rows.get_or_create(
                subject=scope.subject, defaults=columns | scope.columns
            )
            was = None
            if not created:
                # Take the time after the lock: another writer may have used a later time than ours.
                columns["since"] = now = self.now()
                was = _if_shut(gate, now)
            check_expected(scope, was, expected)
            if not created:
                self.rows(Gate).filter(pk=gate.pk).update(**columns)
                gate = self.rows(Gate).select_related("type").get(pk=gate.pk)
            gate.was = was
            self._forget_open(now - KEPT)
            message = messages.gate_set(mode, until=until, reason=reason, was=was)
            self._log_scope(scope, now, who, Kind.GATE, message, mode)
            # Daemons must look again: the new mode may let Tasks go that the old one kept.
            self.tell()
            return gate

    def _forget_open(self, before):
        """Delete the gates that opened before this time, but for those that others set just now."""
        old = self.rows(Gate).filter(until__lt=before).select_for_update(skip_locked=True)
        keys = list(old.values_list("pk", flat=True))
        self.rows(Gate).filter(pk__in=keys).delete()

    def open(self, scope, *, who="", reason="", expected=None):
        with self.atomic():
            rows = self.rows(Gate).filter(subject=scope.subject)
            found = rows.select_for_update(of=("self",)).select_related("type").first()
            now = self.now()
            was = None if found is None else _if_shut(found, now)
            check_expected(scope, was, expected)
            if was is not None:
                # The row stays, because a scan needs to know since when the gate has been open.
                rows.update(until=now)
                message = messages.gate_set("open", reason=reason, was=was)
                self._log_scope(scope, now, who, Kind.GATE, message, "open")
                self.tell()
        return was

    def limit(self, scope, *, who="", **changes):
        with self.atomic():
            columns = NOTHING | changes | {"is_set": True, "who": who, "since": self.now()}
            # If two operators set the first limit at once, the second finds the row of the first.
            rows = self.rows(Limit).select_for_update()
            row, is_new = rows.get_or_create(
                subject=scope.subject, defaults=columns | scope.columns
            )
            now = self.now()
            if not is_new:
                before = _columns(row)
                after = before | changes
                if before == after and row.is_set:
                    return row
                columns = after | {"is_set": True, "who": who, "since": now}
                if before["per_second"] != after["per_second"]:
                    columns |= {"tokens": 0.0, "refilled": None}
                self.rows(Limit).filter(pk=row.pk).update(**columns)
                row.refresh_from_db(using=self.alias)
            message = messages.limits_set(_columns(row))
            self._log_scope(scope, now, who, Kind.LIMITS, message, "set")
            self.tell()
            return row

    def unlimit(self, scope, declared, *, who=""):
        with self.atomic():
            rows = self.rows(Limit).filter(subject=scope.subject)
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
            message = messages.limits_left_to_code(after, is_known=declared is not None)
            self._log_scope(scope, now, who, Kind.LIMITS, message, "left")
            self.tell()
        return True

    def declare(self, limits, *, who=""):
        """Write the limits that code declares, by Type, except where an operator has set some."""
        rows = self.rows(Limit).filter(type__identifier__in=limits, collection=None)
        known = {row.type.identifier: row for row in rows.select_related("type")}
        locked = set()
        for identifier, declared in limits.items():
            row = known.get(identifier)
            wanted = NOTHING | declared
            if (row is not None and row.is_set) or (
                NOTHING if row is None else _columns(row)
            ) == wanted:
                continue
            with self.unless_locked() as is_locked:
                self._declare(identifier, declared, wanted, who)
            if is_locked:
                locked.add(identifier)
        return locked

    def _declare(self, identifier, declared, wanted, who):
        now, subject = self.now(), f"type:{identifier}"
        # An operator may set this limit at the same moment.
        own = self.rows(Limit).filter(subject=subject, is_set=False)
        if not declared:
            own.delete()
        elif not own.update(**wanted, tokens=0.0, refilled=None, who=who, since=now):
            type = self.rows(Type).get(identifier=identifier)
            limit = Limit(subject=subject, type=type, who=who, since=now, **wanted)
            self.rows(Limit).bulk_create([limit], ignore_conflicts=True)
        message = messages.limits_declared(declared)
        self.log(Kind.LIMITS, message, subject=subject, time=now, who=who, detail="declared")
        self.tell()

    def _log_scope(self, scope, now, who, kind, message, detail):
        self.log(
            kind,
            message,
            # A lane's name may be longer than the column.
            subject=scope.subject[:255],
            time=now,
            who=who,
            detail=detail,
            level=logging.WARNING,
        )


def _columns(row):
    return {name: getattr(row, name) for name in NOTHING}


def _if_shut(gate, now):
    """Return the gate; None if it has been opened or has opened by itself."""
    return gate if gate.until is None or gate.until > now else None


def check_expected(scope, gate, expected):
    """Raise GateChanged if a gate (None if it is open) is not as ``expected``."""
    if expected is None or expected in ("open" if gate is None else gate.mode, gate and gate.since):
        return
    identifier = None if scope.type is None else scope.type.identifier
    raise GateChanged(
        f"The gate of {text.describe_target(identifier, scope.collection)} is not as expected: "
        f"it is {text.describe_gate(gate)}.",
        gate=gate,
    )
