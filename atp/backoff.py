"""How long a retry waits: exponential, capped, with jitter."""

import random
from datetime import timedelta


def delay(retry, *, first, maximum, rng=random):
    """Return the delay before the given retry as a timedelta.

    ``retry`` counts from 1. The delay doubles from ``first`` up to
    ``maximum`` and is then scaled by a random factor between 0.5 and 1, so
    that Instances which failed together do not come back together.
    """
    exponent = min(retry - 1, 62)
    seconds = min(first.total_seconds() * 2**exponent, maximum.total_seconds())
    return timedelta(seconds=seconds * rng.uniform(0.5, 1.0))
