"""Removing old slots and old error groups, in the thread that purges."""

from datetime import timedelta

from django.db import connections

from ...conf import settings
from .. import journal
from .chore import Chore, Portion

# The number of slots that are removed at once, at first and at most, and the seconds between two
# portions.
FIRST, MOST, SOON = 500, 5_000, 0.1
# An error group without dead letters is kept this long after its last failure.
KEPT = timedelta(days=30)


class Trim(Chore):
    """The chore that removes old slots and error groups every PURGE_EVERY.

    If it fails, the daemon keeps its identity, and the chore tries again at its next turn.
    """

    name, doing = "trim", "removing old slots and error groups"

    def __init__(self, *parts):
        super().__init__(*parts)
        self._portion = Portion(FIRST, MOST)

    def every(self):
        return settings.PURGE_EVERY

    def may(self):
        return self.core.identity.is_registered

    def call(self):
        def trim():
            store = self.core.store
            with self._portion.measured() as limit:
                removed = store.schedules.trim(limit=limit)
            if not removed:
                store.errors.trim(before=store.now() - KEPT)
                connections[settings.DATABASE].close()
            return removed

        return trim

    def done(self, result):
        if result.value:
            self.core.timers.later(self.name, SOON)

    def failed(self, result):
        journal.purge_failed(error=" ".join(str(result.error).split()))
