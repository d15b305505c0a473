"""Identity, lease, Tasks of lost daemons, next due time."""

import logging
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db.models import Min

from ... import commands, folders, messages
from ...commands import DaemonCommand, Mode
from ...exceptions import IllegalOrder, LeaseLost, UnknownDaemon
from ...models import Daemon, Instance, Kind, Limit, Schedule, SpareLease, Task, lost_detail
from ...placement import EXECUTOR
from ...states import Actor, Event, State
from ..facts import (
    NO_FACTS,
    NO_MISFITS,
    DaemonFacts,
    EngineFacts,
    Lost,
    Misfits,
    Outlook,
    Reconciled,
    Renewal,
    Swept,
)
from ..values import Move
from .base import Part
from .control import Closed
from .limits import LIMITING
from .transitions import Mover


def _lost(instance: Instance, attempt: int) -> Lost:
    return Lost(
        type=instance.type.identifier,
        uuid=instance.uuid,
        attempt=attempt,
        stale=instance.state == State.FAILED,
    )


def _is_dead(pid: int) -> bool:
    """Return whether a daemon's supervisor is dead; its children may still hold its file lock."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except ProcessLookupError:
        return True
    except OSError:
        return False  # somebody else's, or there is no /proc
    return state in b"ZX"  # nobody has asked for its end yet


def _illegal(row: Daemon, order: DaemonCommand, doing: str) -> IllegalOrder:
    told = f"Daemon {row} cannot be told to {order.label}: it {doing}."
    return IllegalOrder(told, order=order, mode=row.aim)


def _doing(row: Daemon) -> str:
    """Return words for what a daemon does now, or has been told to do."""
    if row.mode == row.aim:
        return f"is {row.mode}"
    [told] = [order for order, (_, aim) in commands.MODE_CHANGES.items() if aim == row.aim]
    return f"has been told to {told.label}"


class Daemons(Part):
    """Daemons: identity, lease, held Tasks, outlook, and commands to them."""

    # A daemon's identity and the Tasks that it holds: locking them, and taking them away.

    _file: tuple[int, ...] | None = None

    def _check_file(self, *, is_joining: bool = False) -> None:
        """Raise LeaseLost if the database's file was removed or replaced since the daemon joined.

        The connections still write to the old file, which nobody else will ever see. The caller
        opens new ones, and joins again.
        """
        file = self.store.file_id()
        if self._file != file and not (is_joining and self._file is None):
            self._file = None
            raise LeaseLost("The database's file was removed or replaced.")
        self._file = file

    def _lock_identity(self, row: Daemon, *, waits: bool) -> bool:
        """Lock a daemon's row and its spare lease; returns whether both are locked.

        A daemon that claims or renews under this identity has locked one of them. With
        ``waits``, each statement waits as long as the session's lock timeout allows.
        """
        for model, own in ((Daemon, {"pk": row.pk}), (SpareLease, {"daemon": row})):
            rows = self.rows(model).filter(**own)
            is_free = True
            with self.store.unless_locked() as is_locked:
                is_there = rows.exists()
                is_free = bool(rows.select_for_update(skip_locked=not waits)) or not is_there
            if is_locked or not (is_free or waits):
                return False
        return True

    def _owe(self, row: Daemon) -> None:
        """Record the events that the daemon has recorded under this identity but not counted."""
        rows = self.rows(Daemon).filter(pk=row.pk).values_list("counted", "signed_until")
        for counted, until in rows:
            self.store.statistics.owe(row.uuid, str(row), counted, until)

    def _delete(self, row: Daemon) -> None:
        self._owe(row)
        self.rows(SpareLease).filter(daemon=row).delete()
        self.rows(Daemon).filter(pk=row.pk).delete()

    def _end(
        self,
        row: Daemon,
        now: datetime,
        event: Event,
        who: str,
        why: str,
        *,
        limit: int | None = None,
        spare: Iterable[tuple[int, int]] = (),
    ) -> list[Lost]:
        """End the attempts that the daemon holds; returns a :class:`Lost` for each.

        Tasks that another session has locked stay as they are, and so do the pairs in ``spare``.
        """
        tasks = self.rows(Task).filter(daemon=row).order_by("pk")
        spared = set(spare)
        held = [pair for pair in tasks.values_list("pk", "attempt")[:limit] if pair not in spared]
        if not held:
            return []
        mover = Mover(self.store, now).load([key for key, _ in held], waits=False)
        level = logging.WARNING if event == Event.EXPIRE else logging.INFO
        actor = Actor.SWEEPER if event == Event.EXPIRE else Actor.HOLDER
        facts: dict[str, Any] = {"event": event, "who": who, "message": why, "level": level}
        ended: list[Lost] = []
        refused: list[int] = []
        for key, attempt in held:
            move = Move(instance=key, attempt=attempt, **facts)
            if mover.apply(move, actor=actor, holder=row.pk):
                ended.append(_lost(mover.instances[key], attempt))
            else:
                refused.append(key)
        mover.write()
        # A Task that disagrees with its Instance must not keep the daemon's row for ever.
        self.store.upkeep.mend_tasks(refused, now, who)
        return ended

    def _log_daemon(
        self,
        row: Daemon,
        now: datetime,
        kind: Kind,
        message: str,
        level: int = logging.INFO,
        who: str = "",
        detail: str = "",
    ) -> None:
        """Log that a daemon's row comes or goes; the record keeps its uuid for later readers."""
        self.store.log(
            kind,
            message,
            subject=f"daemon:{row}",
            time=now,
            who=who or str(row),
            detail=detail or str(row.uuid),
            level=level,
        )

    # Giving a daemon an identity, and taking over an old one.

    def join(
        self,
        facts: DaemonFacts,
        *,
        lease: float,
        old: UUID | None = None,
        holding: Collection[tuple[int, int]] = (),
    ) -> Reconciled:
        if old is None:
            self._file = None
        self._check_file(is_joining=True)
        with self.store.atomic():
            # A claim under the old identity locks its row first. So such a claim has committed
            # before this statement, or finds the row gone.
            previous = self._previous(old, waits=True)
            now = self.store.now()
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

    def settle(
        self, old: UUID, daemon: UUID, *, lease: float, holding: Collection[tuple[int, int]] = ()
    ) -> Reconciled:
        with self.store.atomic():
            row = self.rows(Daemon).filter(uuid=daemon).first()
            if row is None:
                raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
            previous, now = self._previous(old), self.store.now()
            if previous is not None and previous.is_ours and previous.request and not row.request:
                # An operator wrote the order on the old row while a lock kept that from being
                # moved.
                row.request = previous.request
                self.rows(Daemon).filter(pk=row.pk).update(request=row.request)
            self._hand_on_order(previous)
            return self._take_over(previous, row, now, now + timedelta(seconds=lease), holding)

    def _hand_on_order(self, previous: Any) -> None:
        """Clear the order of an old row: it is on the new one, where it may be taken back."""
        if previous is not None and previous.is_ours and previous.request:
            self.rows(Daemon).filter(pk=previous.pk).update(request="")

    def _previous(self, uuid: UUID | None, *, waits: bool = False) -> Any:
        """Lock and return the row of an old identity, or None; ``is_ours``: the lock was taken."""
        own = self.rows(Daemon).filter(uuid=uuid)
        row = own.first() if uuid is not None else None
        if row is not None:
            is_ours = self._lock_identity(row, waits=waits)
            row = own.first()
        if row is not None:
            row.is_ours = is_ours
        return row

    def _take_over(
        self,
        previous: Any,
        row: Daemon,
        now: datetime,
        until: datetime,
        holding: Collection[tuple[int, int]],
    ) -> Reconciled:
        """Move the Tasks in ``holding`` from the old row to the new one; expire the others."""
        lost: Sequence[Lost] = ()
        left: dict[tuple[int, int], str] = {}
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

    def _held_by(self, row: Daemon) -> list[tuple[tuple[int, int], str]]:
        """Return pairs for the Tasks that a daemon holds: (Instance's key, attempt), and state."""
        held = self.rows(Task).filter(daemon=row).values_list("pk", "attempt", "instance__state")
        return [((key, attempt), State(state)) for key, attempt, state in held]

    def _row(
        self, facts: DaemonFacts, now: datetime, until: datetime, previous: Any
    ) -> tuple[Daemon, bool]:
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
            | {"started": now, "request": request, "counted": self.store.statistics.position()},
        )
        if created:
            self._succeed(row)
        if not row.lock:
            self.rows(SpareLease).get_or_create(daemon=row, defaults={"until": now})
        return row, created

    def _succeed(self, row: Daemon) -> None:
        """Note that from now on the LogRecords signed with this host and pid are this daemon's.

        In a container, a daemon that is started again has the pid of the killed one.
        """
        alike = self.rows(Daemon).filter(host=row.host, pid=row.pid, signed_until=None)
        others = alike.exclude(pk=row.pk).select_for_update(skip_locked=True)
        keys = [other.pk for other in others.only("pk")]
        if keys:
            self.rows(Daemon).filter(pk__in=keys).update(signed_until=row.counted)

    def _prolong(self, row: Daemon, until: datetime) -> None:
        """Extend a lease on the daemon's row, or on the spare lease if that row is locked."""
        rows = self.rows(Daemon).filter(pk=row.pk)
        spare = self.rows(SpareLease).filter(daemon=row)
        if rows.select_for_update(skip_locked=True, no_key=True).exists():
            rows.update(lease_until=until)
        elif spare.select_for_update(skip_locked=True, no_key=True).exists():
            spare.update(until=until)

    def _move(self, previous: Daemon, row: Daemon, holding: Iterable[tuple[int, int]]) -> None:
        """Move the Tasks in ``holding`` to the daemon's new identity, except locked ones."""
        wanted = set(holding)
        held = self.rows(Task).filter(daemon=previous, pk__in=[key for key, _ in wanted])
        free = held.select_for_update(skip_locked=True).order_by("pk")
        kept = [
            key for key, attempt in free.values_list("pk", "attempt") if (key, attempt) in wanted
        ]
        self.rows(Task).filter(pk__in=kept).update(daemon=row)

    # Leases: renewing them, giving them up, and sweeping those that have run out.

    def renew(
        self,
        daemon: UUID,
        *,
        lease: float,
        workers: Sequence[Any] = (),
        idle: bool = False,
        mode: Mode = Mode.RUNNING,
        channel: str = "",
        misfits: Misfits = NO_MISFITS,
        engine: EngineFacts = NO_FACTS,
    ) -> Renewal:
        self._check_file()
        with self.store.atomic():
            now = self.store.now()
            row = self.rows(Daemon).filter(uuid=daemon)
            renewed = row.update(
                lease_until=now + timedelta(seconds=lease),
                seen=now,
                workers=list(workers),
                idle=idle,
                mode=mode,
                channel=channel,
                misfits=dict(misfits),
                engine=dict(engine),
            )
            if not renewed:
                raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
            return Renewal(time=now, request=row.values_list("request", flat=True).get())

    def leave(self, daemon: UUID, *, lost: str = "") -> bool:
        with self.store.atomic():
            row = self.rows(Daemon).filter(uuid=daemon).first()
            if row is None:
                return True
            now = self.store.now()
            if not self._lock_identity(row, waits=True):
                return False
            event = Event.EXPIRE if lost else Event.RELEASE
            ended = self._end(row, now, event, str(row), lost or messages.daemon_stopped())
            if self.rows(Task).filter(daemon=row).exists():
                return False
            self._delete(row)
            if lost:
                self._log_loss(row, now, len(ended))
            else:
                self._log_daemon(row, now, Kind.LEFT, messages.daemon_left(row.uuid))
            return True

    def _log_loss(self, row: Daemon, now: datetime, count: int, who: str = "") -> None:
        message = messages.daemon_lost_tasks(row.uuid, count)
        detail = lost_detail(row.uuid, row.seen)
        self._log_daemon(row, now, Kind.LOST, message, logging.WARNING, who, detail)

    def sweep(self, *, daemon: UUID | None = None, limit: int = 500) -> Swept:
        daemons: list[str] = []
        lost: list[Lost] = []
        others = self.rows(Daemon).exclude(uuid=daemon) if daemon else self.rows(Daemon).all()
        now = self.store.now()
        who = self._name(daemon)
        for row in [row for row in others.order_by("pk") if self.is_over(row, now)]:
            gone, taken = self.expire_lost(row, who, limit - len(lost))
            lost += taken
            if gone:
                daemons.append(str(row))
        return Swept(daemons=tuple(daemons), lost=tuple(lost))

    def _name(self, daemon: UUID | None) -> str:
        row = self.rows(Daemon).filter(uuid=daemon).first() if daemon else None
        return str(row or "")

    def is_over(self, row: Daemon, now: datetime) -> bool:
        if row.lock and not folders.is_free(self._lock_path(row)):
            return False
        if row.lock and EXECUTOR not in row.labels:
            return True
        # Attempts on other hosts hold no lock: they may live until the lease is over.
        if row.lease_until > now:
            return False
        if "spare_lease" in row._state.fields_cache:  # it was selected with the row
            spare = row._state.fields_cache["spare_lease"]
            return spare is None or spare.until <= now
        return not self.rows(SpareLease).filter(daemon=row, until__gt=now).exists()

    def _lock_path(self, row: Daemon) -> Path:
        return (self.store.lock_folder or Path()) / row.lock

    def expire_lost(self, candidate: Daemon, who: str, limit: int) -> tuple[bool, list[Lost]]:
        """Expire the Tasks of a lost daemon; returns whether its row is gone, and the attempts.

        In one transaction it locks the daemon's row and its spare lease, unless others have locked
        them, and looks again whether the lease is over. For up to ``limit`` Tasks that the daemon
        holds and nobody has locked it then writes, in this order (:meth:`Batch.write`):

        - the Instance: ACCEPTED, with one loss more; or FAILED, if somebody has asked to cancel it
          (which comes first), or if it has been lost too often (:func:`atp.states.is_stale`);
        - the Task: without a holder, due as before; or deleted, if the Instance FAILED;
        - LogRecords ``expire``, and ``fail`` if it FAILED, by ``who``; counts of the Statistic; a
          Failure, if it is a dead letter;
        - what the ends mean for graphs and hooks.

        If the daemon holds no Task any more, its counts are marked as owed (Uncounted), the spare
        lease and the row are deleted, and a LogRecord ``lost`` about the daemon is written.
        Otherwise the row stays for the next sweep.
        """
        with self.store.atomic():
            is_free = self._lock_identity(candidate, waits=False)
            row = self.rows(Daemon).filter(pk=candidate.pk).first()
            now = self.store.now()
            if not is_free or row is None or not self.is_over(row, now):
                return False, []
            why = messages.daemon_lost(row)
            lost = self._end(row, now, Event.EXPIRE, who, why, limit=limit)
            if self.rows(Task).filter(daemon=row).exists():
                return False, lost
            self._delete(row)
            self._log_loss(row, now, len(lost), who)
        if row.lock:
            folders.remove_file(self._lock_path(row))
        return True, lost

    # The outlook: the work that there is for a daemon.

    def outlook(self, types: Sequence[str], *, daemon: UUID | None = None) -> Outlook:
        now = self.store.now()
        waiting = self.rows(Task).waiting()
        due, limited = self._first_due(types, now)
        return Outlook(
            due=self.store.limits.due_in(due, limited, self.store.gates.opens(now)),
            late=waiting.filter(start_before__lte=now).exists(),
            drops=self.store.gates.drops(),
            planned=self._planned_in(now),
            graphs=self.store.graph_ends.are_live(),
            owed=self.store.statistics.are_owed(),
            **self._others_and_own(daemon, now),
        )

    def _planned_in(self, now: datetime) -> float | None:
        """Return the seconds until the first slot of a schedule is due; None if none is planned."""
        due = self.rows(Schedule).filter(due_at__isnull=False)
        first = due.order_by("due_at").values_list("due_at", flat=True).first()
        return None if first is None else (first - now).total_seconds()

    def _first_due(
        self, types: Sequence[str], now: datetime
    ) -> tuple[float | None, list[tuple[tuple[str, str], float]]]:
        """Return the seconds until the first unlimited Task is due, and the limited lanes.

        Those are pairs: (Type, collection), and the seconds until the lane's first Task is due.
        """
        rows = self.rows(Task).waiting().filter(type__identifier__in=types)
        lanes = rows.values_list("type", "type__identifier", "collection").annotate(Min("due_at"))
        closed = self.store.gates.closed(now)
        limits = Closed(frozenset()).with_limits(self.rows(Limit).filter(LIMITING))
        limits = limits.with_types(self.store.downstreams.guarded(types).values())
        first: list[float] = []
        limited: list[tuple[tuple[str, str], float]] = []
        for key, type, collection, due in lanes:
            seconds = (due - now).total_seconds()
            if closed.shuts(key, collection):
                continue
            if limits.shuts(key, collection):
                limited.append(((type, collection), seconds))
            else:
                first.append(seconds)
        return min(first, default=None), limited

    def _others_and_own(self, daemon: UUID | None, now: datetime) -> dict[str, Any]:
        """Return facts for an Outlook: whether another daemon is lost, and this one's order."""
        rows = list(self.rows(Daemon))
        own = [row.request for row in rows if row.uuid == daemon]
        others = [row for row in rows if row.uuid != daemon]
        lost = any(self.is_over(row, now) or (row.lock and _is_dead(row.pid)) for row in others)
        return {"lost": lost, "request": own[0] if own else None}

    # Commands to daemons.

    def command(self, daemon: UUID, order: DaemonCommand, *, who: str = "") -> Daemon:
        with self.store.atomic():
            rows = self.rows(Daemon)
            row = rows.select_for_update(no_key=True).filter(uuid=daemon).first()
            if row is None:
                raise UnknownDaemon(f"There is no daemon {daemon}: it has ended, or never existed.")
            now = self.store.now()
            if self.is_over(row, now):
                raise _illegal(row, order, "is lost")
            if order not in commands.allowed_commands(row.aim):
                raise _illegal(row, order, _doing(row))
            row.request = commands.REQUESTS[order]
            rows.filter(pk=row.pk).update(request=row.request)
            self.store.log(
                Kind.ORDER,
                messages.daemon_commanded(order),
                subject=f"daemon:{row}",
                time=now,
                who=who,
                detail=order,
            )
            return row
