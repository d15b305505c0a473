"""Graph, Chain, map and undo as an application writes them; a handler that adds nodes; results in
a handler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self
from uuid import UUID

from ..conf import settings
from ..exceptions import InvalidGraph, NoResult
from ..fields import uuid7
from ..models import Graph as GraphRow
from ..models import Instance, Node
from ..operations.base import check_by
from ..operations.enqueueing import arguments_of, submission_of
from ..operations.registry import DjangoTask, declared_type, registry
from ..options import Options, check_text
from ..store import get_store
from ..store.values.types import Registration
from .models import NodeResult
from .operations import cancel_graph, node_of, redrive_graph, results_of, submit_graph, undone_by
from .placeholders import Result, resolved, results_in, taken_from
from .plan import ENDED, FINISHED, GraphAddition, GraphPlan, PlannedEdge, PlannedNode, PlannedUndo

if TYPE_CHECKING:
    from ..authoring.steps import StepContext
    from ..operations.registry import Declaration


# The nodes of a graph that is being written, their results, and their undos.


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


# Adding nodes: the base of Graph, and of Growth, by which a handler adds to its own graph.

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
        type: Declaration | DjangoTask,
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
        self, type: Declaration, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> GraphNode:
        """Add an Instance that waits for no other: ``enqueue(*args, **kwargs)`` as a node.

        Unlike :meth:`add` it takes arguments of any name. Raises what :meth:`add` raises.
        """
        own = self._new_name(type, None)
        self._add(self._added(type), args, kwargs, own, [], None)
        return GraphNode(self, own)

    def map(
        self,
        type: Declaration | DjangoTask,
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

    def _new_name(self, type: Declaration, name: str | None, *, always: bool = False) -> str:
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

    def _added(self, type: Declaration) -> _Added:
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

    type: Declaration
    options: Options
    registration: Registration
    limit: int | None


def _check_reserved(type: Declaration, given: Mapping[str, bool]) -> None:
    for name in _RESERVED:
        if given[name] and name in type.signature.parameters and not given["inputs"]:
            raise InvalidGraph(
                f"{type} has a parameter {name!r} itself: give its arguments as inputs={{…}}.",
                parameter=name,
            )


# Writing graphs: Instances that wait for the ends of others, submitted together.


class Graph(Adding):
    """A graph that is written at the end of its ``with`` block, in one transaction.

    Nothing is written if the block raises. ``name`` is for people, ``by`` says who enqueues.
    Afterwards ``row`` is the row of the graph.
    """

    def __init__(self, name: str = "", *, by: object = "") -> None:
        super().__init__(str(by))
        self.name = name
        check_text("name", name)
        check_by(self.by)
        self.uuid: UUID = uuid7()
        self.row: GraphRow | None = None

    def __repr__(self) -> str:
        return f"<Graph {self.name!r} {self.uuid}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.submit()

    def submit(self) -> None:
        """Write the graph, as the end of the block does.

        Raises InvalidGraph or DuplicateIdentifier.
        """
        self._check_open()
        plan = GraphPlan(
            uuid=self.uuid,
            name=self.name,
            created_by=self.by,
            nodes=tuple(self._nodes.values()),
            edges=tuple(self._edges),
        )
        self.row = submit_graph(plan)

    def instance(self, node: NodeLike) -> Instance:
        """Return the Instance of a node, once the graph is written."""
        rows = Instance.objects.using(settings.DATABASE).select_related("type")
        name = node if isinstance(node, str) else node.names[0]
        return rows.get(node__graph=self._written(), node__name=name)

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until all nodes have ended, however they end, and until the undo has ended.

        ``timeout`` is in seconds. Look at ``state`` afterwards: a failure raises nothing here.
        Raises WaitTimeout or WaitInTransaction.
        """
        self._written().wait(timeout)
        return self

    @property
    def state(self) -> str:
        """The state now: waiting, running, finished, failed, undoing or undone. Two queries."""
        return self._written().state

    @property
    def counts(self) -> dict[str, int]:
        """The number of nodes in each state that a node has now. One query."""
        return self._written().counts

    def results(self) -> dict[str, NodeResult]:
        """Return the results of all nodes that have ended, by name, in one query."""
        return self._written().results()

    def result(self, node: NodeLike) -> Any:
        """Return the output of a node; of the nodes of a ``map()``, the list of their outputs.

        Raises NoResult if a node has not FINISHED, or if there is no such node.
        """
        if not isinstance(node, GraphNodes):
            return self._written().result(node if isinstance(node, str) else node.name)
        found = self._written().results()
        missing = next((name for name in node.names if name not in found), None)
        if missing is not None:
            raise NoResult(f"There is no result of {missing!r}: it has not ended.")
        return [found[name].value for name in node.names]

    def cancel(self, by: str = "") -> int:
        """Cancel all live nodes and return their number. Raises IllegalTransition if none is."""
        return cancel_graph(self._written(), by)

    def redrive(self, by: str = "") -> int:
        """Redrive all FAILED nodes and return their number. Raises IllegalTransition if none is."""
        return redrive_graph(self._written(), by)

    def _written(self) -> GraphRow:
        if self.row is None:
            raise InvalidGraph("The graph is not written yet: that is at the end of its block.")
        return self.row

    def _check_open(self) -> None:
        if self.row is not None:
            raise InvalidGraph("The graph is written already.")


# Chains: Types whose Instances run one after the other.


@dataclass(frozen=True)
class Chain:
    """Types whose Instances run one after the other: ``fetch.then(hillshade)``."""

    steps: tuple[tuple[Declaration, Mapping[str, Any]], ...]

    def then(self, type: Declaration | DjangoTask, /, **inputs: Any) -> Chain:
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


# Handlers that add nodes to their own graph: ``with context.graph() as g``.


class Grower(Protocol):
    """Writes the nodes that an attempt adds. Raises Interrupted if the attempt is over."""

    def extend(self, context: StepContext, addition: GraphAddition) -> None: ...


class Growth(Adding):
    """The nodes that a handler adds to its graph: written in one transaction as the block ends.

    A node whose name exists already is not added again, so a later attempt adds only the
    missing ones. Nothing is written if the block raises. ``row`` is the row of the graph.
    """

    def __init__(
        self, context: StepContext, node: Node, graph: GraphRow, grower: Grower, taken: set[str]
    ) -> None:
        super().__init__(graph.created_by)
        self.row = graph
        self._context, self._grower, self._taken = context, grower, taken
        # With a prefix, two handlers of one graph never generate the same name.
        self._own, self._prefix = node.name, f"{node.name}/"
        self._is_written = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._write()

    def _write(self) -> None:
        self._check_open()
        instance, attempt = self._context.key
        addition = GraphAddition(
            instance=instance,
            attempt=attempt,
            name=self._own,
            nodes=tuple(self._nodes.values()),
            edges=tuple(self._edges),
            before=tuple(self._before),
        ).checked()
        self._is_written = True
        if addition.nodes:
            self._grower.extend(self._context, addition)
            self._taken.update(self._nodes)

    def _check_open(self) -> None:
        if self._is_written:
            raise InvalidGraph("These nodes are written already: begin another block.")

    def _is_own(self, graph: Adding) -> bool:
        return isinstance(graph, Growth) and graph.row.pk == self.row.pk

    def _is_taken(self, name: str) -> bool:
        return name in self._nodes or name in self._taken

    def _check_before(self, names: list[str]) -> None:
        """Accept all names: the store checks that these nodes exist."""


class Growing:
    """The part of Context that adds nodes to its graph; it costs nothing until it is used."""

    _grower: Grower | None = None
    # The names of the nodes that this attempt has added, or found there.
    _taken: set[str] | None = None

    @property
    def undoes(self) -> NodeResult | None:
        """The node that this Instance undoes, with ``name`` and ``output``; else None."""
        return undone_by(self.key[0])  # type: ignore[attr-defined]

    def graph(self) -> Growth:
        """Add nodes to the graph of this Instance; the end of the ``with`` block writes them.

        ``g.add()`` and ``g.map()`` are as in :class:`Graph`, and also take ``before=``: the names
        of nodes that wait for this Instance, and from then on for the new nodes too. A new node
        without ``after`` is due at once. If the Type is transactional, the nodes are written
        together with the end of the attempt.
        Raises InvalidGraph, GraphClosed, and whatever ``enqueue()`` raises.
        """
        context: StepContext = self  # type: ignore[assignment]
        node = node_of(context.key[0])
        if node is None or node.graph is None or self._grower is None:
            raise InvalidGraph("This Instance is in no graph: nothing can be added to it.")
        if self._taken is None:
            self._taken = set()
        return Growth(context, node, node.graph, self._grower, self._taken)


# The results of other nodes of the graph, for a handler: ``context.results["scene"]``.


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
