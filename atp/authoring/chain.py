"""Chains: Types whose Instances run one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..exceptions import InvalidGraph
from .graph import Graph
from .nodes import DjangoTask, GraphNode, declared_type

if TYPE_CHECKING:
    from .task_type import TaskType


@dataclass(frozen=True)
class Chain:
    """Types whose Instances run one after the other: ``fetch.then(hillshade)``."""

    steps: tuple[tuple[TaskType, Mapping[str, Any]], ...]

    def then(self, type: TaskType | DjangoTask, /, **inputs: Any) -> Chain:
        """Return this chain with another Type at its end; ``inputs`` are its arguments.

        In ``inputs``, ``result("fetch")`` stands for the output of the step with handler ``fetch``.
        """
        step = declared_type(type, "then(): its first argument", InvalidGraph)
        return replace(self, steps=(*self.steps, (step, inputs)))

    def enqueue(self, /, *args: Any, **kwargs: Any) -> Graph:
        """Enqueue the chain and return its graph. The arguments are those of the first step."""
        with Graph() as graph:
            after: tuple[GraphNode, ...] = ()
            for number, (type, inputs) in enumerate(self.steps):
                if number:
                    after = (graph.add(type, inputs=inputs, after=after),)
                else:
                    after = (graph.add_called(type, args, kwargs),)
        return graph
