"""A daemon's scans: a part of the tables each time, from where the last one stopped."""

from django.db import InterfaceError, OperationalError

from . import abandoned, journal


class Scanner:
    def __init__(self, store):
        self._store = store
        self._place = None

    def scan(self, who):
        """Scan once, mending as ``who`` what is safe. Runs in a thread; returns the findings.

        What is wrong with a check must not end what it checks: only that the
        database does not answer is anybody else's concern.
        """
        # What nobody is alive to end must not go on beside what may be handed out again.
        abandoned.end()
        try:
            scanned = self._store.scan(self._place, who=who)
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            self._place = None
            journal.scan_failed(error=error, exc_info=error)
            return ()
        self._place = scanned.place
        return scanned.findings

    @staticmethod
    def tell(result):
        """Say what was found."""
        for finding in result.value:
            fact = journal.mended if finding.done else journal.found
            fact(what=str(finding))
