"""The nodes of a graph that is being written, their results, and their undos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..conf import settings
from ..exceptions import ATPError, InvalidGraph
from ..graphs.plan import PlannedUndo
from ..graphs.results import Result, taken_from
from ..models import Type
from ..store import get_store
from ..verbs.registry import registry
from ..verbs.submissions.submission import arguments_of, submission_of

if TYPE_CHECKING:
    from .adding import Adding
    from .task_type import TaskType


class DjangoTask(Protocol):
    """A task of ``django.tasks``, of a backend that is ATP's."""

    @property
    def module_path(self) -> str: ...


def declared_type(given: object, told: str, error: type[ATPError]) -> TaskType:
    """Return the Type that is given, as itself or as a task of ``django.tasks``.

    Raises the error, which says what to give.
    """
    found = registry.read(given)
    if found is not None:
        return found
    advice = " Give the Type itself, not its name." if isinstance(given, str) else ""
    if isinstance(getattr(given, "module_path", None), str):
        advice = " A task of django.tasks is a Type if its backend is ATPBackend."
    if isinstance(given, Type):
        advice = f" This is its row: give atp.queue.declared({given.identifier!r})."
    raise error(f"{told} must be a Type that @task_type has declared, not {given!r}.{advice}")


@dataclass(frozen=True)
class GraphNode:
    """A node of a graph that is being written."""

    graph: Adding
    name: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def __format__(self, spec: str) -> str:
        raise TypeError(
            f"A node is no text: {self.name!r} has its .name, and result(…) stands for its output."
        )


@dataclass(frozen=True)
class GraphNodes(Sequence[GraphNode]):
    """The nodes that :meth:`Graph.map` has added, in their order."""

    graph: Adding
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return GraphNodes(self.graph, self.names[index])
        return GraphNode(self.graph, self.names[index])


# A Type, which gets the arguments of the node; or a tuple of a Type and its own arguments.
UndoLike = Any
# Options that an undo cannot have: it runs once, when the graph has failed.
_REFUSED = ("identifier", "run_after", "start_before", "unique", "on_finished", "on_failed")
# A node, or the name of one.
NodeLike = GraphNode | GraphNodes | str


def result(node: NodeLike) -> Result:
    """Return a placeholder for the output of a node, to be used in the inputs of other nodes.

    Their handlers get the output itself. ``result(scene)["tiles"][0]`` stands for a part of it.
    For the nodes of ``map()`` the placeholder stands for the list of their outputs, in order.
    Raises InvalidGraph for what is no node.
    """
    if isinstance(node, GraphNodes):
        return Result(node.names, is_list=True)
    if not isinstance(node, GraphNode | str):
        raise InvalidGraph(f"result(): {node!r} is no node of a graph, nor a name.")
    return Result((node if isinstance(node, str) else node.name,))


def planned_undo(
    undo: UndoLike, args: Sequence[Any], kwargs: Mapping[str, Any], by: str
) -> PlannedUndo | None:
    """Return the planned undo of a node with these arguments; None if it has none.

    Raises InvalidGraph or InvalidInputs.
    """
    if undo is None:
        return None
    given = undo
    if isinstance(undo, tuple) and len(undo) == 2:
        given, inputs = undo
        args, kwargs = arguments_of(inputs)
    type = registry.read(given)
    if type is None:
        raise InvalidGraph(
            f"undo={undo!r}: must be a Type, or a Type and its arguments.", parameter="undo"
        )
    for name in _REFUSED:
        if getattr(type.options, name) is not None:
            raise InvalidGraph(
                f"undo: {name} cannot be given: it runs once, when the graph has failed.",
                parameter="undo",
            )
    if type.options.existing != "raise":
        raise InvalidGraph("undo: it is always new: existing cannot be given.", parameter="undo")
    options = type.options.checked(get_store().now)
    args, kwargs, results = taken_from(args, kwargs)
    submission = submission_of(type, args, kwargs, options, None, settings.MAX_INPUTS_SIZE)
    if by and not submission.created_by:
        submission = submission._replace(created_by=by)
    return PlannedUndo(type.registration(), submission, results)
