"""The executor for Dask: a cluster of dask.distributed runs the tickets."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from .base import Cluster, EngineAway, Executor

# In seconds: how long the scheduler may take to answer.
WITHIN = 5.0


class Dask(Executor):
    """Runs attempts on the workers of the scheduler at ``ADDRESS``."""

    required = ("ADDRESS",)

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        super().__init__(name, options)
        self._client: Any = None
        # The keys of the tasks that run tickets of this daemon, or wait for a worker.
        self._keys: set[str] = set()

    @staticmethod
    def client(address: str, name: str, **options: Any) -> Any:
        """Return a distributed.Client that is connected. Raises EngineAway."""
        from distributed import Client

        try:
            return Client(address, name=name, timeout=WITHIN, **options)
        except (OSError, TimeoutError) as error:
            raise EngineAway(f"{address}: {error}") from None

    def open(self) -> None:
        if self._client is not None:
            self._client.close(timeout=WITHIN)
            self._client = None
        self._keys.clear()
        self._client = self.client(self.options["ADDRESS"], "atp", set_as_default=False)

    def close(self) -> None:
        self._client.close(timeout=WITHIN)

    def submit(
        self, ticket: str, resources: Mapping[str, int], ended: Callable[[str], object]
    ) -> Any:
        from . import stub

        self._check()
        # Each submission is another task, and Dask does not repeat it if it raises. It repeats it
        # if it has lost the worker; the follower refuses that.
        future = self._client.submit(
            stub.run, ticket, pure=False, retries=0, resources=dict(resources) or None
        )
        self._keys.add(future.key)

        def done(future: Any) -> None:
            self._keys.discard(future.key)
            ended(_error(future))

        future.add_done_callback(done)
        return future

    def cancel(self, handle: Any) -> None:
        handle.cancel()

    def cluster(self) -> Cluster:
        self._check()
        try:
            found = self._client.scheduler_info(n_workers=-1)["workers"]
            tasks = self._client.processing()
        except (OSError, TimeoutError) as error:
            raise EngineAway(str(error)) from None
        resources: Counter[str] = Counter()
        largest: Counter[str] = Counter()
        workers, room = found.values(), 0
        for address, worker in found.items():
            others = sum(key not in self._keys for key in tasks.get(address, ()))
            if worker["status"] == "running":
                room += max(0, worker["nthreads"] - others)
            resources.update(worker["resources"])
            largest |= Counter(worker["resources"])
        return Cluster(
            address=self.options["ADDRESS"],
            hosts=len({worker["host"] for worker in workers}),
            places=sum(worker["nthreads"] for worker in workers),
            room=room,
            resources=dict(resources),
            largest=dict(largest),
        )

    def _check(self) -> None:
        if self._client is None or self._client.status != "running":
            raise EngineAway(f"the scheduler at {self.options['ADDRESS']} does not answer")

    def address(self) -> str:
        from distributed.utils import get_ip

        host = self._client.scheduler.address.rpartition("/")[2].rpartition(":")[0]
        return get_ip(host)


def _error(done: Any) -> str:
    if done.status == "finished":
        return ""
    if done.status == "error":
        error = done.exception()
        return f"{type(error).__name__}: {error}"
    return f"the task is {done.status}"
