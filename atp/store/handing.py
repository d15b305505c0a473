"""When an enqueue looks for an idle daemon to hand its Instance to."""

import time

# What comes so soon after another of this process, in seconds, comes to no idle daemon.
APART = 0.02


class Handing:
    """For a store; one process's enqueues come in a row if they are less than APART apart."""

    _last = 0.0

    def _may_hand(self, request):
        """Whether to look for an idle daemon to hand it to; of many in a row nobody is idle."""
        last, self._last = self._last, time.monotonic()
        return self._last - last > APART and request.due is None and request.start_before is None
