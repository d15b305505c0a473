"""Daemons that are gone and still hold something."""

import logging
from uuid import uuid4

from ....models import Daemon, Task
from ....rows.log import Kind
from ....words import log_messages
from ...findings import Finding, Trouble
from .look import MOST

# What is taken from a lost daemon at a time.
TAKEN = 500


class Holders:
    def __init__(self, look):
        self._look = look
        self._rows = look.rows

    def unswept(self):
        """Daemons that were lost long ago, while another was there to notice."""
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
        return log_messages.tasks_taken(len(lost)) if gone else ""

    def ownerless(self):
        """Holders without a row, which no sweep can see."""
        daemons = self._rows(Daemon).values("pk")
        # In the order of the index on what is held, so that it is walked, and nothing else.
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
        """Give it a row with a lease that nobody renews: when that is over, a sweep comes.

        If the daemon still lives, it will have noticed by then that it has lost its
        own row, and taken another identity.
        """
        look, name = self._look, _name(key)
        host, pid = name.rsplit(":", 1)
        facts = {"uuid": uuid4(), "host": host, "pid": int(pid), "version": ""}
        times = {"started": look.now, "seen": look.now, "lease_until": look.now + look.delay}
        _, is_new = self._rows(Daemon).get_or_create(pk=key, defaults=facts | times)
        if is_new:
            look.store.log(
                Kind.MENDED,
                log_messages.row_gone(),
                subject=f"daemon:{name}",
                time=look.now,
                who=look.who,
                level=logging.WARNING,
            )
        return log_messages.taken_later()


def _name(key):
    """Return the name of a daemon without a row, in the form of host and pid."""
    return f"removed-{key}:0"
