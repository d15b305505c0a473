"""The outlook: the work that there is for a daemon."""

import os
from pathlib import Path

from django.db.models import Min

from ....models import Daemon, Limit, Schedule, Task
from ...facts import Outlook
from ..control.gates import Closed, Gates
from ..control.limits import LIMITING, Limited


class Outlooks(Limited, Gates):
    def outlook(self, types, *, daemon=None):
        now = self.now()
        waiting = self.rows(Task).waiting()
        due, limited = self._first_due(types, now)
        return Outlook(
            due=self._due_in(due, limited, self._opens(now)),
            late=waiting.filter(start_before__lte=now).exists(),
            drops=self._drops(),
            planned=self._planned_in(now),
            graphs=self.graphs.are_live(),
            **self._others_and_own(daemon, now),
        )

    def _planned_in(self, now):
        """Return the seconds until the first slot of a schedule is due; None if none is planned."""
        due = self.rows(Schedule).filter(due_at__isnull=False)
        first = due.order_by("due_at").values_list("due_at", flat=True).first()
        return None if first is None else (first - now).total_seconds()

    def _first_due(self, types, now):
        """Return the seconds until the first unlimited Task is due, and the limited lanes.

        Those are pairs: (Type, collection), and the seconds until the lane's first Task is due.
        """
        rows = self.rows(Task).waiting().filter(type__identifier__in=types)
        lanes = rows.values_list("type", "type__identifier", "collection").annotate(Min("due_at"))
        closed = self._closed(now)
        limits = Closed(frozenset()).with_limits(self.rows(Limit).filter(LIMITING))
        limits = limits.with_types(self._guarded(types).values())
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
        """Return facts for an Outlook: whether another daemon is lost, and this one's order."""
        rows = list(self.rows(Daemon))
        own = [row.request for row in rows if row.uuid == daemon]
        others = [row for row in rows if row.uuid != daemon]
        lost = any(self.is_over(row, now) or (row.lock and _is_dead(row.pid)) for row in others)
        return {"lost": lost, "request": own[0] if own else None}


def _is_dead(pid):
    """Return whether a daemon's supervisor is dead; its children may still hold its file lock."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except ProcessLookupError:
        return True
    except OSError:
        return False  # somebody else's, or there is no /proc
    return state in b"ZX"  # nobody has asked for its end yet
