"""Scanning a part of the tables each time, from where the last scan stopped."""

from functools import partial

from django.db import InterfaceError, OperationalError

from ...conf import settings
from .. import journal
from ..system import abandoned
from .chore import Chore


class Scan(Chore):
    """The chore that finds faults in the tables, and mends those that are safe to mend."""

    name, doing = "scan", "scanning"
    # Where the last scan stopped.
    _cursor = None

    def every(self):
        return settings.SCAN_EVERY

    def may(self):
        return self.core.identity.may_sweep

    def call(self):
        return partial(self.scan, self.core.identity.name)

    def scan(self, who):
        """Scan once, sign repairs as ``who``, and return the findings. Runs in a thread.

        An error in the scan is logged, and does not end the daemon's identity. An outage of
        the database is raised, since it concerns the other calls too.
        """
        # Kill the processes of dead daemons on this host, before their Tasks may be handed
        # out again.
        abandoned.end()
        try:
            scanned = self.core.store.upkeep.scan(self._cursor, who=who)
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            self._cursor = None
            journal.scan_failed(error=error, exc_info=error)
            return ()
        self._cursor = scanned.cursor
        return scanned.findings

    def done(self, result):
        for finding in result.value:
            fact = journal.mended if finding.done else journal.found
            fact(what=str(finding))
