"""Scanning a part of the tables each time, from where the last scan stopped."""

from functools import partial

from django.db import InterfaceError, OperationalError

from ...conf import settings
from .. import journal
from ..system import abandoned
from .chore import Chore


class Scan(Chore):
    """Finds what is wrong in the tables, and mends what is safe to mend."""

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
        """Scan once, mending as ``who``. Runs in a thread; returns the findings.

        A fault in a check must not end the daemon that is checked. Only an outage of the
        database concerns the others too.
        """
        # A process that nobody is alive to end must not go on beside a Task that may be
        # handed out again.
        abandoned.end()
        try:
            scanned = self.core.store.scan(self._cursor, who=who)
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
