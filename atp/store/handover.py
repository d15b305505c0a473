"""The decision whether an enqueue looks for an idle daemon to hand its Instance to."""

import time

# An enqueue that follows another of this process this soon, in seconds, is not handed over.
APART = 0.02


class Handing:
    """For a store; one process's enqueues come in a row if they are less than APART apart."""

    _last = 0.0

    def _may_hand(self, submission):
        """Whether to look for an idle daemon to hand it to; of many in a row nobody is idle."""
        last, self._last = self._last, time.monotonic()
        return (
            self._last - last > APART
            and submission.due is None
            and submission.start_before is None
            and submission.waits is None
        )
