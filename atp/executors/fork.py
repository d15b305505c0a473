"""The reference executor: it runs tickets on this host, each by a thread that waits for it."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from . import stub
from .base import Cluster, Executor


class Fork(Executor):
    """Runs attempts in processes of this host, whose environment has ``ENVIRONMENT``."""

    def open(self) -> None:
        os.environ.update(self.options.get("ENVIRONMENT", {}))
        self._pool = ThreadPoolExecutor(self.slots, "atp-executor")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def submit(
        self, ticket: str, resources: Mapping[str, int], ended: Callable[[str], object]
    ) -> Any:
        future = self._pool.submit(stub.run, ticket)
        future.add_done_callback(lambda done: ended(_error(done)))
        return future

    def cancel(self, handle: Any) -> None:
        handle.cancel()

    def cluster(self) -> Cluster:
        return Cluster("this host", 1, self.slots, self.slots, {}, None)

    def address(self) -> str:
        return "127.0.0.1"


def _error(done: "Future[None]") -> str:
    if done.cancelled():
        return "it was cancelled"
    error = done.exception()
    return "" if error is None else f"{type(error).__name__}: {error}"
