"""The delay before a retry: exponential or in steps, with a maximum and jitter.

Also the pauses of a client that waits for the end of an Instance.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..exceptions import WaitTimeout

if TYPE_CHECKING:
    from ..rows.instance import Instance


def delay(retry: int, *, first: timedelta, maximum: timedelta, rng: Any = random) -> timedelta:
    """Return the delay before the given retry.

    ``retry`` counts from 1. The delay doubles from ``first`` up to ``maximum``. A random factor
    between 0.5 and 1 then spreads Instances that failed together.
    """
    exponent = min(retry - 1, 62)
    return _scaled(min(first.total_seconds() * 2**exponent, maximum.total_seconds()), rng)


def step(retry: int, steps: Sequence[timedelta], *, rng: Any = random) -> timedelta:
    """Return the delay before the given retry from a list of delays; the last one repeats.

    It has the same random factor as :func:`delay`.
    """
    return _scaled(steps[min(retry, len(steps)) - 1].total_seconds(), rng)


def _scaled(seconds: float, rng: Any) -> timedelta:
    return timedelta(seconds=seconds * rng.uniform(0.5, 1.0))


class Pauses:
    """The pauses between two looks at an Instance, ever longer, for ``timeout`` seconds in all."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._pause = 0.01

    def pause(self, instance: Instance) -> float:
        """Return the next pause in seconds. Raises WaitTimeout if the time is over."""
        left = None if self._deadline is None else self._deadline - time.monotonic()
        if left is not None and left <= 0:
            raise WaitTimeout(f"{instance.uuid} is still {instance.state} after {self._timeout} s.")
        pause, self._pause = self._pause, min(self._pause * 1.5, 0.5)
        return pause if left is None else min(pause, left)
