"""Giving a daemon an identity, and taking over an old one."""

from dataclasses import asdict
from datetime import timedelta

from .... import messages
from ....exceptions import LeaseLost
from ....models import Daemon, Kind, SpareLease, Task
from ....states import Event, State
from ...facts import Reconciled
from .holding import Holding


class Identity(Holding):
    def join(self, facts, *, lease, old=None, holding=()):
        if old is None:
            self._file = None
        self._check_file(is_joining=True)
        with self.atomic():
            # A claim under the old identity locks its row first. So such a claim has committed
            # before this statement, or finds the row gone.
            previous = self._previous(old, waits=True)
            now = self.now()
            until = now + timedelta(seconds=lease)
            if previous is not None:
                # From here on the daemon counts its events under the new identity.
                self._owe(previous)
            row, created = self._row(facts, now, until, previous)
            self._hand_on_order(previous)
            if created:
                if old is None:
                    self._log_daemon(row, now, Kind.STARTED, messages.daemon_started())
                else:
                    self._log_daemon(row, now, Kind.REJOINED, messages.daemon_rejoined())
            return self._take_over(previous, row, now, until, holding)

    def settle(self, old, daemon, *, lease, holding=()):
        with self.atomic():
            row = self.rows(Daemon).filter(uuid=daemon).first()
            if row is None:
                raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
            previous, now = self._previous(old), self.now()
            if previous is not None and previous.is_ours and previous.request and not row.request:
                # An operator wrote the order on the old row while a lock kept that from being
                # moved.
                row.request = previous.request
                self.rows(Daemon).filter(pk=row.pk).update(request=row.request)
            self._hand_on_order(previous)
            return self._take_over(previous, row, now, now + timedelta(seconds=lease), holding)

    def _hand_on_order(self, previous):
        """Clear the order of an old row: it is on the new one, where it may be taken back."""
        if previous is not None and previous.is_ours and previous.request:
            self.rows(Daemon).filter(pk=previous.pk).update(request="")

    def _previous(self, uuid, *, waits=False):
        """Lock and return the row of an old identity, or None; ``is_ours``: the lock was taken."""
        own = self.rows(Daemon).filter(uuid=uuid)
        row = own.first() if uuid is not None else None
        if row is not None:
            is_ours = self._lock_identity(row, waits=waits)
            row = own.first()
        if row is not None:
            row.is_ours = is_ours
        return row

    def _take_over(self, previous, row, now, until, holding):
        """Move the Tasks in ``holding`` from the old row to the new one; expire the others."""
        lost, left = (), {}
        if previous is not None:
            self._move(previous, row, holding)
            if previous.is_ours:
                why = messages.dispatcher_ended()
                lost = self._end(previous, now, Event.EXPIRE, str(row), why, spare=holding)
            wanted = set(holding)
            left = {pair: state for pair, state in self._held_by(previous) if pair in wanted}
            if previous.is_ours and not self.rows(Task).filter(daemon=previous).exists():
                self._delete(previous)
                previous = None
            elif left:
                self._prolong(previous, until)
        return Reconciled(
            time=now,
            kept=dict(self._held_by(row)),
            left=left,
            lost=tuple(lost),
            is_settled=previous is None,
            request=row.request,
            position=row.counted or 0,
        )

    def _held_by(self, row):
        """Return pairs for the Tasks that a daemon holds: (Instance's key, attempt), and state."""
        held = self.rows(Task).filter(daemon=row).values_list("pk", "attempt", "instance__state")
        return [((key, attempt), State(state)) for key, attempt, state in held]

    def _row(self, facts, now, until, previous):
        """Return the daemon's row, and whether it is new: a repeated join finds it.

        An order on the row of its old identity is newer than the one in ``facts``.
        """
        columns = asdict(facts) | {"types": list(facts.types), "lease_until": until, "seen": now}
        request = columns.pop("request")
        if previous is not None and previous.is_ours:
            request = previous.request
            if request:
                columns["request"] = request
        row, created = self.rows(Daemon).update_or_create(
            uuid=facts.uuid,
            defaults=columns,
            create_defaults=columns
            | {"started": now, "request": request, "counted": self.statistics.position()},
        )
        if created:
            self._succeed(row)
        if not row.lock:
            self.rows(SpareLease).get_or_create(daemon=row, defaults={"until": now})
        return row, created

    def _succeed(self, row):
        """Note that from now on the LogRecords signed with this host and pid are this daemon's.

        In a container, a daemon that is started again has the pid of the killed one.
        """
        alike = self.rows(Daemon).filter(host=row.host, pid=row.pid, signed_until=None)
        others = alike.exclude(pk=row.pk).select_for_update(skip_locked=True)
        keys = [other.pk for other in others.only("pk")]
        if keys:
            self.rows(Daemon).filter(pk__in=keys).update(signed_until=row.counted)

    def _prolong(self, row, until):
        """Extend a lease on the daemon's row, or on the spare lease if that row is locked."""
        rows = self.rows(Daemon).filter(pk=row.pk)
        spare = self.rows(SpareLease).filter(daemon=row)
        if rows.select_for_update(skip_locked=True, no_key=True).exists():
            rows.update(lease_until=until)
        elif spare.select_for_update(skip_locked=True, no_key=True).exists():
            spare.update(until=until)

    def _move(self, previous, row, holding):
        """Move the Tasks in ``holding`` to the daemon's new identity, except locked ones."""
        wanted = set(holding)
        held = self.rows(Task).filter(daemon=previous, pk__in=[key for key, _ in wanted])
        free = held.select_for_update(skip_locked=True).order_by("pk")
        kept = [
            key for key, attempt in free.values_list("pk", "attempt") if (key, attempt) in wanted
        ]
        self.rows(Task).filter(pk__in=kept).update(daemon=row)
