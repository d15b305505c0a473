"""The results of other nodes of the graph, for a handler: ``context.results["scene"]``."""

from __future__ import annotations

from typing import Any

from ..exceptions import NoResult
from ..graphs.results import resolved, results_in
from ..rows.graph import NodeResult
from ..verbs.graphs import results_of


class Results:
    """The outputs of other nodes of the same graph, by the names of the nodes."""

    def __init__(self, instance: int) -> None:
        self._instance = instance
        self._found: dict[str, NodeResult] = {}

    def __getitem__(self, name: str) -> Any:
        """Return the output of a node. Raises NoResult if it has none, or there is no such node."""
        return self.node(name).value

    def node(self, name: str) -> NodeResult:
        """Return a node's state, its reason and its output. Raises NoResult if there is no node."""
        self.read([name])
        return self._found[name]

    def read(self, names: list[str]) -> None:
        """Read the results of these nodes in one query. Raises NoResult if one does not exist."""
        missing = [name for name in names if name not in self._found]
        if not missing:
            return
        self._found |= results_of(self._instance, missing)
        for name in missing:
            if name not in self._found:
                raise NoResult(f"There is no node {name!r} in a graph with this Instance.")

    def resolved(self, inputs: Any) -> Any:
        """Return inputs with each Result replaced by its output. Raises NoResult."""
        found = results_in(inputs)
        if not found:
            return inputs
        self.read(list(dict.fromkeys(name for each in found for name in each.names)))
        return resolved(inputs, self.__getitem__)
