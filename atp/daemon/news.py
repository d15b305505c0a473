"""What a dispatcher has heard that makes it worth while to look at the queue again."""


class News:
    """Kept by whoever hears of something, read by who claims.

    ``count`` says how often something was put back into the queue, ``calls`` how often
    there was a reason to look, that one among them. ``more_waits`` says that something
    may be due there now.
    """

    def __init__(self):
        self.count = self.calls = 0
        self.more_waits = False
        self._freed = False

    def call(self):
        """Something may wait in the queue."""
        self.calls += 1
        self.more_waits = True

    def put_back(self):
        """Something was put back into the queue."""
        self.count += 1
        self.call()

    def free(self):
        """A worker has become free."""
        self._freed = True

    def take_freed(self):
        """Tell whether a worker has become free since the last call."""
        freed, self._freed = self._freed, False
        return freed
