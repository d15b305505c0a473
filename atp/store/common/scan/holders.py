"""Daemons that are gone but still hold Tasks."""

import logging
from uuid import uuid4

from .... import messages
from ....models import Daemon, Kind, Task
from ...facts import Finding, Trouble
from .look import MOST

# The number of Tasks that are taken from a lost daemon at a time.
TAKEN = 500


class Holders:
    def __init__(self, look):
        self._look = look
        self._rows = look.rows

    def unswept(self):
        """Return findings for daemons lost long ago, although another daemon could have noticed."""
        look = self._look
        lost = [row for row in look.lost if row.lease_until <= look.then]
        return [
            Finding(
                trouble=Trouble.UNSWEPT,
                daemon=str(row),
                since=row.lease_until,
                done=self._take_away(row) if look.repair else "",
            )
            for row in (lost if look.settled else [])
        ]

    def _take_away(self, row):
        gone, lost = self._look.store.expire_lost(row, self._look.who, TAKEN)
        return messages.tasks_taken(len(lost)) if gone else ""

    def ownerless(self):
        """Return findings for holders without a row, which no sweep can see."""
        daemons = self._rows(Daemon).values("pk")
        # In the order of the index on held Tasks, so that the database walks that index alone.
        held = self._rows(Task).claimed().exclude(daemon__in=daemons).order_by("daemon_id")
        missing = sorted(set(held.values_list("daemon_id", flat=True)[:MOST]))
        return [
            Finding(
                trouble=Trouble.OWNERLESS,
                daemon=_name(key),
                done=self._stand_in(key) if self._look.repair else "",
            )
            for key in missing
        ]

    def _stand_in(self, key):
        """Create a row for the holder whose lease nobody renews; a sweep follows when it is over.

        If the daemon still lives, it has noticed by then that its row is lost, and has taken
        another identity.
        """
        look, name = self._look, _name(key)
        host, pid = name.rsplit(":", 1)
        facts = {"uuid": uuid4(), "host": host, "pid": int(pid), "version": ""}
        times = {"started": look.now, "seen": look.now, "lease_until": look.now + look.delay}
        _, is_new = self._rows(Daemon).get_or_create(pk=key, defaults=facts | times)
        if is_new:
            look.store.log(
                Kind.MENDED,
                messages.daemon_row_missing(),
                subject=f"daemon:{name}",
                time=look.now,
                who=look.who,
                level=logging.WARNING,
            )
        return messages.tasks_taken_later()


def _name(key):
    """Return a name for a daemon without a row, in the form host:pid."""
    return f"removed-{key}:0"
