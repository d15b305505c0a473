"""Adding the counts of daemons, and noting what a daemon still owes when it ends."""

from django.db import DatabaseError

from ....models import Daemon, Statistic, Uncounted, Usage
from ...protocol import Statistics


class _HasEnded(Exception):
    """The daemon's identity has ended: its uncounted events are counted from the log."""


class Adding(Statistics):
    def __init__(self, store):
        self.store = store
        self.rows = store.rows

    def position(self):
        return self.store.vendor.log_position(self.store.connection)

    def add(self, daemon, counts):
        try:
            with self.store.atomic():
                # Code that ends the identity locks the daemon's row, so it comes before this or
                # after.
                own = self.rows(Daemon).filter(uuid=daemon)
                is_there = own.update(counted=self.position())
                if not is_there or self.rows(Uncounted).filter(daemon=daemon).exists():
                    raise _HasEnded
                self.rows(Statistic).bulk_create(counts.rows())
                self.rows(Usage).bulk_create(period.row(daemon) for period in counts.usage)
        except _HasEnded:
            return False
        except DatabaseError:
            # A lock of another session, or a full disk: the daemon goes on and renews its lease.
            if not self.store.connection.is_usable():
                raise
            return False
        return True

    def owe(self, daemon, who, counted, until):
        if counted is None:
            return
        position = self.position()
        until = position if until is None else min(until, position)
        owed = {"who": who, "after": counted, "until": until}
        self.rows(Uncounted).get_or_create(daemon=daemon, defaults=owed)
