"""How long it takes from enqueueing a task until its handler is entered."""

import random
import time
from dataclasses import dataclass

from .report import percentile

# Seconds between two tasks, at random, so that no rhythm of a daemon fits to it.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 0.15
ANSWER_WITHIN = 30
SHARES = (0.5, 0.9, 0.99)


class LatencyError(Exception):
    """Not every handler was entered; the message says how many were not."""


@dataclass(frozen=True, kw_only=True)
class Latencies:
    """Milliseconds until handlers were entered, from the call and from its return."""

    from_call: list
    from_return: list

    def percentiles(self):
        """Return the percentiles by their names, as in "p99 from the call"."""
        return {
            f"p{share * 100:.0f} from {start}": percentile(values, share)
            for start, values in (
                ("the call", self.from_call),
                ("its return", self.from_return),
            )
            for share in SHARES
        }


def sampled(samples, enqueue, told, seed=0):
    """Call ``enqueue(number)`` so many times, with pauses; return the :class:`Latencies`.

    Handlers tell the number and when they were entered on the monotonic clock,
    which all processes of a host share. Raises LatencyError.
    """
    told.forget()
    pauses = random.Random(seed)
    called, returned = {}, {}
    for number in range(samples):
        time.sleep(pauses.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))
        called[number] = time.monotonic()
        enqueue(number)
        returned[number] = time.monotonic()
    entered = _all_of(samples, told)
    return Latencies(
        from_call=[1000 * (entered[number] - called[number]) for number in called],
        from_return=[1000 * (entered[number] - returned[number]) for number in called],
    )


def _all_of(samples, told):
    deadline = time.monotonic() + ANSWER_WITHIN
    while len(entered := dict(told.pairs())) < samples:
        if time.monotonic() > deadline:
            raise LatencyError(f"{samples - len(entered)} of {samples} handlers were not entered.")
        time.sleep(LONGEST_PAUSE)
    return entered
