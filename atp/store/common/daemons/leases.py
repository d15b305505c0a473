"""Leases: renewing them, giving them up, and sweeping those that have run out."""

import logging
from datetime import timedelta
from pathlib import Path

from .... import folders, messages
from ....commands import Mode
from ....exceptions import LeaseLost
from ....models import Daemon, Kind, SpareLease, Task
from ....states import Event
from ...facts import NO_MISFITS, Renewal, Swept
from .holding import Holding


class Leases(Holding):
    def renew(
        self,
        daemon,
        *,
        lease,
        workers=(),
        idle=False,
        mode=Mode.RUNNING,
        channel="",
        misfits=NO_MISFITS,
    ):
        self._check_file()
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
                misfits=dict(misfits),
            )
            if not renewed:
                raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
            return Renewal(time=now, request=row.values_list("request", flat=True).get())

    def leave(self, daemon, *, lost=""):
        with self.atomic():
            row = self.rows(Daemon).filter(uuid=daemon).first()
            if row is None:
                return True
            now = self.now()
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

    def _log_loss(self, row, now, count, who=""):
        message = messages.daemon_lost_tasks(row.uuid, count)
        self._log_daemon(row, now, Kind.LOST, message, logging.WARNING, who)

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
            return folders.is_free(self._lock_path(row))
        if row.lease_until > now:
            return False
        if "spare_lease" in row._state.fields_cache:  # it was selected with the row
            spare = row._state.fields_cache["spare_lease"]
            return spare is None or spare.until <= now
        return not self.rows(SpareLease).filter(daemon=row, until__gt=now).exists()

    def _lock_path(self, row):
        return (self.lock_folder or Path()) / row.lock

    def expire_lost(self, candidate, who, limit):
        """Expire the Tasks of a lost daemon; returns whether its row is gone, and the attempts."""
        with self.atomic():
            is_free = self._lock_identity(candidate, waits=False)
            row = self.rows(Daemon).filter(pk=candidate.pk).first()
            now = self.now()
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
