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


def run(options, report):
    with ENGINES[options.engine](options) as submit:
        _compare(options.engine, submit, options, report)


def _compare(name, submit, options, report):
    from atp import task_type

    from .tasks import sleep_only

    elsewhere = task_type("benchmarks.elsewhere", executor=ENGINE)(sleep_only)
    own, found = [], []
    patterns = [elsewhere.identifier]
    with daemons(options.directory, count=1, types=patterns, executor=ENGINE) as fleet:
        load = draining.Load(
            types=(elsewhere,), tasks=options.tasks, milliseconds=options.milliseconds
        )
        # Keepers and worker processes start with the first tasks, which may wait for that.
        for _ in range(2):
            _drain(load, fleet)
        submit(options.tasks, options.milliseconds)
        for _ in range(options.runs):
            began = time.perf_counter()
            submit(options.tasks, options.milliseconds)
            own.append(options.tasks / (time.perf_counter() - began))
            found.append(options.tasks / _drain(load, fleet))
    beside = report.rates(f"{name}: its own submit", own)
    ratio = report.rates(f"{name}: ATP", found) / beside
    report.compare(f"{name}: its own submit", ratio, figure=f"{name}: ATP")
    if ratio < LEAST:
        report.exceeded.append(f"on {name} it is {ratio:.2f} of its own submit, not {LEAST}")


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
            Client(address, timeout=START_WITHIN) as client,
        ):
            client.wait_for_workers(2, timeout=START_WITHIN)

            def submit(count, milliseconds):
                seconds = milliseconds / 1000
                given = [client.submit(time.sleep, seconds, pure=False) for _ in range(count)]
                client.gather(given)

            yield submit


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
        ray.init(address=address, log_to_driver=False)
        try:
            slept = ray.remote(_sleep)

            def submit(count, milliseconds):
                ray.get([slept.remote(milliseconds / 1000) for _ in range(count)])

            yield submit
        finally:
            ray.shutdown()


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


def _wait(condition):
    deadline = time.monotonic() + START_WITHIN
    while not condition():
        if time.monotonic() > deadline:
            raise batch.BatchError(f"The engine has not started within {START_WITHIN} s.")
        time.sleep(0.1)
