"""The orders to this daemon, to go quiet, to resume or to stop; and its mode."""

from ...words import attempt_messages
from ...words.orders import REQUESTS, Mode, Order, wanted
from .. import journal
from ..shared import messages

ASKED = "it was told to"


class Orders:
    """Obeys what the daemon's row asks for.

    ``request`` is what was asked last, by an earlier dispatcher or identity too.
    What the daemon's row says is taken from renewals and joins alone, which come one
    after another; what an outlook has seen there only makes the next renewal come soon.
    """

    def __init__(self, core, attempts, request=""):
        self._core = core
        self._attempts = attempts
        self._tell = core.tell
        self.request = REQUESTS[Order.RESUME]
        self.mode = Mode.RUNNING
        self.obey(request)

    def obey(self, request):
        """Do what the daemon's row asks for."""
        if request == self.request or self.mode is Mode.STOPPING:
            return
        self.request = request
        # The next dispatcher has to know, even if the row is gone by then.
        self._tell(messages.Ordered(request))
        mode = wanted(request)
        if mode is Mode.STOPPING:
            # The supervisor decides, as after a signal, and says so to all.
            self._tell(messages.StopWanted(ASKED))
        elif mode is not self.mode:
            self.mode = mode
            (self._go_quiet if mode is Mode.QUIET else self._resume)()

    def joined(self, request):
        """The daemon has a new row, on which this is asked."""
        self.obey(request)

    def hint(self, request):
        """An outlook has seen this on the daemon's row, None if there is no row."""
        if request is not None and request != self.request:
            self._core.timers.now("renew")

    def stop(self):
        """Start nothing more, for good."""
        self.mode = Mode.STOPPING
        self._hand_back(attempt_messages.daemon_stopping())

    def keep(self):
        """Hand back what has come into the daemon's hands all the same; called at every turn."""
        if self.mode is Mode.QUIET:
            self._attempts.hand_back_waiting(self._attempts.stopping)

    def _go_quiet(self):
        journal.went_quiet()
        self._hand_back(attempt_messages.daemon_quiet())

    def _hand_back(self, why):
        """Start nothing more."""
        self._attempts.stopping = why
        self._attempts.hand_back_unstarted(why)

    def _resume(self):
        journal.resumed()
        self._attempts.stopping = ""
        self._core.queue.call()
