"""Daemons in the portable store: identity, lease, expiry."""

import logging
import os
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

from django.db.models import Min

from ... import filelock
from ...exceptions import LeaseLost
from ...models import Daemon, Limit, Task
from ...modes import Mode
from ...states import Actor, Event, State
from ..values import Change, Lost, Outlook, Reconciled, Renewal, Swept
from .gates import Closed, Gates
from .limited import LIMITING, Limited
from .mending import Mending
from .moves import Moves


class Daemons(Limited, Gates, Mending):
    # The file that was joined, where the database is one.
    _file = None

    def join(self, facts, *, lease, old=None, holding=()):
        self._file = self.file_id()
        with self.atomic():
            # Whoever claims under the old identity locks its row first: such a
            # claim has finished before this, or will find the row gone.
            previous = self._locked(old) if old is not None else None
            now = self.now()
            row, created = self._row(facts, now, now + timedelta(seconds=lease), previous)
            if created:
                self._log_daemon(row, now, "started" if old is None else "joined again")
            lost = ()
            if previous is not None:
                self._move(previous, row, holding)
                lost = self._end(previous, now, Event.EXPIRE, str(row), "its dispatcher ended")
                previous.delete(using=self.alias)
            held = (
                self.rows(Task).filter(daemon=row).values_list("pk", "attempt", "instance__state")
            )
            kept = {(key, attempt): State(state) for key, attempt, state in held}
            return Reconciled(time=now, kept=kept, lost=tuple(lost), request=row.request)

    def _row(self, facts, now, until, previous):
        """Return the daemon's row and whether it is new: an answer may have got lost.

        What stands on the row of its last identity was said later than what it knows itself.
        """
        columns = asdict(facts) | {"types": list(facts.types), "lease_until": until, "seen": now}
        request = columns.pop("request")
        if previous is not None:
            request = previous.request
            if request:
                columns["request"] = request
        return self.rows(Daemon).update_or_create(
            uuid=facts.uuid,
            defaults=columns,
            create_defaults=columns | {"started": now, "request": request},
        )

    def _locked(self, uuid):
        return self.rows(Daemon).select_for_update().filter(uuid=uuid).first()

    def _move(self, previous, row, holding):
        """Hand what is still in the daemon's hands to its new identity."""
        wanted = set(holding)
        held = self.rows(Task).filter(daemon=previous, pk__in=[key for key, _ in wanted])
        kept = [
            key for key, attempt in held.values_list("pk", "attempt") if (key, attempt) in wanted
        ]
        self.rows(Task).filter(pk__in=kept).update(daemon=row)

    def _end(self, row, now, event, who, why, limit=None):
        """Take away what the daemon holds; returns each :class:`Lost` attempt."""
        tasks = self.rows(Task).filter(daemon=row).order_by("pk")
        held = list(tasks.values_list("pk", "attempt")[:limit])
        if not held:
            return []
        # A sweep does not wait for an attempt that is just about to end by itself.
        is_sweep = limit is not None
        moves = Moves(self, now).load([key for key, _ in held], waits=not is_sweep)
        level = logging.WARNING if event == Event.EXPIRE else logging.INFO
        actor = Actor.SWEEPER if event == Event.EXPIRE else Actor.HOLDER
        facts = {"event": event, "who": who, "message": why, "level": level}
        ended, refused = [], []
        for key, attempt in held:
            change = Change(instance=key, attempt=attempt, **facts)
            if moves.apply(change, actor=actor, holder=row.pk):
                ended.append(_lost(moves.instances[key], attempt))
            else:
                refused.append(key)
        moves.write()
        # What does not fit its Instance must not keep the daemon's row for ever.
        self.mend_tasks(refused, now, who)
        return ended

    def renew(self, daemon, *, lease, workers=(), idle=False, mode=Mode.RUNNING, channel=""):
        if self._file != self.file_id():
            # A connection goes on with the old file, which nobody else will ever see.
            raise LeaseLost("The database's file was removed or replaced.")
        with self.atomic():
            now = self.now()
            row = self.rows(Daemon).filter(uuid=daemon)
            renewed = row.update(
                lease_until=now + timedelta(seconds=lease),
                seen=now,
                workers=list(workers),
                idle=idle,
                mode=mode,
                channel=channel,
            )
            if not renewed:
                raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
            return Renewal(time=now, request=row.values_list("request", flat=True).get())

    def outlook(self, types, *, daemon=None):
        now = self.now()
        waiting = self.rows(Task).waiting()
        due, limited = self._first_due(types, now)
        return Outlook(
            due=self._due_in(due, limited, self._opens(now)),
            late=waiting.filter(start_before__lte=now).exists(),
            drops=self._drops(),
            **self._others_and_own(daemon, now),
        )

    def _first_due(self, types, now):
        """In how many seconds the first is due of what is not limited; and of what is, by limit."""
        rows = self.rows(Task).waiting().filter(type__identifier__in=types)
        lanes = rows.values_list("type", "type__identifier", "collection").annotate(Min("due_at"))
        closed = self._closed(now)
        limits = Closed(frozenset()).with_limits(self.rows(Limit).filter(LIMITING))
        first, limited = [], []
        for key, type, collection, due in lanes:
            seconds = (due - now).total_seconds()
            if closed.shuts(key, collection):
                continue
            if limits.shuts(key, collection):
                limited.append(((type, collection), seconds))
            else:
                first.append(seconds)
        return min(first, default=None), limited

    def _others_and_own(self, daemon, now):
        """What an outlook tells of the daemons' rows: who is lost, and what is asked."""
        rows = list(self.rows(Daemon))
        own = [row.request for row in rows if row.uuid == daemon]
        others = [row for row in rows if row.uuid != daemon]
        lost = any(self.is_over(row, now) or (row.lock and _is_dead(row.pid)) for row in others)
        return {"lost": lost, "request": own[0] if own else None}

    def leave(self, daemon):
        with self.atomic():
            row = self._locked(daemon)
            if row is None:
                return
            now = self.now()
            self._end(row, now, Event.RELEASE, str(row), "the daemon stopped")
            row.delete(using=self.alias)
            self._log_daemon(row, now, "stopped")

    def sweep(self, *, daemon=None, limit=500):
        daemons, lost = [], []
        others = self.rows(Daemon).exclude(uuid=daemon) if daemon else self.rows(Daemon).all()
        now = self.now()
        who = self._name(daemon)
        for row in [row for row in others.order_by("pk") if self.is_over(row, now)]:
            gone, taken = self.expire_lost(row, who, limit - len(lost))
            lost += taken
            if gone:
                daemons.append(str(row))
        return Swept(daemons=tuple(daemons), lost=tuple(lost))

    def _name(self, daemon):
        row = self.rows(Daemon).filter(uuid=daemon).first() if daemon else None
        return str(row or "")

    def is_over(self, row, now):
        if row.lock:
            return filelock.is_free(self._lock_path(row))
        return row.lease_until <= now

    def _lock_path(self, row):
        return (self.lock_folder or Path()) / row.lock

    def expire_lost(self, candidate, who, limit):
        """Expire what a lost daemon holds; returns whether its row is gone, and what was lost."""
        with self.atomic():
            rows = self.rows(Daemon).select_for_update(skip_locked=True)
            row = rows.filter(pk=candidate.pk).first()
            now = self.now()
            if row is None or not self.is_over(row, now):
                return False, []
            lost = self._end(row, now, Event.EXPIRE, who, f"daemon {row} was lost", limit)
            if self.rows(Task).filter(daemon=row).exists():
                return False, lost
            row.delete(using=self.alias)
            self._log_daemon(
                row, now, f"lost; {len(lost)} of its Tasks were taken away", logging.WARNING, who
            )
        if row.lock:
            filelock.remove(self._lock_path(row))
        return True, lost

    def _log_daemon(self, row, now, message, level=logging.INFO, who=""):
        self.log(
            subject=f"daemon:{row}", time=now, who=who or str(row), message=message, level=level
        )


def _lost(instance, attempt):
    return Lost(
        type=instance.type.identifier,
        uuid=instance.uuid,
        attempt=attempt,
        stale=instance.state == State.FAILED,
    )


def _is_dead(pid):
    """Whether a daemon's supervisor is dead: what it has left may still hold its lock."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except ProcessLookupError:
        return True
    except OSError:
        return False  # somebody else's, or there is no /proc
    return state in b"ZX"  # nobody has asked for its end yet
