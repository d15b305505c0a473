"""What this daemon is to do: run, be quiet, or stop; and what its row asks of it."""

from ..modes import REQUESTS, Mode, Order, wanted
from . import journal

QUIET = "the daemon is quiet"
STOPPING = "the daemon is stopping"
ASKED = "it was told to"


class Duty:
    """The mode; ``tell(kind, …)`` speaks to the supervisor.

    ``request`` is what was asked last, by an earlier dispatcher or identity too.
    What the daemon's row says is taken from renewals and joins alone, which come one
    after another; what an outlook has seen there only makes the next renewal come soon.
    """

    def __init__(self, attempts, timers, tell, request=""):
        self._attempts = attempts
        self._timers = timers
        self._tell = tell
        self.request = REQUESTS[Order.RESUME]
        self.mode = Mode.RUNNING
        self.obey(request)

    def obey(self, request):
        """Do what the daemon's row asks for."""
        if request == self.request or self.mode is Mode.STOPPING:
            return
        self.request = request
        # So that the next dispatcher knows, even if the row is gone by then.
        self._tell("request", request)
        mode = wanted(request)
        if mode is Mode.STOPPING:
            # The supervisor decides, as after a signal, and says so to all.
            self._tell("stop", ASKED)
        elif mode is not self.mode:
            self.mode = mode
            (self._go_quiet if mode is Mode.QUIET else self._resume)()

    def joined(self, request):
        """The daemon has a new row, on which this is asked."""
        self.obey(request)

    def hint(self, request):
        """An outlook has seen this on the daemon's row, None if there is no row."""
        if request is not None and request != self.request:
            self._timers.now("renew")

    def stop(self):
        """Start nothing more, for good."""
        self.mode = Mode.STOPPING
        self._attempts.stopping = STOPPING
        self._attempts.hand_back_unstarted(STOPPING)

    def keep(self):
        """Hand back what has come into the daemon's hands all the same; called at every turn."""
        if self.mode is Mode.QUIET:
            self._attempts.hand_back_waiting(QUIET)

    def _go_quiet(self):
        journal.went_quiet()
        self._attempts.stopping = QUIET
        self._attempts.hand_back_unstarted(QUIET)

    def _resume(self):
        journal.resumed()
        self._attempts.stopping = ""
        self._attempts.news.call()
