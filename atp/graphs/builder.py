"""Build graphs and chains in an application, and add nodes or read results in a handler."""

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
from ..operations.base import check_actor
from ..operations.enqueueing import read_input, submission_of
from ..operations.registry import DjangoTask, declared_type, registry
from ..options import Options, check_text
from ..store import get_store
from ..store.values import Registration
from .models import NodeResult
from .operations import (
    cancel_graph,
    get_node,
    get_undone,
    read_results,
    redrive_graph,
    submit_graph,
)
from .placeholders import Result, extract_results, resolve_results, results_in
from .plan import ENDED, FINISHED, GraphAddition, GraphPlan, PlannedEdge, PlannedNode, PlannedUndo

if TYPE_CHECKING:
    from ..authoring.steps import StepContext
    from ..operations.registry import Declaration

# The values of ``on_failure``, each with the kind of end for which the edge waits.
ON_FAILURE = {"stop": FINISHED, "run": ENDED}
_RESERVED = ("after", "before", "on_failure", "undo", "name", "inputs")
# Options that an undo cannot have, because it runs once, when the graph has failed.
_REFUSED = ("identifier", "run_after", "start_before", "unique", "on_finished", "on_failed")


@dataclass(frozen=True)
class GraphNode:
    """A node of a graph that is being built."""

    graph: NodeCollector
    name: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def __format__(self, spec: str) -> str:
        raise TypeError(
            f"A node cannot be formatted as text. Use its .name, which is {self.name!r}, or "
            "result(…) for its output."
        )


@dataclass(frozen=True)
class GraphNodes(Sequence[GraphNode]):
    """The nodes that one call of :meth:`Graph.map` added, in the order of the rows."""

    graph: NodeCollector
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return GraphNodes(self.graph, self.names[index])
        return GraphNode(self.graph, self.names[index])


# A Type, which gets the arguments of the node; or a tuple of a Type and other arguments.
UndoLike = Any
# A node, several nodes, or the name of a node.
NodeLike = GraphNode | GraphNodes | str


def result(node: NodeLike) -> Result:
    """Return a placeholder for the output of a node, for use in the inputs of other nodes.

    The handlers of these other nodes get the output itself. ``result(scene)["tiles"][0]`` stands
    for a part of the output. For the nodes that ``map()`` returned, the placeholder stands for the
    list of their outputs, in order. Raises InvalidGraph if ``node`` is neither a node nor a name.
    """
    if isinstance(node, GraphNodes):
        return Result(node.names, is_list=True)
    if not isinstance(node, GraphNode | str):
        raise InvalidGraph(f"result(): {node!r} is neither a node of a graph nor a name.")
    return Result((node if isinstance(node, str) else node.name,))


def plan_undo(
    undo: UndoLike, args: Sequence[Any], kwargs: Mapping[str, Any], by: str
) -> PlannedUndo | None:
    """Return the PlannedUndo for a node with these arguments, or None if ``undo`` is None.

    Raises InvalidGraph or InvalidInputs.
    """
    if undo is None:
        return None
    task_type = undo
    if isinstance(undo, tuple) and len(undo) == 2:
        task_type, inputs = undo
        args, kwargs = read_input(inputs)
    type = registry.read(task_type)
    if type is None:
        raise InvalidGraph(
            f"undo={undo!r}: must be a Type, or a Type and its arguments.", parameter="undo"
        )
    for name in _REFUSED:
        if getattr(type.options, name) is not None:
            raise InvalidGraph(
                f"undo: the Type cannot have {name}, because an undo runs once, when the graph "
                "has failed.",
                parameter="undo",
            )
    if type.options.existing != "raise":
        raise InvalidGraph("undo: the Type cannot have the option existing.", parameter="undo")
    options = type.options.checked(get_store().now)
    args, kwargs, results = extract_results(args, kwargs)
    submission = submission_of(type, args, kwargs, options, None, settings.MAX_INPUTS_SIZE)
    if by and not submission.created_by:
        submission = submission._replace(created_by=by)
    return PlannedUndo(type.registration(), submission, results)


# Adding nodes: the base class of Graph and of GraphExtension.


class NodeCollector:
    """Collects nodes and edges in a ``with`` block, and writes them at the end of the block."""

    # The prefix of all generated node names.
    _prefix = ""

    def __init__(self, by: str) -> None:
        self.by = by
        self._nodes: dict[str, PlannedNode] = {}
        self._edges: list[PlannedEdge] = []
        # Pairs of a new node and an existing node that has to wait for it.
        self._before: list[tuple[str, str]] = []
        self._numbers: dict[str, Any] = {}

    def _check_open(self) -> None:
        """Raise InvalidGraph if the nodes have been written already."""

    def _is_own(self, graph: NodeCollector) -> bool:
        """Return True if the nodes of ``graph`` belong to this graph, too."""
        return graph is self

    def _has_node(self, name: str) -> bool:
        return name in self._nodes

    def _check_before(self, names: list[str]) -> None:
        """Raise InvalidGraph if these existing nodes cannot wait for a new node."""
        if names:
            raise InvalidGraph(
                "Only handlers that add nodes to their graph can use before=. Use after= instead.",
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

        The arguments are those of ``enqueue()``. If a parameter of the handler has the same name as
        a parameter of this method, pass the arguments as ``inputs``. ``on_failure`` decides what
        happens if a node in ``after`` fails: with "stop" the new node fails, too, and with "run" it
        runs however the nodes in ``after`` end. ``undo`` runs if the graph fails after this node
        has FINISHED. It is a Type, which gets the same arguments, or a tuple of a Type and other
        arguments. ``name`` is the name of the node in the graph, by default the name of the
        handler. A handler that adds nodes to its own graph can pass the names of existing nodes as
        ``before``; these nodes then wait for the new node, too. Raises InvalidGraph, and whatever
        ``enqueue()`` raises.
        """
        type = declared_type(type, "add(): its first argument", InvalidGraph)
        used = {"after": after != (), "before": before != (), "on_failure": on_failure != "stop"}
        used |= {"undo": undo is not None, "name": name is not None, "inputs": inputs is not None}
        _check_reserved(type, used)
        if inputs is not None:
            if args or kwargs:
                raise InvalidGraph(
                    "Give either inputs= or arguments, not both.", parameter="inputs"
                )
            args, kwargs = read_input(inputs)
        edges, waiting = self._read_after(after, on_failure), self._read_before(before)
        new = self._choose_name(type, name)
        self._add_node(self._check_type(type), args, kwargs, new, edges, undo)
        self._before += [(new, each) for each in waiting]
        return GraphNode(self, new)

    def add_called(
        self, type: Declaration, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> GraphNode:
        """Add ``enqueue(*args, **kwargs)`` as a node that waits for no other node.

        Unlike :meth:`add`, this method accepts arguments with any name. Raises what :meth:`add`
        raises.
        """
        name = self._choose_name(type, None)
        self._add_node(self._check_type(type), args, kwargs, name, [], None)
        return GraphNode(self, name)

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
        """Add an Instance for each row; a row is a mapping or a tuple of arguments.

        ``names`` are the names of the nodes. By default, each node is named after the handler, with
        a number. The other parameters are those of :meth:`add`.
        """
        type = declared_type(type, "map(): its first argument", InvalidGraph)
        edges, waiting = self._read_after(after, on_failure), self._read_before(before)
        rows = list(rows)
        chosen = None if names is None else list(names)
        if chosen is not None and len(chosen) != len(rows):
            raise InvalidGraph(
                f"There are {len(chosen)} names for {len(rows)} rows.", parameter="names"
            )
        checked, added = self._check_type(type), []
        for number, row in enumerate(rows):
            args, kwargs = read_input(row)
            name = self._choose_name(type, chosen[number] if chosen else None, always=True)
            self._add_node(checked, args, kwargs, name, edges, undo)
            self._before += [(name, each) for each in waiting]
            added.append(name)
        return GraphNodes(self, tuple(added))

    def _choose_name(self, type: Declaration, name: str | None, *, always: bool = False) -> str:
        """Return ``name`` after checking it; if it is None, return a new name.

        A new name is that of the handler, with a number if the name is taken or if ``always`` is
        True.
        """
        self._check_open()
        if name is not None:
            check_text("name", name, empty=False)
            if self._has_node(name):
                raise InvalidGraph(f"Two nodes are called {name!r}.", parameter="name")
            return name
        base = self._prefix + type.handler.__name__
        numbers = self._numbers.setdefault(base, count(1))
        for number in numbers:
            # The name of the first node that add() adds has no number.
            name = base if number == 1 and not always else f"{base}-{number}"
            if not self._has_node(name):
                check_text("name", name)
                return name
        raise AssertionError("unreachable")

    def _read_after(
        self, after: NodeLike | Iterable[NodeLike], on_failure: str
    ) -> list[tuple[str, str]]:
        """Return the names of the nodes to wait for, each with the kind of end to wait for."""
        if on_failure not in ON_FAILURE:
            raise InvalidGraph(
                f"on_failure={on_failure!r}: must be one of {', '.join(ON_FAILURE)}.",
                parameter="on_failure",
            )
        single = not isinstance(after, Iterable) or isinstance(after, GraphNodes | str)
        names: dict[str, None] = {}
        for each in (after,) if single else after:  # type: ignore[union-attr]
            names |= dict.fromkeys(self._read_names(each))
        return [(name, ON_FAILURE[on_failure]) for name in names]

    def _read_before(self, before: str | Iterable[str]) -> list[str]:
        """Return the names of the existing nodes that must wait for the new nodes."""
        single = not isinstance(before, Iterable) or isinstance(before, str)
        names: list[Any] = [before] if single else list(before)
        for name in names:
            if not isinstance(name, str):
                raise InvalidGraph(
                    f"before: {name!r} is not the name of a node.", parameter="before"
                )
        names = list(dict.fromkeys(names))
        self._check_before(names)
        return names

    def _read_names(self, node: object) -> tuple[str, ...]:
        if isinstance(node, str):
            return (node,)
        if not isinstance(node, GraphNode | GraphNodes):
            raise InvalidGraph(
                f"after: {node!r} is neither a node of this graph nor a name.", parameter="after"
            )
        if not self._is_own(node.graph):
            raise InvalidGraph("after: the node belongs to another graph.", parameter="after")
        return node.names

    def _add_node(
        self,
        checked: _CheckedType,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        name: str,
        edges: list[tuple[str, str]],
        undo: UndoLike,
    ) -> None:
        type, options, registration, limit = checked
        undo_plan = plan_undo(undo, args, kwargs, self.by)
        args, kwargs, results = extract_results(args, kwargs)
        submission = submission_of(type, args, kwargs, options, options.identifier, limit)
        self._nodes[name] = PlannedNode(name, registration, submission, results, undo_plan)
        self._edges += [PlannedEdge(upstream, name, on) for upstream, on in edges]

    def _check_type(self, type: Declaration) -> _CheckedType:
        """Return the values that all nodes of one call share. Raises InvalidGraph."""
        if type.options.existing != "raise":
            raise InvalidGraph("A node is always new, so it cannot have the option existing.")
        if type.options.unique is not None:
            raise InvalidGraph("A node is always new, so it cannot have the option unique.")
        options = type.options.checked(get_store().now)
        if self.by and not options.created_by:
            options = replace(options, created_by=self.by)
        return _CheckedType(type, options, type.registration(), settings.MAX_INPUTS_SIZE)


class _CheckedType(NamedTuple):
    """The values that all nodes of one call of ``add()`` or ``map()`` share."""

    type: Declaration
    options: Options
    registration: Registration
    limit: int | None


def _check_reserved(type: Declaration, used: Mapping[str, bool]) -> None:
    """Raise InvalidGraph if a used parameter of add() is also a parameter of the handler."""
    for name in _RESERVED:
        if used[name] and name in type.signature.parameters and not used["inputs"]:
            raise InvalidGraph(
                f"{type} has a parameter {name!r}, too. Give its arguments as inputs={{…}}.",
                parameter=name,
            )


# Graphs and chains.


class Graph(NodeCollector):
    """A graph, which the end of its ``with`` block writes in one transaction.

    If the block raises an exception, nothing is written. ``name`` is a name for people, and ``by``
    is the actor. After the block, ``row`` is the graph's row in the database.
    """

    def __init__(self, name: str = "", *, by: object = "") -> None:
        super().__init__(str(by))
        self.name = name
        check_text("name", name)
        check_actor(self.by)
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
        """Write the graph, as the end of the ``with`` block does.

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
        """Return the Instance of a node; the graph must have been written."""
        rows = Instance.objects.using(settings.DATABASE).select_related("type")
        name = node if isinstance(node, str) else node.names[0]
        return rows.get(node__graph=self._written(), node__name=name)

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until all nodes have ended in any way, and any undo of the graph has ended, too.

        ``timeout`` is in seconds; None waits for ever. A failed node raises no exception here, so
        read ``state`` afterwards. Raises WaitTimeout or WaitInTransaction.
        """
        self._written().wait(timeout)
        return self

    @property
    def state(self) -> str:
        """The current state: waiting, running, finished, failed, undoing or undone.

        Reading the state takes two queries.
        """
        return self._written().state

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of nodes by their current state, without states that no node has.

        Reading the numbers takes one query.
        """
        return self._written().counts

    def results(self) -> dict[str, NodeResult]:
        """Return the results of all ended nodes by name, in one query."""
        return self._written().results()

    def result(self, node: NodeLike) -> Any:
        """Return the output of a node; for the nodes of a ``map()``, the list of their outputs.

        Raises NoResult if a node has not FINISHED, or does not exist.
        """
        if not isinstance(node, GraphNodes):
            return self._written().result(node if isinstance(node, str) else node.name)
        results = self._written().results()
        missing = next((name for name in node.names if name not in results), None)
        if missing is not None:
            raise NoResult(f"{missing!r} has no result, because it has not ended.")
        return [results[name].value for name in node.names]

    def cancel(self, by: str = "") -> int:
        """Cancel all live nodes, and return their number.

        Raises IllegalTransition if no node is live.
        """
        return cancel_graph(self._written(), by)

    def redrive(self, by: str = "") -> int:
        """Redrive all FAILED nodes, and return their number.

        Raises IllegalTransition if there is no node to redrive.
        """
        return redrive_graph(self._written(), by)

    def _written(self) -> GraphRow:
        if self.row is None:
            raise InvalidGraph("The graph is not written yet. The end of its with block writes it.")
        return self.row

    def _check_open(self) -> None:
        if self.row is not None:
            raise InvalidGraph("The graph is written already.")


@dataclass(frozen=True)
class Chain:
    """Types whose Instances run one after another, for example ``fetch.then(hillshade)``."""

    steps: tuple[tuple[Declaration, Mapping[str, Any]], ...]

    def then(self, type: Declaration | DjangoTask, /, **inputs: Any) -> Chain:
        """Return a chain with another Type at the end; ``inputs`` are the arguments for that Type.

        In ``inputs``, ``result("fetch")`` stands for the output of the handler ``fetch``.
        """
        step = declared_type(type, "then(): its first argument", InvalidGraph)
        return replace(self, steps=(*self.steps, (step, inputs)))

    def enqueue(self, /, *args: Any, **kwargs: Any) -> Graph:
        """Enqueue the chain and return its graph; the arguments are those of the first Type."""
        with Graph() as graph:
            after: tuple[GraphNode, ...] = ()
            for number, (type, inputs) in enumerate(self.steps):
                if number:
                    after = (graph.add(type, inputs=inputs, after=after),)
                else:
                    after = (graph.add_called(type, args, kwargs),)
        return graph


# Handlers that add nodes to their own graph: ``with context.graph() as g``.


class AdditionWriter(Protocol):
    """Writes the nodes that an attempt adds. Raises Interrupted if the attempt is over."""

    def extend(self, context: StepContext, addition: GraphAddition) -> None: ...


class GraphExtension(NodeCollector):
    """Collects nodes that a handler adds to its graph, and writes them at the end of the block.

    All nodes are written at once; if the block raises an exception, none is written. A node whose
    name exists already is not added again, so a later attempt adds only the missing nodes. ``row``
    is the graph's row in the database.
    """

    def __init__(
        self,
        context: StepContext,
        node: Node,
        graph: GraphRow,
        grower: AdditionWriter,
        added: set[str],
    ) -> None:
        super().__init__(graph.created_by)
        self.row = graph
        self._context, self._grower, self._added = context, grower, added
        # The prefix ensures that two handlers of one graph never generate the same name.
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
            self._added.update(self._nodes)

    def _check_open(self) -> None:
        if self._is_written:
            raise InvalidGraph("These nodes are written already. Begin another with block.")

    def _is_own(self, graph: NodeCollector) -> bool:
        return isinstance(graph, GraphExtension) and graph.row.pk == self.row.pk

    def _has_node(self, name: str) -> bool:
        return name in self._nodes or name in self._added

    def _check_before(self, names: list[str]) -> None:
        """Accept all names, because the store checks that these nodes exist."""


class GraphContext:
    """The part of Context that adds nodes to a graph; runs no query until it is used."""

    _grower: AdditionWriter | None = None
    # The names of the nodes that this attempt has added, or that already existed.
    _added: set[str] | None = None

    @property
    def undoes(self) -> NodeResult | None:
        """The result of the node that this Instance undoes; None if it undoes no node."""
        return get_undone(self.key[0])  # type: ignore[attr-defined]

    def graph(self) -> GraphExtension:
        """Add nodes to the graph of this Instance; the end of the ``with`` block writes them.

        ``g.add()`` and ``g.map()`` work as in :class:`Graph`, and also accept ``before``. These are
        the names of nodes that wait for this Instance, and that then wait for the new nodes, too. A
        new node without ``after`` is due at once. If the Type is transactional, ATP writes the
        nodes together with the end of the attempt. Raises InvalidGraph, GraphClosed, and whatever
        ``enqueue()`` raises.
        """
        context: StepContext = self  # type: ignore[assignment]
        node = get_node(context.key[0])
        if node is None or node.graph is None or self._grower is None:
            raise InvalidGraph("This Instance is in no graph, so it cannot add nodes.")
        if self._added is None:
            self._added = set()
        return GraphExtension(context, node, node.graph, self._grower, self._added)


# The results of other nodes, for a handler: ``context.results["scene"]``.


class Results:
    """The outputs of other nodes of the same graph, by the names of the nodes."""

    def __init__(self, instance: int) -> None:
        self._instance = instance
        self._results: dict[str, NodeResult] = {}

    def __getitem__(self, name: str) -> Any:
        """Return the output of a node. Raises NoResult if there is no such node or output."""
        return self.node(name).value

    def node(self, name: str) -> NodeResult:
        """Return a node's state, reason and output. Raises NoResult if there is no such node."""
        self.read([name])
        return self._results[name]

    def read(self, names: list[str]) -> None:
        """Read the results of these nodes in one query. Raises NoResult for a missing node."""
        missing = [name for name in names if name not in self._results]
        if not missing:
            return
        self._results |= read_results(self._instance, missing)
        for name in missing:
            if name not in self._results:
                raise NoResult(f"There is no node {name!r} in the graph of this Instance.")

    def resolved(self, inputs: Any) -> Any:
        """Return inputs in which each Result is replaced by its output. Raises NoResult."""
        placeholders = results_in(inputs)
        if not placeholders:
            return inputs
        self.read(list(dict.fromkeys(name for each in placeholders for name in each.names)))
        return resolve_results(inputs, self.__getitem__)
