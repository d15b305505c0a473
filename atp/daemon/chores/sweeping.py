"""Taking away the Tasks of lost daemons."""

from .. import journal
from ..system import abandoned
from .chore import Chore, Portion

# The number of Tasks that are taken away at once, at first and at most.
FIRST, MOST = 250, 500


class Sweep(Chore):
    """The chore that runs when a look has found lost daemons, and this daemon may judge them."""

    name, doing = "sweep", "sweeping"

    def __init__(self, *parts):
        super().__init__(*parts)
        self._portion = Portion(FIRST, MOST)

    def may(self):
        return self.core.identity.may_sweep

    def call(self):
        daemon = self.core.identity.current

        def sweep():
            # Kill the processes of lost daemons on this host before their Tasks are taken away.
            ended = abandoned.end()
            with self._portion.measured() as limit:
                return ended, self.core.store.daemons.sweep(daemon=daemon, limit=limit)

        return sweep

    def done(self, result):
        ended, swept = result.value
        if ended:
            journal.abandoned(count=ended)
        if swept.daemons or swept.expired:
            names = ", ".join(swept.daemons) or "one with many Tasks"
            journal.daemons_lost(daemons=names, expired=swept.expired)
            self.core.counters.lost(swept.lost, "its daemon was lost")
            self.core.queue.put_back()
