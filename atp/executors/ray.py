"""The executor for Ray: a cluster of Ray runs the tickets."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from .base import Cluster, EngineAway, Executor


class Ray(Executor):
    """Runs attempts on the cluster at ``ADDRESS``, by default the one on this host."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        super().__init__(name, options)
        # What to call at the end of each ticket, and the processors that it takes, by number.
        self._waiting: dict[int, tuple[Callable[[str], object], float]] = {}
        # The most processors that the tickets took at the time of the last look.
        self._taken = 0.0
        self._numbers = itertools.count()
        self._ray: Any = None
        self._run: Any = None

    def open(self) -> None:
        import ray

        from . import stub

        if ray.is_initialized():
            ray.shutdown()
        for number in list(self._waiting):
            self._tell(number, "the connection to Ray was lost")
        self._ray = ray
        # Ray sends a function to the cluster once, and recognizes it if it is the same object.
        self._run = ray.remote(max_retries=0)(stub.run)
        try:
            ray.init(
                address=self.options.get("ADDRESS", "auto"),
                log_to_driver=False,
                configure_logging=False,
            )
        except (ConnectionError, RuntimeError) as error:
            raise EngineAway(str(error)) from None

    def close(self) -> None:
        self._ray.shutdown()

    def submit(
        self, ticket: str, resources: Mapping[str, int], ended: Callable[[str], object]
    ) -> Any:
        amounts = dict(resources)
        options: dict[str, Any] = {
            "num_cpus": amounts.pop("cpu", 1),
            "num_gpus": amounts.pop("gpu", 0),
            "memory": amounts.pop("memory", None),
            "resources": amounts or None,
        }
        try:
            function = self._run.options(**options)
        except (TypeError, ValueError) as error:
            ended(f"Ray refuses its resources: {error}")
            return None
        try:
            handle = function.remote(ticket)
        except Exception as error:  # Ray has no common class for what it raises when it is away
            raise EngineAway(str(error)) from None
        number = next(self._numbers)
        self._waiting[number] = ended, options["num_cpus"]
        handle.future().add_done_callback(partial(self._on_done, number))
        return handle

    def cancel(self, handle: Any) -> None:
        self._ray.cancel(handle, force=False)

    def cluster(self) -> Cluster:
        try:
            nodes = [node for node in self._ray.nodes() if node["Alive"]]
            resources = self._ray.cluster_resources()
            available = self._ray.available_resources()
        except Exception as error:
            raise EngineAway(str(error)) from None
        # Ray has resources of its own, such as one for each node.
        known = {"CPU": "cpu", "GPU": "gpu"}
        own = {known.get(name, name): n for name, n in resources.items() if ":" not in name}
        own.pop("object_store_memory", None)
        largest: Counter[str] = Counter()
        for node in nodes:
            largest |= Counter({known.get(name, name): n for name, n in node["Resources"].items()})
        taken, before = sum(cpus for _, cpus in list(self._waiting.values())), self._taken
        self._taken = taken
        used = resources.get("CPU", 0.0) - available.get("CPU", 0.0)
        # What ended just now, Ray may still count as used.
        others = max(0.0, used - max(taken, before))
        return Cluster(
            address=self.options.get("ADDRESS", "auto"),
            hosts=len(nodes),
            places=int(own.get("cpu", 0)),
            room=int(own.get("cpu", 0) - others),
            resources=own,
            largest=dict(largest),
        )

    def address(self) -> str:
        return self._ray.util.get_node_ip_address()

    def _on_done(self, number: int, done: "Future[None]") -> None:
        error = done.exception()
        self._tell(number, "" if error is None else f"{type(error).__name__}: {error}")

    def _tell(self, number: int, error: str) -> None:
        """Report once that the cluster has finished with a ticket."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            ended, _ = waiting
            ended(error)
