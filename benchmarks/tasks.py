"""The Types that the benchmarks enqueue, found by daemons as those of any app.

There are as many of a kind as ``BENCHMARK_TYPES`` says. A handler that has to tell
something adds it to the file that ``BENCHMARK_TOLD`` names: see :mod:`.core.told`.
"""

import os
import time

from atp import task_type

from .core.told import tell
from .fleet import MOST_ATTEMPTS

COUNT = int(os.environ.get("BENCHMARK_TYPES", "1"))

# What takes long tells so often that it is at it, in seconds.
TELL_EVERY = 0.05


# How long this process took to tell of the last sleep, in seconds: the handler's time too.
_telling = [0.0]


def noop(context, *, number):
    """Do nothing."""


def sleep(context, *, number, milliseconds):
    """Take a time, and tell how long it was, with what it took to tell of the one before."""
    began = time.perf_counter()
    time.sleep(milliseconds / 1000)
    slept = time.perf_counter()
    tell(number, slept - began + _telling.pop())
    _telling.append(time.perf_counter() - slept)


@task_type("benchmarks.stamp")
def stamp(context, *, number):
    """Tell when it was called."""
    tell(number, time.monotonic())


BURST_MS = int(os.environ.get("BENCHMARK_BURST_MS", "20"))


@task_type("benchmarks.burst")
def burst(context, *, number, milliseconds=BURST_MS):
    """Take a time, and tell that it is over."""
    time.sleep(milliseconds / 1000)
    tell(number, 0.0)


@task_type("benchmarks.seldom")
def seldom(context, *, number, milliseconds=BURST_MS):
    """As what comes in bursts, of a Type of its own."""
    burst(context, number=number, milliseconds=milliseconds)


@task_type("benchmarks.long")
def long(context, *, number, ms):
    """Take a time, and tell all the while that this attempt is at it."""
    key = number * MOST_ATTEMPTS + context.attempt
    end = time.monotonic() + ms / 1000
    while True:
        tell(key, time.monotonic())
        if time.monotonic() >= end:
            return
        context.check()
        time.sleep(min(TELL_EVERY, ms / 1000))


@task_type("benchmarks.span", max_restarts=20)
def span(context, *, number, ms):
    """Take a time, and tell when it begins, and when, under the number's negative, it is over."""
    tell(number, time.monotonic())
    time.sleep(ms / 1000)
    tell(-number, time.monotonic())


@task_type("benchmarks.other")
def other(context, *, number):
    """Wait for ever: no daemon of a benchmark serves it."""


NOOPS = [task_type(f"benchmarks.noop.{number}")(noop) for number in range(COUNT)]
SLEEPS = [task_type(f"benchmarks.sleep.{number}")(sleep) for number in range(COUNT)]
