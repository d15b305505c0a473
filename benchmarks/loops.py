"""Many waits in one process: what a loop does with attempts that wait, no-ops, and bad ones.

A daemon has one loop, which runs a hundred attempts beside each other. It is told how long a
thousand take that wait for a second each, and what memory the loop's process has meanwhile (PSS).
The same requests to a service that takes its time are made by attempts, and in turn by a plain
asyncio client with as many at a time. Coroutines that do nothing are drained beside functions.

While a loop is full of attempts that wait, one of them does something bad, of six kinds in turn;
meanwhile tasks of a plain Type are enqueued, and it is told how long each takes until its handler
is entered. Afterwards only the bad one may be charged.

At last attempts use the ORM, of which a tenth fails: it is told how many connections to the
database the loop has at most, in the first half of the time and in the second, and how many the
daemon has with it. On SQLite these are the descriptors of the file.
"""

import asyncio
import threading
import time
from collections import Counter
from contextlib import suppress

from .core import batch, draining, latency, web
from .core.daemons import daemons
from .core.processes import Process
from .core.report import percentile
from .core.slow import slow_service
from .core.told import listening

MEGABYTE = 1_000_000
# Limits: of the least time that waits can take, of a plain client, in MB, ms and connections.
MOST_OF_LEAST, LEAST_OF_CLIENT = 1.1, 0.9
MOST_MEMORY, PROMPT_MS, MOST_CONNECTIONS = 70, 100, 10
LOOK_EVERY = 0.02
# What the process of a loop calls itself.
LOOP = "atpd-loop"
# What is bad is found after 1.5 s: as long do others wait, and longer.
NEIGHBOURS_WAIT = 5
PATIENCE = 60


def add_arguments(add):
    add("--concurrency", type=int, default=100, help="attempts that a loop runs at a time")
    add("--processes", type=int, default=2, help="workers of the daemon, beside the loop")
    add("--waits", type=int, default=1_000, help="tasks that wait for a second")
    add("--requests", type=int, default=2_000, help="requests to a slow service")
    add("--answer-ms", type=int, default=250, help="milliseconds until it answers")
    add("--tasks", type=int, default=20_000, help="no-ops of a run")
    add("--samples", type=int, default=40, help="plain tasks for each bad attempt")
    add("--saves", type=int, default=10_000, help="attempts that use the ORM")
    add("--warm-up", type=int, default=250, help="no-ops for each worker before")


def run(options, report):
    for measure in (_waits, _requests, _noops, _neighbours, _connections):
        measure(options, report)


def _fleet(options, *types):
    patterns = [each.identifier for each in types]
    return daemons(options.directory, processes=options.processes, types=patterns)


def _drained(task_type, inputs, fleet):
    """Return the seconds that the daemon takes for tasks, which all have to go well.

    What is claimed too early for a place goes back to the queue, and is claimed again.
    """
    enqueued = batch.enqueue([(task_type, inputs)])
    seconds = batch.settle(enqueued, fleet).seconds
    _verify(enqueued)
    return seconds


def _verify(enqueued, failing=0):
    from atp.models import Instance

    rows = Instance.objects.filter(pk__range=enqueued.keys)
    found = Counter(rows.values_list("state", "restarts"))
    wanted = Counter({("FINISHED", 0): len(enqueued) - failing, ("FAILED", 0): failing})
    if +found != +wanted:
        raise batch.BatchError(f"The attempts ended as {found}, not as {wanted}.")


def _waits(options, report):
    from .tasks import loop_wait

    least = options.waits / options.concurrency
    seconds, memory = [], []
    for _ in range(options.runs):
        with _fleet(options, loop_wait) as fleet:
            _drained(loop_wait, [{"seconds": 0}] * options.concurrency, fleet)
            with _Watch(lambda: _memory(fleet)) as watch:
                inputs = [{"seconds": 1}] * options.waits
                seconds.append(_drained(loop_wait, inputs, fleet))
        memory.append(max(watch.found) / MEGABYTE)
    taken = report.row(f"{options.waits:,} waits of 1 s", seconds, unit="s")
    report.row("memory of the loop", memory, unit="MB")
    if not least <= taken <= MOST_OF_LEAST * least:
        report.exceeded.append(
            f"waits take {taken:.2f} s, not {least:.1f} to {MOST_OF_LEAST * least:.1f}"
        )
    if max(memory) > MOST_MEMORY:
        report.exceeded.append(f"a loop has {max(memory):.1f} MB, not {MOST_MEMORY}")


def _memory(fleet):
    """Return the bytes of the largest loop."""
    return max(each.memory for each in _family(fleet) if each.name.startswith(LOOP))


def _requests(options, report):
    from .tasks import loop_ask

    own, plain = [], []
    with slow_service(options.answer_ms) as port, _fleet(options, loop_ask) as fleet:
        inputs = [{"port": port}] * options.requests
        _drained(loop_ask, inputs[: options.concurrency], fleet)
        for _ in range(options.runs):
            plain.append(options.requests / asyncio.run(_asked(port, options)))
            own.append(options.requests / _drained(loop_ask, inputs, fleet))
    report.rates("requests, a plain client", plain)
    report.rates("requests, a loop", own)
    ratio = _median_ratio(own, plain)
    report.compare("a plain client", ratio, figure="requests, a loop")
    if ratio < LEAST_OF_CLIENT:
        report.exceeded.append(f"requests: {ratio:.2f} of a plain client, not {LEAST_OF_CLIENT}")


async def _asked(port, options):
    """Return the seconds that a plain client takes, with as many requests at a time."""
    left = iter(range(options.requests))

    async def ask():
        for _ in left:
            await web.get(port, "/")

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(options.concurrency):
            group.create_task(ask())
    return time.perf_counter() - began


def _noops(options, report):
    from .tasks import NOOPS, loop_noop

    kinds = {"no-ops in a loop": loop_noop, "no-ops in processes": NOOPS[0]}
    rates = {name: [] for name in kinds}
    for _ in range(options.runs):
        for name, task_type in kinds.items():
            load = draining.Load.of(options, [task_type], tasks=options.tasks)
            rates[name].append(draining.run(load, options.directory).rate)
    for name, found in rates.items():
        report.rates(name, found)
    ratio = _median_ratio(*rates.values())
    report.compare("no-ops in processes", ratio, figure="no-ops in a loop")


def _neighbours(options, report):
    from .tasks import BAD, loop_bad, loop_wait, stamp

    found = {how: [] for how in BAD}
    charged = []
    with listening(options.directory) as told:
        for _ in range(options.runs):
            with _fleet(options, loop_bad, loop_wait, stamp) as fleet:
                # What is imported with the first tasks is not measured.
                _drained(loop_wait, [{"seconds": 0}] * options.concurrency, fleet)
                _drained(stamp, [{"number": number} for number in range(100)], fleet)
                for how in BAD:
                    delays, others = _beside(how, options, told, fleet)
                    found[how].append(percentile(delays, 0.95))
                    charged.append(others)
    for how, delays in found.items():
        p95 = report.row(f"start of others, {how}, p95", delays, unit="ms")
        if p95 > PROMPT_MS:
            report.exceeded.append(f"beside {how}: {p95:.0f} ms until others start")
    if report.row("charged beside the bad one", charged, unit=""):
        report.exceeded.append("an attempt was charged that did nothing")


def _beside(how, options, told, fleet):
    """Return the delays of a plain Type beside one bad attempt, and how many others are charged."""
    from atp.models import Instance

    from .tasks import loop_bad, loop_wait, stamp

    count = options.concurrency - 1
    waiting = batch.enqueue([(loop_wait, [{"seconds": NEIGHBOURS_WAIT}] * count)])
    neighbours = Instance.objects.filter(pk__range=waiting.keys)
    _wait(lambda: neighbours.filter(state="RUNNING").count() == count, fleet)
    bad = loop_bad.enqueue(how=how)
    delays = latency.sampled(
        options.samples, lambda number: stamp.enqueue(number=number), told
    ).from_call
    batch.settle(waiting, fleet)
    _wait(lambda: neighbours.filter(state="FINISHED").count() == count, fleet)
    bad.wait(PATIENCE)
    if bad.state != "FAILED" or bad.attempt != 1:
        raise batch.BatchError(f"{how}: {bad.state} after {bad.attempt} attempts, not FAILED")
    others = neighbours.exclude(restarts=0, retries=0, lost=0).count()
    return delays, others


def _wait(is_over, fleet):
    deadline = time.monotonic() + PATIENCE
    while not is_over():
        fleet.check()
        if time.monotonic() > deadline:
            raise batch.BatchError(f"After {PATIENCE} s it is not so:\n{fleet.log}")
        time.sleep(LOOK_EVERY)


def _connections(options, report):
    from django.db import connection

    from .models import Counter as Row
    from .tasks import FAILS_EVERY, ROWS, loop_save

    Row.objects.bulk_create([Row() for _ in range(ROWS)])
    inputs = [{"number": number} for number in range(options.saves)]
    early, late, daemon, rates = [], [], [], []
    for _ in range(options.runs):
        with _fleet(options, loop_save) as fleet, _counting(connection, fleet) as watch:
            enqueued = batch.enqueue([(loop_save, inputs)])
            seconds = batch.settle(enqueued, fleet).seconds
        _verify(enqueued, len(inputs[::FAILS_EVERY]))
        of_loop, in_all = zip(*watch.found, strict=True)
        half = len(of_loop) // 2
        early.append(max(of_loop[:half], default=0))
        late.append(max(of_loop[half:]))
        daemon.append(max(in_all))
        rates.append(options.saves / seconds)
    report.rates("attempts that use the ORM", rates)
    report.row("connections of the loop, first half", early, unit="")
    report.row("connections of the loop, second half", late, unit="")
    report.row("connections of the daemon, most", daemon, unit="")
    most = max(early + late)
    if most > MOST_CONNECTIONS:
        report.exceeded.append(f"a loop has {most} connections, not {MOST_CONNECTIONS}")
    if max(late) > max(early):
        report.exceeded.append(f"the connections grow: {early}, then {late}")


def _median_ratio(values, others):
    """Return the median of the ratios, run by run."""
    ratios = [value / other for value, other in zip(values, others, strict=True)]
    return percentile(ratios, 0.5)


class _Watch(threading.Thread):
    """Looks at a value again and again until the end of a block; ``found`` are its values."""

    def __init__(self, look, every=0.1):
        super().__init__(daemon=True)
        self._look, self._every = look, every
        self._is_over = threading.Event()
        self.found = []

    def run(self):
        self.found.append(self._look())
        while not self._is_over.wait(self._every):
            self.found.append(self._look())
        # What it looks at may have opened something.
        getattr(self._look, "close", lambda: None)()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *raised):
        self._is_over.set()
        self.join()


def _counting(connection, fleet):
    """Return a watch of the connections to the database: of the loop, and of the whole daemon."""
    if connection.vendor == "sqlite":
        path = connection.settings_dict["NAME"]
        return _Watch(lambda: _descriptors(fleet, path), LOOK_EVERY)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [own] = cursor.fetchone()
    return _Watch(_Sessions(connection, own), LOOK_EVERY)


class _Sessions:
    """Counts the sessions of others, on a connection that the thread which calls it opens."""

    def __init__(self, connection, own):
        self._like = connection
        self._own = own
        self._connection = None

    def __call__(self):
        self._connection = self._connection or self._like.copy()
        with self._connection.cursor() as cursor:
            # Processes that run handlers name their sessions; idle workers have none.
            cursor.execute(
                "SELECT count(*) FILTER (WHERE application_name LIKE 'atpd-worker%%'), count(*)"
                " FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid NOT IN (pg_backend_pid(), %s) AND backend_type = 'client backend'",
                [self._own],
            )
            return cursor.fetchone()

    def close(self):
        if self._connection:
            self._connection.close()


def _descriptors(fleet, path):
    """Return how often the loop, and all processes of the daemon, have a file open."""
    of_loops = in_all = 0
    for process in _family(fleet):
        with suppress(FileNotFoundError, ProcessLookupError):
            found = process.files.count(path)
            in_all += found
            of_loops += found * process.name.startswith(LOOP)
    return of_loops, in_all


def _family(fleet):
    return [process for pid in fleet.pids for process in Process(pid).family()]
