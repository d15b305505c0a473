"""A daemon's identity and the Tasks that it holds: locking them, and taking them away."""

import logging

from ....exceptions import LeaseLost
from ....models import Daemon, SpareLease, Task
from ....states import Actor, Event, State
from ...facts import Lost
from ...values import Move
from ..mending import Mending
from ..mover import Mover


class Holding(Mending):
    # The identity of the database's file when the daemon joined; None if it is not a file, and from
    # the time when the file was found to be another until the daemon joins again.
    _file = None

    def _check_file(self, *, is_joining=False):
        """Raise LeaseLost if the database's file was removed or replaced since the daemon joined.

        The connections still write to the old file, which nobody else will ever see. The caller
        opens new ones, and joins again.
        """
        file = self.file_id()
        if self._file != file and not (is_joining and self._file is None):
            self._file = None
            raise LeaseLost("The database's file was removed or replaced.")
        self._file = file

    def _lock_identity(self, row, *, waits):
        """Lock a daemon's row and its spare lease; returns whether both are locked.

        A daemon that claims or renews under this identity has locked one of them. With
        ``waits``, each statement waits as long as the session's lock timeout allows.
        """
        for model, own in ((Daemon, {"pk": row.pk}), (SpareLease, {"daemon": row})):
            rows = self.rows(model).filter(**own)
            is_free = True
            with self.unless_locked() as is_locked:
                is_there = rows.exists()
                is_free = bool(rows.select_for_update(skip_locked=not waits)) or not is_there
            if is_locked or not (is_free or waits):
                return False
        return True

    def _owe(self, row):
        """Record the events that the daemon has recorded under this identity but not counted."""
        rows = self.rows(Daemon).filter(pk=row.pk).values_list("counted", "signed_until")
        for counted, until in rows:
            self.statistics.owe(row.uuid, str(row), counted, until)

    def _delete(self, row):
        self._owe(row)
        self.rows(SpareLease).filter(daemon=row).delete()
        self.rows(Daemon).filter(pk=row.pk).delete()

    def _end(self, row, now, event, who, why, *, limit=None, spare=()):
        """End the attempts that the daemon holds; returns a :class:`Lost` for each.

        Tasks that another session has locked stay as they are, and so do the pairs in ``spare``.
        """
        tasks = self.rows(Task).filter(daemon=row).order_by("pk")
        spared = set(spare)
        held = [pair for pair in tasks.values_list("pk", "attempt")[:limit] if pair not in spared]
        if not held:
            return []
        mover = Mover(self, now).load([key for key, _ in held], waits=False)
        level = logging.WARNING if event == Event.EXPIRE else logging.INFO
        actor = Actor.SWEEPER if event == Event.EXPIRE else Actor.HOLDER
        facts = {"event": event, "who": who, "message": why, "level": level}
        ended, refused = [], []
        for key, attempt in held:
            move = Move(instance=key, attempt=attempt, **facts)
            if mover.apply(move, actor=actor, holder=row.pk):
                ended.append(_lost(mover.instances[key], attempt))
            else:
                refused.append(key)
        mover.write()
        # A Task that disagrees with its Instance must not keep the daemon's row for ever.
        self.mend_tasks(refused, now, who)
        return ended

    def _log_daemon(self, row, now, kind, message, level=logging.INFO, who=""):
        """Log that a daemon's row comes or goes; the record keeps its uuid for later readers."""
        self.log(
            kind,
            message,
            subject=f"daemon:{row}",
            time=now,
            who=who or str(row),
            detail=str(row.uuid),
            level=level,
        )


def _lost(instance, attempt):
    return Lost(
        type=instance.type.identifier,
        uuid=instance.uuid,
        attempt=attempt,
        stale=instance.state == State.FAILED,
    )
