"""The dispatcher's knowledge of the queue, which decides when it looks at the queue again."""

from ..system.processes import uptime


class QueueState:
    """Written by the part that learns something, read by the part that claims.

    ``put_backs`` counts how often something was put back into the queue, ``calls`` how often
    there was a reason to look, put-backs among them. ``more_waits`` says that something
    may be due there now. ``due_at`` is when something will be due, on the uptime clock, and
    ``planned_at`` when the next slot of a schedule is due, if that lies ahead,
    ``graphless_at`` when a look found no graph that lives, and ``chores`` are the names of the
    chores for which the last look has found a reason.
    """

    def __init__(self):
        self.put_backs = self.calls = 0
        self.more_waits = False
        self.due_at = self.planned_at = self.graphless_at = None
        self.chores = set()
        self._freed = False
        # The number of put-backs when the queue was found to hold nothing that is due.
        self._empty_at = None

    def call(self):
        """Something may wait in the queue."""
        self.calls += 1
        self.more_waits = True

    def put_back(self):
        """Something was put back into the queue."""
        self.put_backs += 1
        self.call()

    def free(self):
        """A worker has become free."""
        self._freed = True

    def take_freed(self):
        """Tell whether a worker has become free since the last call."""
        freed, self._freed = self._freed, False
        return freed

    def found_empty(self, put_backs):
        """Nothing is due there that was put back before this number of put-backs."""
        self._empty_at = put_backs

    def forget_empty(self):
        """The queue is looked at again."""
        self._empty_at = None

    @property
    def is_empty(self):
        """Whether the last look found nothing due, and nothing was put back since."""
        return self._empty_at == self.put_backs

    @property
    def is_due(self):
        """Whether the time has come at which something is due."""
        return self.due_at is not None and uptime() >= self.due_at
