"""The orders to this daemon (go quiet, resume, stop), and its mode."""

from ... import messages as attempt_messages
from ...commands import REQUESTS, DaemonCommand, Mode, requested_mode
from .. import journal
from ..shared import messages

ASKED = "it was told to"


class Orders:
    """The part of the dispatcher that obeys the request in the daemon's row.

    ``request`` is the last request, also from the time of an earlier dispatcher or identity.
    The request is taken from renewals and joins alone, which come one after another. A request
    that an outlook has seen only makes the next renewal come soon.
    """

    def __init__(self, core, attempts, request=""):
        self._core = core
        self._attempts = attempts
        self._tell = core.tell
        self.request = REQUESTS[DaemonCommand.RESUME]
        self.mode = Mode.RUNNING
        self.obey(request)

    def obey(self, request):
        """Obey the request in the daemon's row, unless it is known or the daemon stops."""
        if request == self.request or self.mode is Mode.STOPPING:
            return
        self.request = request
        # The next dispatcher has to know the request, even if the row is gone by then.
        self._tell(messages.Ordered(request))
        mode = requested_mode(request)
        if mode is Mode.STOPPING:
            # The supervisor decides, as after a signal, and tells the dispatcher to stop.
            self._tell(messages.StopWanted(ASKED))
        elif mode is not self.mode:
            self.mode = mode
            (self._go_quiet if mode is Mode.QUIET else self._resume)()

    def joined(self, request):
        """Obey the request in the daemon's new row."""
        self.obey(request)

    def hint(self, request):
        """Renew soon if the request that an outlook has seen is new; None: there is no row."""
        if request is not None and request != self.request:
            self._core.timers.now("renew")

    def stop(self):
        """Start no more tasks, for good, and hand back the unstarted ones."""
        self.mode = Mode.STOPPING
        self._hand_back(attempt_messages.daemon_stopping())

    def keep(self):
        """In quiet mode, hand back Tasks that have come in all the same; called at every turn."""
        if self.mode is Mode.QUIET:
            self._attempts.hand_back_waiting(self._attempts.stopping)

    def _go_quiet(self):
        journal.went_quiet()
        self._hand_back(attempt_messages.daemon_quiet())

    def _hand_back(self, why):
        """Start no more tasks, and hand back the unstarted ones."""
        self._attempts.stopping = why
        self._attempts.hand_back_unstarted(why)

    def _resume(self):
        journal.resumed()
        self._attempts.stopping = ""
        self._core.queue.call()
