"""The upkeep of graphs: failing the nodes that depend on failed ones, and ending graphs (G17)."""

from django.db import connections

from ...conf import settings
from .. import journal
from ..system.processes import uptime
from .chore import Chore, Portion

# The interval in seconds while graphs live, and while the daemon does not know of a live one.
BUSY, IDLE = 1.0, 5.0
# The number of nodes that one turn fails or removes at first, and at most. It looks at twice as
# many graphs.
FIRST, MOST = 250, 500


class Graphs(Chore):
    """The chore that keeps up graphs, in the purging thread; it needs no identity of the daemon.

    While looks at the queue find no live graph, it runs for the purge of graphs alone.
    """

    name, doing, purging = "graphs", "the upkeep of graphs", "purge graphs"

    def __init__(self, *parts):
        super().__init__(*parts)
        self._after = 0
        self._is_busy = False
        self._portion = Portion(FIRST, MOST)

    def every(self):
        return BUSY if self._is_busy else IDLE

    def may(self):
        if not self.core.identity.is_registered:
            return False
        return self._is_busy or not self._are_none() or self.core.timers.passed(self.purging)

    def _are_none(self):
        """Tell whether a recent look has found no live graph."""
        looked = self.core.queue.graphless_at
        return looked is not None and uptime() < looked + IDLE

    def call(self):
        graphs, after = self.core.store.graph_ends, self._after
        purges = self.core.timers.due(self.purging, settings.PURGE_EVERY)
        who = self.core.identity.name

        def keep_up():
            with self._portion.measured() as limit:
                failed = graphs.fail_dependants(who=who, limit=limit)
                _, after_these = graphs.end(limit=2 * limit, after=after, who=who)
                is_undoing = graphs.undo(limit=limit, who=who)
                removed = graphs.purge(limit=limit) if purges else 0
                is_busy = graphs.are_live()
            if not is_busy:
                connections[settings.DATABASE].close()
            goes_on = failed or is_undoing or removed >= limit
            return failed, removed, removed >= limit, goes_on, after_these, is_busy

        return keep_up

    def done(self, result):
        failed, removed, are_more_over, goes_on, self._after, self._is_busy = result.value
        if failed:
            journal.dependants_failed(count=failed)
        if removed:
            journal.purged(count=removed)
        if goes_on:
            self.core.timers.later(self.name, self._portion.rest)
        if are_more_over:
            self.core.timers.now(self.purging)

    def failed(self, result):
        journal.graphs_failed(error=" ".join(str(result.error).split()))
