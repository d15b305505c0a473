"""The executor for Ray: a cluster of Ray runs the tickets."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from .base import Cluster, EngineAway, Executor

# In seconds: the pause between two looks at what has ended.
LOOK_EVERY = 0.02


class Ray(Executor):
    """Runs attempts on the cluster at ``ADDRESS``, by default the one on this host."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        super().__init__(name, options)
        self._waiting: dict[Any, Callable[[str], object]] = {}
        self._lock = threading.Condition()
        self._ray: Any = None

    def open(self) -> None:
        import ray

        self._give_up("the connection to Ray was lost")
        if self._ray is None:
            threading.Thread(target=self._look, name="atp-ray", daemon=True).start()
        elif ray.is_initialized():
            ray.shutdown()
        self._ray = ray
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
        from . import stub

        amounts = dict(resources)
        options: dict[str, Any] = {
            "max_retries": 0,
            "num_cpus": amounts.pop("cpu", 1),
            "num_gpus": amounts.pop("gpu", 0),
            "memory": amounts.pop("memory", None),
            "resources": amounts or None,
        }
        try:
            function = self._ray.remote(stub.run).options(**options)
        except (TypeError, ValueError) as error:
            ended(f"Ray refuses its resources: {error}")
            return None
        try:
            handle = function.remote(ticket)
        except Exception as error:  # Ray has no common class for what it raises when it is away
            raise EngineAway(str(error)) from None
        with self._lock:
            self._waiting[handle] = ended
            self._lock.notify()
        return handle

    def cancel(self, handle: Any) -> None:
        self._ray.cancel(handle, force=False)

    def cluster(self) -> Cluster:
        try:
            nodes = [node for node in self._ray.nodes() if node["Alive"]]
            resources = self._ray.cluster_resources()
        except Exception as error:
            raise EngineAway(str(error)) from None
        # Ray has resources of its own, such as one for each node.
        known = {"CPU": "cpu", "GPU": "gpu"}
        own = {known.get(name, name): n for name, n in resources.items() if ":" not in name}
        own.pop("object_store_memory", None)
        largest: Counter[str] = Counter()
        for node in nodes:
            largest |= Counter({known.get(name, name): n for name, n in node["Resources"].items()})
        return Cluster(
            address=self.options.get("ADDRESS", "auto"),
            hosts=len(nodes),
            places=int(own.get("cpu", 0)),
            resources=own,
            largest=dict(largest),
        )

    def address(self) -> str:
        return self._ray.util.get_node_ip_address()

    def _look(self) -> None:
        """Tell of each ticket that the cluster is done with."""
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._waiting)
                handles = list(self._waiting)
            try:
                done, _ = self._ray.wait(handles, num_returns=1, timeout=LOOK_EVERY)
            except Exception as raised:
                self._give_up(f"{type(raised).__name__}: {raised}")
                continue
            for handle in done:
                try:
                    self._ray.get(handle)
                    error = ""
                except Exception as raised:
                    error = f"{type(raised).__name__}: {raised}"
                with self._lock:
                    ended = self._waiting.pop(handle, None)
                if ended is not None:
                    ended(error)

    def _give_up(self, error: str) -> None:
        """Tell of all tickets that nothing will be heard of them."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for ended in waiting.values():
            ended(error)
