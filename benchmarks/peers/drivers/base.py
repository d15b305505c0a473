"""What the driver of every peer has, and what the benchmark tells it by the environment."""

import importlib
import json
import os
import sys
import time
from pathlib import Path
from urllib.parse import quote, urlencode

from benchmarks.core.told import tell

# One in so many no-ops tells when it was called: what the benchmark times a drain by.
TELLS_EVERY = 50
# Tasks that come before those whose delay is measured, with negative numbers.
WARM_UP = 20
# Seconds between two of them, at random: those of :mod:`benchmarks.core.latency`.
PAUSES = (0.05, 0.15)
# Seconds that a nap takes.
NAP = 0.05
# The number of the task that waits for all others.
LAST = 0
# Tasks in one call that enqueues many.
CALL = 1000
_VARIABLE = "BENCHMARK_PEER"


class Driver:
    """What the benchmark asks of a peer, from client processes and in worker processes.

    A client's verbs are coroutines: for a peer that is not asynchronous that
    costs nothing, as they never wait.
    """

    async def prepare(self):
        """Make what the peer needs in its empty store."""

    async def connect(self):
        """Do once in a client process what is not part of enqueueing."""

    async def disconnect(self):
        """Undo it."""

    async def enqueue(self, number):
        """Enqueue one no-op, committed."""
        raise NotImplementedError

    async def enqueue_stamp(self, number):
        """Enqueue one task that tells when it was called."""
        raise NotImplementedError

    async def enqueue_many(self, numbers):
        """Enqueue no-ops by the peer's bulk call, committed."""
        raise NotImplementedError

    async def fill(self, numbers):
        """Enqueue no-ops, however that is fastest: it is not measured."""
        for number in numbers:
            await self.enqueue(number)

    async def fan(self, numbers):
        """Submit no-ops and a stamp that waits for all of them, whose number is LAST."""
        raise NotImplementedError

    async def enqueue_nap(self, number):
        """Enqueue one task that calls :func:`nap`."""
        raise NotImplementedError

    async def fill_naps(self, numbers):
        for number in numbers:
            await self.enqueue_nap(number)

    def work(self):
        """Be a worker until SIGTERM."""
        raise NotImplementedError


def noop(number):
    """Do nothing: the body of every no-op."""
    if number % TELLS_EVERY == 0:
        tell(number, time.monotonic())


def stamp(number):
    """Tell when this was called: the body of every task whose delay is measured."""
    tell(number, time.monotonic())


def nap(number):
    """Tell, sleep, and tell again, below zero: the body of tasks whose workers are killed."""
    tell(number, time.monotonic())
    time.sleep(NAP)
    tell(-number, time.monotonic())


def calls(numbers):
    """Yield the numbers by as many as go into one bulk call."""
    for first in range(0, len(numbers), CALL):
        yield numbers[first : first + CALL]


def environment(*, store, options, told):
    """Return the variables by which a driver's process learns what it works on."""
    return {
        _VARIABLE: json.dumps({"store": store, "options": options}),
        "BENCHMARK_TOLD": str(told),
    }


def store():
    """Return where the store is: of PostgreSQL the parts of its URL, of others a ``path``."""
    return _given()["store"]


def option(name):
    """Return a setting of the peer, as it stands in the catalogue."""
    return _given()["options"][name]


def keeps_connections():
    """Return whether Django keeps its connections, as most figures have it, or by its default."""
    return _given()["options"].get("keeps_connections", True)


def postgres_url():
    """Return the URL of the database, in the one form that all the libraries understand."""
    parts = store()
    query = {key: parts[key] for key in ("host", "port", "user", "password") if parts[key]}
    return f"postgresql:///{parts['dbname']}?{urlencode(query, quote_via=quote)}"


def load(name):
    """Return the driver of a peer."""
    return importlib.import_module(f"{__package__}.{name}").Peer()


def become(program, *arguments):
    """Run a program of the peer's virtual environment in place of this process."""
    path = str(Path(sys.executable).with_name(program))
    os.execv(path, [path, *arguments])


def _given():
    return json.loads(os.environ[_VARIABLE])
