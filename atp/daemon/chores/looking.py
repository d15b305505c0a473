"""Looking at the queue: when the next Task is due, and which other chores have to run."""

from functools import partial

from ...conf import settings
from .chore import Chore
from .dropping import Drop
from .missing import Miss
from .planning import Plan
from .sweeping import Sweep


class Look(Chore):
    """The chore that looks at the queue. Its one statement saves those of the other chores."""

    name, doing = "outlook", "looking at the queue"

    def every(self):
        return min(settings.POLL_EVERY, settings.SWEEP_EVERY)

    def call(self):
        self._put_backs = self.core.queue.put_backs
        identity = self.core.identity
        types = self.core.misfits.claimable(identity.types)
        return partial(self.core.store.daemons.outlook, types, daemon=identity.current)

    def done(self, result):
        outlook, queue = result.value, self.core.queue
        is_planned = outlook.planned is not None and outlook.planned <= 0
        wanted = {
            Sweep: outlook.lost,
            Miss: outlook.late,
            Drop: outlook.drops,
            Plan: is_planned,
        }
        queue.chores = {chore.name for chore, is_wanted in wanted.items() if is_wanted}
        self.orders.hint(outlook.request)
        queue.due_at = None if outlook.due is None else result.sent + outlook.due
        if outlook.due is None or outlook.due > 0:
            queue.found_empty(self._put_backs)
        queue.graphless_at = None if outlook.graphs else result.sent
        queue.planned_at = None
        if outlook.planned is not None and outlook.planned > 0:
            queue.planned_at = result.sent + outlook.planned
            self.core.timers.later(Plan.name, outlook.planned)
        if outlook.due is not None and outlook.due > 0:
            self.core.timers.later("due", outlook.due)
