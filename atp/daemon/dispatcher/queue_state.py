"""The dispatcher's knowledge of the queue, which decides when it looks at the queue again."""

from ..system.processes import uptime


class QueueState:
    """The state of the queue as far as this dispatcher knows it. All parts share it.

    ``put_backs`` counts the times that Tasks were put back into the queue. ``calls`` counts the
    reasons to look, put-backs included. ``more_waits``: a Task may be due now. Times on the
    uptime clock, or None: ``due_at``, when the next Task is due; ``planned_at``, when the next
    slot of a schedule is due, if that lies ahead; ``graphless_at``, when a look found no live
    graph. ``chores`` are the names of the chores for which the last look has found a reason.
    """

    def __init__(self):
        self.put_backs = self.calls = 0
        self.more_waits = False
        self.due_at = self.planned_at = self.graphless_at = None
        self.chores = set()
        self._freed = False
        # The number of put-backs when a look found no due Task in the queue.
        self._empty_at = None

    def call(self):
        """Note that a Task may wait in the queue."""
        self.calls += 1
        self.more_waits = True

    def put_back(self):
        """Note that a Task was put back into the queue."""
        self.put_backs += 1
        self.call()

    def free(self):
        """Note that a worker has become free."""
        self._freed = True

    def take_freed(self):
        """Tell whether a worker has become free since the last call."""
        freed, self._freed = self._freed, False
        return freed

    def found_empty(self, put_backs):
        """Note that a look found no due Task; it began after this number of put-backs."""
        self._empty_at = put_backs

    def forget_empty(self):
        """Forget that the queue was found empty, because a new look begins."""
        self._empty_at = None

    @property
    def is_empty(self):
        """Whether the last look found no due Task, and none was put back since."""
        return self._empty_at == self.put_backs

    @property
    def is_due(self):
        """Whether the time ``due_at`` has come."""
        return self.due_at is not None and uptime() >= self.due_at
