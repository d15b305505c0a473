"""Counting ends into Statistic, and dead letters into error groups, in the purging thread."""

from django.db import connections

from ...conf import settings
from .. import journal
from .chore import Chore, Portion

# In seconds: between two looks, between two foldings, and between two pieces of one.
EVERY, FOLD_EVERY, SOON = 5.0, 60.0, 0.1
# The numbers of log records that are counted at once, and of rows that are folded, at first and at
# most.
RECORDS, MOST_RECORDS, ROWS, MOST_ROWS = 5_000, 20_000, 500, 1_000
# Once an Instance has failed here, dead letters are counted every AGAIN seconds. The number that is
# counted at once, at first and at most.
AGAIN, FIRST, LETTERS = 1.0, 500, 2_000


class Count(Chore):
    """The chore that counts the log records that daemons left uncounted, and folds the rows.

    If it fails, the daemon keeps its identity, and the chore tries again at its next turn.
    """

    name, doing = "count", "counting"

    def __init__(self, *parts):
        super().__init__(*parts)
        self._records = Portion(RECORDS, MOST_RECORDS)
        self._rows = Portion(ROWS, MOST_ROWS)

    def every(self):
        return EVERY

    def may(self):
        return self.core.identity.is_registered

    def call(self):
        store = self.core.store
        folds = self.core.timers.due("fold", FOLD_EVERY)

        def count():
            with self._records.measured() as limit:
                paid = store.statistics.pay(limit)
            folded = 0
            if folds:
                with self._rows.measured() as limit:
                    now = store.now()
                    folded = store.statistics.fold(now, limit)
                    folded += store.statistics.fold_usage(now, limit)
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
    """The chore that counts dead letters into their error groups.

    It runs soon after a failure here, and every PURGE_EVERY for the failures of other daemons.
    If it fails, the daemon keeps its identity, and the chore tries again at its next turn.
    """

    name, doing = "count failures", "counting failures"

    def __init__(self, *parts):
        super().__init__(*parts)
        self._portion = Portion(FIRST, LETTERS)

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
            with self._portion.measured() as limit:
                counted = self.core.store.errors.count(limit=limit)
            if counted < limit:
                connections[settings.DATABASE].close()
            return counted

        return count

    def done(self, result):
        # More may be left. Those that another daemon has locked wait for the next turn.
        if result.value:
            self.core.counters.has_failures = True

    def failed(self, result):
        self.core.counters.has_failures = True
        journal.failures_not_counted(error=" ".join(str(result.error).split()))
