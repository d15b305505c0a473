"""Planning the slots of schedules (G16)."""

from functools import partial

from .. import journal
from .chore import Chore, Portion

# The number of schedules that are planned at once, at first and at most.
FIRST, MOST = 250, 500
# The time until the next look if nothing could be planned, in seconds.
REST = 0.2


class Plan(Chore):
    """The chore that runs when a look has found a due slot, and again until none is left.

    A look also finds the time of the next slot; a timer wakes the daemon at that time.
    """

    name, doing = "plan", "planning the slots of schedules"

    def __init__(self, *parts):
        super().__init__(*parts)
        self._portion = Portion(FIRST, MOST)

    def may(self):
        return self.core.identity.leased

    def is_due(self):
        queue = self.core.queue
        if queue.planned_at is not None and self.core.timers.passed(self.name):
            queue.planned_at = None
            self.again()
        return super().is_due()

    def call(self):
        return partial(self._plan, self.core.identity.name)

    def _plan(self, who):
        with self._portion.measured() as limit:
            return self.core.store.schedules.plan(who=who, limit=limit)

    def done(self, result):
        planned, queue = result.value, self.core.queue
        if planned.decided:
            journal.planned(slots=planned.decided, enqueued=planned.enqueued)
        if planned.enqueued:
            queue.call()
        if not planned.decided:
            # Another daemon has planned the slot, or somebody has locked it: other chores go first.
            self.core.timers.later("outlook", REST)
            return
        if not planned.is_whole:
            self.again()
        # The look finds the time of the next slot.
        self.core.timers.now("outlook")
