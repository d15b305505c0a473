"""The decision whether an enqueue may hand its Instance to an idle daemon."""

import time

# In seconds: an enqueue this soon after another one of this process is not handed over.
APART = 0.02


class Handing:
    """A part of a store: it tells single enqueues from those that come in a row.

    Enqueues of one process come in a row if less than APART seconds are between them.
    """

    _last = 0.0

    def _may_hand(self, submission):
        """Return whether to look for an idle daemon: not in a row, since then none is idle."""
        last, self._last = self._last, time.monotonic()
        return (
            self._last - last > APART
            and submission.due is None
            and submission.start_before is None
            and submission.waits is None
        )
