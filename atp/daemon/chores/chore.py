"""Chores: the things that a dispatcher does every so often, beside its Tasks."""


class Chore:
    """One entry of the table of chores.

    ``name`` is the name of its timer. What it is ``doing`` is said in words, for the log. It
    is done ``every()`` so many seconds; a chore without an interval is done when a look at
    the queue has found a reason for it (see :mod:`.looking`). ``may()`` says whether it
    is allowed now.

    A chore of the event loop has a ``run()``. Any other has a ``call()``, which returns the
    function that runs in a thread of the database; ``done(result)`` is called on the event
    loop afterwards. Where there is a ``failed(result)``, a failure is the chore's own affair
    and costs the daemon no identity.
    """

    name = doing = ""
    # It may be done so many seconds before it is due.
    early = 0.0
    failed = None

    def __init__(self, core, attempts=None, orders=None):
        self.core = core
        self.attempts = attempts
        self.orders = orders

    def every(self):
        """Return its interval in seconds, or None."""

    def may(self):
        return True

    def is_due(self):
        """Tell whether it is to be done now; if so, its next turn comes an interval later."""
        every = self.every()
        if every is None:
            return self.may() and self._was_wanted()
        return self.may() and self.core.timers.due(self.name, every, self.early)

    def _was_wanted(self):
        """Tell whether a look has found a reason for it, once for each time."""
        is_wanted = self.name in self.core.queue.chores
        self.core.queue.chores.discard(self.name)
        return is_wanted

    def again(self):
        """Have a chore without an interval done once more."""
        self.core.queue.chores.add(self.name)

    def run(self):
        """Do it on the event loop, without a call to the database."""
        raise NotImplementedError

    def call(self):
        raise NotImplementedError

    def done(self, result):
        """Nothing is to be done afterwards."""


def run_due(chores):
    """Run those chores of the event loop that are due."""
    for chore in chores:
        if chore.is_due():
            chore.run()


class Chores:
    """The chores of one thread, in the order of their importance."""

    def __init__(self, thread, chores):
        self._thread = thread
        self._chores = chores

    def turn(self):
        """Start the first chore that is due, if the thread is free; tells whether one was."""
        if self._thread.busy:
            return False
        for chore in self._chores:
            if chore.is_due():
                self._thread.submit(chore.doing, chore.call(), chore.done, chore.failed)
                return True
        return False
