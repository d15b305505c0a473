"""Runs a cluster of Dask for the demo: a scheduler and two workers."""

import importlib.util
import socket
import time
from contextlib import ExitStack, contextmanager

from . import DemoError
from .children import Child

WORKERS = 2
PATIENCE = 30


@contextmanager
def dask(directory, *, threads):
    """Start the cluster, yield the address of its scheduler, and stop it at the end.

    Each of the workers runs as many tasks at once as it has ``threads``.
    """
    if importlib.util.find_spec("distributed") is None:
        raise DemoError("--dask needs Dask. Install it with: pip install -e '.[dask]'")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    quiet = "--no-dashboard"
    head = ["-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port, quiet]
    worker = ["-m", "distributed.cli.dask_worker", address, "--nthreads", threads, quiet]
    worker += ["--local-directory", directory / "dask"]
    with ExitStack() as stack:
        scheduler = Child("scheduler of Dask", head, log=directory / "dask.log")
        stack.callback(scheduler.stop, patience=PATIENCE)
        _wait_until_open(port, scheduler)
        for number in range(1, WORKERS + 1):
            log = directory / f"dask-worker-{number}.log"
            stack.callback(Child("worker of Dask", worker, log=log).stop, patience=PATIENCE)
        yield address


def _wait_until_open(port, scheduler):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with socket.socket() as link:
            if link.connect_ex(("127.0.0.1", port)) == 0:
                return
        scheduler.check()
        time.sleep(0.1)
    raise DemoError(f"The scheduler of Dask did not start, see {scheduler.log}.")
