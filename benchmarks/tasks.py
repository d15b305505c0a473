"""The Types that the benchmarks enqueue, found by daemons as those of any app.

There are as many of a kind as ``BENCHMARK_TYPES`` says. A handler that has to tell
something adds it to the file that ``BENCHMARK_TOLD`` names: see :mod:`.core.told`.
"""

import asyncio
import os
import signal
import time
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import urlopen

import atp
from atp import Fatal, task_type
from atp.conf import settings

from .core import web
from .core.told import tell
from .fleet import MOST_ATTEMPTS

COUNT = int(os.environ.get("BENCHMARK_TYPES", "1"))

# Rows that handlers of the ORM's choose from: each task has one of its own for a while.
ROWS = 1_000

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


def sleep_only(context, *, number, milliseconds):
    """Take a time."""
    time.sleep(milliseconds / 1000)


def report_once(context):
    """Report progress, whose message is the time of that."""
    context.progress(0.5, message=str(time.time()))
    time.sleep(3)


# Where a benchmark has an engine that runs attempts.
if "engine" in getattr(settings, "EXECUTORS", {}):
    elsewhere = task_type("benchmarks.elsewhere", executor="engine")(sleep_only)
    reports = task_type("benchmarks.reports", executor="engine")(report_once)


# A Type of the history that the pages show, offered to OGC clients.
if identifier := os.environ.get("BENCHMARK_PUBLIC"):
    offered = task_type(identifier, public=True)(noop)


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


# The code of an earlier commit, which is measured beside this one, may know no downstreams.
if hasattr(atp, "Throttled"):

    @task_type(
        "benchmarks.call",
        downstream="benchmarks",
        downstream_errors=(ConnectionError, TimeoutError),
    )
    def call(context, *, url):
        """Call a service, and tell of it what it answers."""
        try:
            with urlopen(url, timeout=60):
                pass
        except HTTPError as error:
            if error.code == HTTPStatus.TOO_MANY_REQUESTS:
                raise atp.Throttled(after=error.headers.get("Retry-After")) from None
            raise atp.Unavailable(f"it answers {error.code}") from None


@task_type("benchmarks.orm")
def orm(context, *, number):
    """Read a row, add one to it and save it, by the ORM."""
    save(number)


def save(number):
    """Do what a handler of the ORM's does, here and in a plain loop."""
    from .models import add_one

    add_one(number % ROWS + 1)


@task_type("benchmarks.other")
def other(context, *, number):
    """Wait for ever: no daemon of a benchmark serves it."""


@task_type("benchmarks.failing", max_retries=0)
def failing(context, *, number, mended=""):
    """Fail for one of seven causes, with what differs from one to the next, until it is mended."""
    if not mended or not os.path.exists(mended):
        _CAUSES[number % len(_CAUSES)](number)


def _no_elevation(number):
    raise ValueError(f"tile {number} has no elevation")


def _unknown(number):
    return {}[f"user {number}"]


def _unreadable(number):
    try:
        _unknown(number)
    except KeyError as error:
        raise OSError(f"/data/{number:08x}.tif cannot be read") from error


def _no_model(number):
    raise Fatal(f"no model of {number}", fingerprint="no-dem")


def _withdrawn(number):
    raise Fatal(f"order {number} is withdrawn")


def _too_far(number):
    return [1][number + 1]


def _no_answer(number):
    raise TimeoutError(f"https://example.org/{number} did not answer within {number / 7:.2f} s")


_CAUSES = (
    *(_no_elevation, _unknown, _unreadable, _no_model),
    *(_withdrawn, _too_far, _no_answer),
)


@task_type("benchmarks.soak", retention=10)
def soak(context, *, number):
    """Do nothing, and be kept for a while."""


@task_type("benchmarks.soak.told", retention=10)
def soak_told(context, *, number):
    """Tell when it was called, and be kept for a while."""
    tell(number, time.monotonic())


CONCURRENCY = int(os.environ.get("BENCHMARK_CONCURRENCY") or 0)
# One in so many attempts of the ORM's fails.
FAILS_EVERY = 10


async def noop_in_loop(context, *, number):
    """Do nothing, beside others."""


async def wait(context, *, seconds):
    """Wait, beside others."""
    await asyncio.sleep(seconds)


async def ask(context, *, port):
    """Ask a service that takes its time."""
    answer = await web.get(port, "/")
    if answer.status != HTTPStatus.OK:
        raise Fatal(f"it answers {answer.status}")


async def save_in_loop(context, *, number):
    """Read a row, add one to it and save it, by the asynchronous ORM; some fail then."""
    from .models import Counter

    row = await Counter.objects.aget(pk=number % ROWS + 1)
    row.value += 1
    await row.asave()
    if number % FAILS_EVERY == 0:
        raise Fatal(f"order {number} is withdrawn")


async def misbehave(context, *, how):
    """Be bad to those beside it, in one of six ways."""
    await asyncio.sleep(0.3)
    await _BAD[how]()


async def _exit():
    os._exit(3)


async def _crash():
    os.kill(os.getpid(), signal.SIGSEGV)


async def _spin():
    while True:
        pass


async def _block():
    time.sleep(600)


async def _be_killed():
    """End as by the kernel, if it takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


async def _swallow_cancels():
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass


_BAD = {
    "os._exit": _exit,
    "SIGSEGV": _crash,
    "while True": _spin,
    "time.sleep": _block,
    "SIGKILL": _be_killed,
    "swallows cancels": _swallow_cancels,
}
BAD = tuple(_BAD)

# The code of an earlier commit, which is measured beside this one, may know no loops.
if CONCURRENCY:
    loop_noop = task_type("benchmarks.loop.noop", concurrency=CONCURRENCY)(noop_in_loop)
    loop_wait = task_type("benchmarks.loop.wait", concurrency=CONCURRENCY)(wait)
    loop_ask = task_type("benchmarks.loop.ask", concurrency=CONCURRENCY)(ask)
    loop_save = task_type("benchmarks.loop.save", concurrency=CONCURRENCY)(save_in_loop)
    loop_bad = task_type(
        "benchmarks.loop.bad",
        concurrency=CONCURRENCY,
        timeout=1,
        cancel_grace=0.5,
        max_retries=0,
        max_restarts=0,
    )(misbehave)


NOOPS = [task_type(f"benchmarks.noop.{number}")(noop) for number in range(COUNT)]
SLEEPS = [task_type(f"benchmarks.sleep.{number}")(sleep) for number in range(COUNT)]
