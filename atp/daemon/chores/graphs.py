"""The upkeep of graphs: failing the nodes that depend on failed ones, and ending graphs (G17)."""

from django.db import connections

from ...conf import settings
from .. import journal
from ..system.processes import uptime
from .chore import Chore

# The interval in seconds while graphs live, and while the daemon does not know of a live one.
BUSY, IDLE = 1.0, 5.0
# The number of nodes that one turn fails, and the number of graphs that it looks at.
LIMIT, GRAPHS = 500, 1000


class Graphs(Chore):
    """The chore that keeps up graphs, in the purging thread; it needs no identity of the daemon.

    While looks at the queue find no live graph, it runs for the purge of graphs alone.
    """

    name, doing, purging = "graphs", "the upkeep of graphs", "purge graphs"

    def __init__(self, *parts):
        super().__init__(*parts)
        self._after = 0
        self._is_busy = False

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
        graphs, after = self.core.store.graphs, self._after
        purges = self.core.timers.due(self.purging, settings.PURGE_EVERY)
        who = self.core.identity.name

        def keep_up():
            failed = graphs.fail_dependants(who=who, limit=LIMIT)
            ended, after_these = graphs.end(limit=GRAPHS, after=after, who=who)
            removed = graphs.purge(limit=LIMIT) if purges else 0
            is_busy = graphs.are_live()
            if not is_busy:
                connections[settings.DATABASE].close()
            return failed, ended, removed, after_these, is_busy

        return keep_up

    def done(self, result):
        failed, _, removed, self._after, self._is_busy = result.value
        if failed:
            journal.dependants_failed(count=failed)
        if removed:
            journal.purged(count=removed)
        if failed or removed >= LIMIT:
            self.core.timers.now(self.name)
        if removed >= LIMIT:
            self.core.timers.now(self.purging)

    def failed(self, result):
        journal.graphs_failed(error=" ".join(str(result.error).split()))
