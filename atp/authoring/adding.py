"""Adding nodes: the base of Graph, and of Growth, by which a handler adds to its own graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..conf import settings
from ..exceptions import InvalidGraph
from ..graphs.plan import ENDED, FINISHED, PlannedEdge, PlannedNode
from ..graphs.results import taken_from
from ..store import get_store
from ..store.values import Registration
from ..verbs.submissions.submission import arguments_of, submission_of
from ..words.options import Options, check_text
from .nodes import (
    DjangoTask,
    GraphNode,
    GraphNodes,
    NodeLike,
    UndoLike,
    declared_type,
    planned_undo,
)

if TYPE_CHECKING:
    from .task_type import TaskType

# The values of ``on_failure``, each with the end of the upstream node that the edge waits for.
ON_FAILURE = {"stop": FINISHED, "run": ENDED}
_RESERVED = ("after", "before", "on_failure", "undo", "name", "inputs")


class Adding:
    """The nodes and edges that a ``with`` block collects; its end writes them."""

    # Put before the generated names of nodes.
    _prefix = ""

    def __init__(self, by: str) -> None:
        self.by = by
        self._nodes: dict[str, PlannedNode] = {}
        self._edges: list[PlannedEdge] = []
        # Pairs: a new node, and an existing node that is to wait for it.
        self._before: list[tuple[str, str]] = []
        self._numbers: dict[str, Any] = {}

    def _check_open(self) -> None:
        """Raise InvalidGraph if these nodes are written already."""

    def _is_own(self, graph: Adding) -> bool:
        """Whether nodes of ``graph`` belong to this graph too."""
        return graph is self

    def _is_taken(self, name: str) -> bool:
        return name in self._nodes

    def _check_before(self, names: list[str]) -> None:
        """Raise InvalidGraph if these nodes cannot be told to wait for a new node."""
        if names:
            raise InvalidGraph(
                "before= is for handlers that add to their graph: give the other node after=.",
                parameter="before",
            )

    def add(
        self,
        type: TaskType | DjangoTask,
        /,
        *args: Any,
        after: NodeLike | Iterable[NodeLike] = (),
        before: str | Iterable[str] = (),
        on_failure: Literal["stop", "run"] = "stop",
        undo: UndoLike = None,
        name: str | None = None,
        inputs: Mapping[str, Any] | Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> GraphNode:
        """Add an Instance that starts when all nodes in ``after`` have FINISHED.

        The arguments are those of ``enqueue()``. Give them as ``inputs`` if a parameter of the
        handler has the name of a parameter of this method. With ``on_failure="run"`` the
        Instance runs however the nodes in ``after`` end; with "stop" it fails if one of them
        fails. ``undo`` runs if the graph fails after this node has FINISHED: it is a Type, which
        gets the same arguments, or a tuple of a Type and its arguments. ``name`` is the name of
        the node in the graph, by default that of the handler. A handler that adds to its own
        graph may name nodes in ``before``: these then wait for the new node too.
        Raises InvalidGraph, and whatever ``enqueue()`` raises.
        """
        type = declared_type(type, "add(): its first argument", InvalidGraph)
        given = {"after": after != (), "before": before != (), "on_failure": on_failure != "stop"}
        given |= {"undo": undo is not None, "name": name is not None, "inputs": inputs is not None}
        _check_reserved(type, given)
        if inputs is not None:
            if args or kwargs:
                raise InvalidGraph("Give either inputs= or arguments.", parameter="inputs")
            args, kwargs = arguments_of(inputs)
        edges, waiting = self._edges_to(after, on_failure), self._waiting(before)
        own = self._new_name(type, name)
        self._add(self._added(type), args, kwargs, own, edges, undo)
        self._before += [(own, each) for each in waiting]
        return GraphNode(self, own)

    def add_called(
        self, type: TaskType, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> GraphNode:
        """Add an Instance that waits for no other: ``enqueue(*args, **kwargs)`` as a node.

        Unlike :meth:`add` it takes arguments of any name. Raises what :meth:`add` raises.
        """
        own = self._new_name(type, None)
        self._add(self._added(type), args, kwargs, own, [], None)
        return GraphNode(self, own)

    def map(
        self,
        type: TaskType | DjangoTask,
        rows: Iterable[Mapping[str, Any] | Sequence[Any]],
        /,
        *,
        after: NodeLike | Iterable[NodeLike] = (),
        before: str | Iterable[str] = (),
        on_failure: Literal["stop", "run"] = "stop",
        undo: UndoLike = None,
        names: Iterable[str] | None = None,
    ) -> GraphNodes:
        """Add an Instance for each row: a mapping of arguments, or a tuple of them.

        ``names`` names the nodes; else each has the handler's name and a number. The other
        parameters are those of :meth:`add`.
        """
        type = declared_type(type, "map(): its first argument", InvalidGraph)
        edges, waiting = self._edges_to(after, on_failure), self._waiting(before)
        given = list(rows)
        chosen = None if names is None else list(names)
        if chosen is not None and len(chosen) != len(given):
            raise InvalidGraph(f"{len(chosen)} names for {len(given)} rows.", parameter="names")
        added, made = self._added(type), []
        for number, row in enumerate(given):
            args, kwargs = arguments_of(row)
            own = self._new_name(type, chosen[number] if chosen else None, always=True)
            self._add(added, args, kwargs, own, edges, undo)
            self._before += [(own, each) for each in waiting]
            made.append(own)
        return GraphNodes(self, tuple(made))

    def _new_name(self, type: TaskType, name: str | None, *, always: bool = False) -> str:
        self._check_open()
        if name is not None:
            check_text("name", name, empty=False)
            if self._is_taken(name):
                raise InvalidGraph(f"Two nodes are called {name!r}.", parameter="name")
            return name
        base = self._prefix + type.handler.__name__
        numbers = self._numbers.setdefault(base, count(1))
        for number in numbers:
            # The first node that is added by itself, without map(), has no number.
            name = base if number == 1 and not always else f"{base}-{number}"
            if not self._is_taken(name):
                check_text("name", name)
                return name
        raise AssertionError("unreachable")

    def _edges_to(
        self, after: NodeLike | Iterable[NodeLike], on_failure: str
    ) -> list[tuple[str, str]]:
        """Return the names of the nodes to wait for, each with the end to wait for."""
        if on_failure not in ON_FAILURE:
            raise InvalidGraph(
                f"on_failure={on_failure!r}: must be one of {', '.join(ON_FAILURE)}.",
                parameter="on_failure",
            )
        single = not isinstance(after, Iterable) or isinstance(after, GraphNodes | str)
        names: dict[str, None] = {}
        for each in (after,) if single else after:  # type: ignore[union-attr]
            names |= dict.fromkeys(self._names(each))
        return [(name, ON_FAILURE[on_failure]) for name in names]

    def _waiting(self, before: str | Iterable[str]) -> list[str]:
        """Return the names of the existing nodes that are to wait for the new ones."""
        single = not isinstance(before, Iterable) or isinstance(before, str)
        names: list[Any] = [before] if single else list(before)
        for name in names:
            if not isinstance(name, str):
                raise InvalidGraph(f"before: {name!r} is no name.", parameter="before")
        names = list(dict.fromkeys(names))
        self._check_before(names)
        return names

    def _names(self, node: object) -> tuple[str, ...]:
        if isinstance(node, str):
            return (node,)
        if not isinstance(node, GraphNode | GraphNodes):
            raise InvalidGraph(
                f"after: {node!r} is no node of this graph, nor a name.", parameter="after"
            )
        if not self._is_own(node.graph):
            raise InvalidGraph("after: it is a node of another graph.", parameter="after")
        return node.names

    def _add(
        self,
        added: _Added,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        name: str,
        edges: list[tuple[str, str]],
        undo: UndoLike,
    ) -> None:
        type, options, registration, limit = added
        undone_by = planned_undo(undo, args, kwargs, self.by)
        args, kwargs, results = taken_from(args, kwargs)
        submission = submission_of(type, args, kwargs, options, options.identifier, limit)
        self._nodes[name] = PlannedNode(name, registration, submission, results, undone_by)
        self._edges += [PlannedEdge(upstream, name, on) for upstream, on in edges]

    def _added(self, type: TaskType) -> _Added:
        if type.options.existing != "raise":
            raise InvalidGraph("A node is always new: existing cannot be given.")
        if type.options.unique is not None:
            raise InvalidGraph("A node is always new: unique cannot be given.")
        options = type.options.checked(get_store().now)
        if self.by and not options.created_by:
            options = replace(options, created_by=self.by)
        return _Added(type, options, type.registration(), settings.MAX_INPUTS_SIZE)


class _Added(NamedTuple):
    """The values that all nodes of one call of ``add()`` or ``map()`` share."""

    type: TaskType
    options: Options
    registration: Registration
    limit: int | None


def _check_reserved(type: TaskType, given: Mapping[str, bool]) -> None:
    for name in _RESERVED:
        if given[name] and name in type.signature.parameters and not given["inputs"]:
            raise InvalidGraph(
                f"{type} has a parameter {name!r} itself: give its arguments as inputs={{…}}.",
                parameter=name,
            )
