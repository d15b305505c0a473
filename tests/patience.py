"""How patient the tests are: a factor that is measured once, at the start of a run.

A wait ends with the state that it waits for. Its limit only ends a run that hangs, so it may be
long; it grows with the factor, and so do the leases of the daemons that tests start: on a loaded
machine a daemon is not to lose a lease for want of a processor.

``ATP_TEST_PATIENCE`` in the environment is the factor; without it, it is 1.
"""

import os
import statistics
import time

VARIABLE = "ATP_TEST_PATIENCE"
# Seconds of a piece of work on a machine of two processors with nothing else to do.
QUIET = 0.06
MOST = 4.0
ROUNDS = 9
# Settings of a daemon that are the longer the more patient the tests are.
LEASES = ("LEASE", "KILL_AFTER", "STATEMENT_TIMEOUT")


def factor():
    return float(os.environ.get(VARIABLE, "1"))


def measure():
    """Measure the factor, for this process and those that it starts, and return it."""
    if VARIABLE not in os.environ:
        slow = statistics.median(_piece_of_work() for _ in range(ROUNDS)) / QUIET
        os.environ[VARIABLE] = f"{min(max(slow, 1.0), MOST):.1f}"
    return factor()


def scaled(settings):
    """Return settings of ATP with leases, and what depends on them, as patient as the tests."""
    return {
        name: value * factor() if name in LEASES and _is_number(value) else value
        for name, value in settings.items()
    }


def _is_number(value):
    """Whether it can be scaled: tests give settings that are wrong, too."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _piece_of_work():
    """Return how many seconds some fixed work takes."""
    begun, sum = time.perf_counter(), 0
    for number in range(1_000_000):
        sum = (sum * 31 + number) & 0xFFFF
    return time.perf_counter() - begun
