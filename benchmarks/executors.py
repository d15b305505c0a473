"""How many tasks a second an engine runs for ATP, and in turn with it by its own ``submit``.

The engine has as many places as a daemon gives it attempts at a time, on this host. Handlers sleep.
"""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from .core import batch, draining
from .core.daemons import daemons

LEAST = 0.5
ENGINE = "engine"
START_WITHIN = 120


def add_arguments(add):
    add("--engine", type=str, default="dask", help="dask or ray")
    add("--places", type=int, default=100, help="attempts at a time")
    add("--tasks", type=int, default=2_000, help="tasks of a run")
    add("--milliseconds", type=int, default=10, help="how long each sleeps")
    add("--warm-up", type=int, default=10, help="seconds until a process serves each place")


def run(options, report):
    with ENGINES[options.engine](options) as client:
        _compare(options.engine, client, options, report)


def _compare(name, client, options, report):
    """Compare the two in turn. ``client()`` is a connection of the engine's own, without ATP."""
    from atp import task_type

    from .tasks import report_once, sleep_only

    elsewhere = task_type("benchmarks.elsewhere", executor=ENGINE)(sleep_only)
    reports = task_type("benchmarks.reports", executor=ENGINE)(report_once)
    own, found, seen = [], [], []
    patterns = [elsewhere.identifier, reports.identifier]
    load = draining.Load(types=(elsewhere,), tasks=options.tasks, milliseconds=options.milliseconds)
    # Ray has a process for each place and each client: each starts, and ends with its client.
    start = replace(load, tasks=options.places, milliseconds=1000 * options.warm_up)
    for _ in range(options.runs):
        with client() as submit:
            submit(start.tasks, start.milliseconds)
            submit(options.tasks, options.milliseconds)
            began = time.perf_counter()
            submit(options.tasks, options.milliseconds)
            own.append(options.tasks / (time.perf_counter() - began))
        with daemons(options.directory, count=1, types=patterns, executor=ENGINE) as fleet:
            _run_long(start)
            _drain(load, fleet)
            found.append(options.tasks / _drain(load, fleet))
            seen.append(1000 * _seconds_until_seen(reports))
    beside = report.rates(f"{name}: its own submit", own)
    ratio = report.rates(f"{name}: ATP", found) / beside
    report.compare(f"{name}: its own submit", ratio, figure=f"{name}: ATP")
    if ratio < LEAST:
        report.exceeded.append(f"on {name} it is {ratio:.2f} of its own submit, not {LEAST}")
    report.row(f"{name}: progress is in the database after", seen, unit="ms")


def _seconds_until_seen(reports):
    """Return how long the progress of an attempt took from the handler's call to the database."""
    instance = reports.enqueue()
    deadline = time.monotonic() + START_WITHIN
    while not instance.progress_message:
        if time.monotonic() > deadline:
            raise batch.BatchError(f"No progress was seen within {START_WITHIN} s.")
        time.sleep(0.005)
        instance.refresh_from_db(fields=["progress_message"])
    seconds = time.time() - float(instance.progress_message)
    instance.wait(START_WITHIN)
    return seconds


def _run_long(load):
    """Run a load of tasks that take longer than a benchmark waits for one."""
    from atp.models import Instance

    enqueued = batch.enqueue(load.calls)
    left = Instance.objects.filter(pk__range=enqueued.keys).exclude(state="FINISHED")
    _wait(lambda: not left.exists(), within=START_WITHIN + 3 * load.milliseconds / 1000)


def _drain(load, fleet):
    """Return the seconds that a load takes. Tasks that wait for long go back to the queue first."""
    from atp.models import Instance

    enqueued = batch.enqueue(load.calls)
    seconds = batch.settle(enqueued, fleet).seconds
    left = Instance.objects.filter(pk__range=enqueued.keys).exclude(state="FINISHED").count()
    if left:
        raise batch.BatchError(f"{left} of {len(enqueued)} are not FINISHED.")
    return seconds


@contextmanager
def _settings(executor, options):
    """Have this process and those that it starts know an executor."""
    from django.test import override_settings

    known = json.loads(os.environ.get("BENCHMARK_ATP", "{}"))
    own = known | {"EXECUTORS": {ENGINE: executor | {"SLOTS": options.places}}}
    os.environ["BENCHMARK_ATP"] = json.dumps(own)
    try:
        with override_settings(ATP=own):
            yield
    finally:
        os.environ["BENCHMARK_ATP"] = json.dumps(known)


@contextmanager
def _dask(options):
    from distributed import Client

    port = _free_port()
    address = f"tcp://127.0.0.1:{port}"
    # It runs handlers: it has to know the executor that their Types name.
    with _settings({"BACKEND": "atp.executors.Dask", "ADDRESS": address}, options):
        head = ["dask_scheduler", "--host", "127.0.0.1", "--port", str(port)]
        worker = ["dask_worker", address, "--nthreads", str(options.places // 2)]
        with (
            _running("distributed.cli.", head),
            _running("distributed.cli.", worker),
            _running("distributed.cli.", worker),
        ):

            @contextmanager
            def connected():
                with Client(address, timeout=START_WITHIN) as client:
                    client.wait_for_workers(2, timeout=START_WITHIN)
                    yield partial(submit, client)

            def submit(client, count, milliseconds):
                seconds = milliseconds / 1000
                given = [client.submit(time.sleep, seconds, pure=False) for _ in range(count)]
                client.gather(given)

            yield connected


@contextmanager
def _ray(options):
    import ray

    port = _free_port()
    address = f"127.0.0.1:{port}"
    executor = {"BACKEND": "atp.executors.Ray", "ADDRESS": address}
    words = ["start", "--head", "--block", "--port", str(port), "--include-dashboard=false"]
    words += ["--node-ip-address", "127.0.0.1", "--num-cpus", str(options.places)]
    with _settings(executor, options), _running("ray.scripts.", ["scripts", *words]):
        _wait(lambda: _is_open(port))

        @contextmanager
        def connected():
            ray.init(address=address, log_to_driver=False)
            try:
                yield partial(submit, ray.remote(_sleep))
            finally:
                ray.shutdown()

        def submit(slept, count, milliseconds):
            ray.get([slept.remote(milliseconds / 1000) for _ in range(count)])

        yield connected


def _sleep(seconds):
    time.sleep(seconds)


ENGINES = {"dask": _dask, "ray": _ray}


@contextmanager
def _running(package, words):
    command = [sys.executable, "-m", package + words[0], *words[1:]]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def _is_open(port):
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


def _wait(condition, within=START_WITHIN):
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise batch.BatchError(f"The engine has not started within {within:g} s.")
        time.sleep(0.1)
