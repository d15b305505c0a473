"""Counting in the thread that purges: into Statistic, and dead letters into their groups."""

from django.db import connections

from ...conf import settings
from .. import journal
from .chore import Chore

# In seconds: between two looks, between two foldings, and between two pieces of one.
EVERY, FOLD_EVERY, SOON = 5.0, 60.0, 0.1
# So many rows are folded at once.
PIECE = 1000
# After a failure here dead letters are counted so soon again, in seconds; and so many at once.
AGAIN, LETTERS = 1.0, 2_000


class Count(Chore):
    """Counts what daemons have left uncounted, and folds Statistic.

    Its failure costs no identity, and it is done the next time.
    """

    name, doing = "count", "counting"

    def every(self):
        return EVERY

    def may(self):
        return self.core.identity.is_registered

    def call(self):
        store = self.core.store
        folds = self.core.timers.due("fold", FOLD_EVERY)

        def count():
            paid = store.statistics.pay()
            folded = store.statistics.fold(store.now(), PIECE) if folds else 0
            if not paid:
                connections[settings.DATABASE].close()
            return paid, folded

        return count

    def done(self, result):
        paid, folded = result.value
        if folded:
            self.core.timers.now("fold")
        if paid or folded:
            self.core.timers.later(self.name, SOON)

    def failed(self, result):
        journal.count_failed(error=" ".join(str(result.error).split()))


class CountFailures(Chore):
    """Counts dead letters into their error groups: those of others every PURGE_EVERY.

    A failure costs no identity: what is not counted now is counted the next time.
    """

    name, doing = "count failures", "counting failures"

    def every(self):
        return settings.PURGE_EVERY

    def may(self):
        return self.core.identity.is_registered

    def is_due(self):
        counters = self.core.counters
        soon = self.core.timers
        if counters.has_failures and self.may() and soon.due("count failures soon", AGAIN):
            counters.has_failures = False
            return True
        return super().is_due()

    def call(self):
        def count():
            counted = self.core.store.errors.count(limit=LETTERS)
            if counted < LETTERS:
                connections[settings.DATABASE].close()
            return counted

        return count

    def done(self, result):
        # What others have counted meanwhile, or have locked, is there the next time.
        if result.value:
            self.core.counters.has_failures = True

    def failed(self, result):
        self.core.counters.has_failures = True
        journal.purge_failed(error=" ".join(str(result.error).split()))
