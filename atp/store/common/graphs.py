"""Writing a graph, adding to it, cancelling and redriving it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from datetime import datetime
from graphlib import TopologicalSorter
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, F, Q, QuerySet

from ...commands import CANCEL, Cancelled
from ...exceptions import GraphClosed, InvalidGraph
from ...graphs.models import REDRIVABLE, Condition, is_satisfied
from ...graphs.plan import (
    MOST_EDGES,
    MOST_NODES,
    GraphAddition,
    GraphPlan,
    PlannedEdge,
    PlannedNode,
    all_upstream,
    check_order,
    early_result,
    given_results,
    size_of,
)
from ...models import BLOCKED, Edge, Failing, Graph, Instance, Node, Task, Undo
from ...states import Event, State
from ..values import Move, Registration, Submission
from .base import Part
from .graph_ends import REMOVE
from .steps import holds

# Checks of an addition to a graph: no circle, no result too early, not too large.

CHUNK = 1000


# Adding nodes to a graph while one of its nodes runs: its handler adds them (G17).
#
# The graph is locked first, then the upstream nodes of the new edges, then the Task of the adder,
# then the nodes that are to wait for the new ones. No lock is waited for: if another session has
# one of them, nothing is written, and the caller tries again.

# How often an addition tries again when others take its names meanwhile.
ATTEMPTS = 5


def _check_open(graph: Graph) -> None:
    if graph.ended is not None:
        raise GraphClosed(f"The graph {graph} has ended: nothing can be added to it.")
    if graph.undone is not None:
        raise GraphClosed(f"The graph {graph} is being undone: nothing can be added to it.")
    if graph.request in (CANCEL, REMOVE):
        asked = "cancelled" if graph.request == CANCEL else "removed"
        raise GraphClosed(f"The graph {graph} is being {asked}: nothing can be added to it.")


def _is_closed(node: Node, graph: Graph | None) -> bool:
    """Return whether a node cannot be redriven: its graph is being removed, or was undone.

    After an undo, only the nodes that undo others can be redriven.
    """
    if graph is None or graph.request == REMOVE:
        return True
    return graph.undone is not None and node.undoes is None


class Upstreams:
    """Facts for a redrive of nodes: their graphs, their edges, and the states of upstream nodes.

    The nodes in ``closed`` cannot be redriven. Nodes that are redriven together have to be redriven
    in graph order: see :meth:`in_order`.
    """

    def __init__(
        self,
        rows: Callable[..., QuerySet[Any]],
        graphs: Mapping[int, int | None],
        edges: Mapping[int, Sequence[tuple[int, str]]],
        states: Mapping[int, str],
        closed: Set[int],
        not_before: Mapping[int, datetime | None],
    ) -> None:
        self._rows = rows
        self._graphs = graphs
        self._edges = edges
        self._states = states
        self._closed = closed
        self._not_before = not_before
        self._revived: set[int] = set()

    def __contains__(self, key: int) -> bool:
        return key in self._graphs

    def in_order(self, moves: Iterable[Move]) -> list[Move]:
        """Return the moves sorted in graph order: upstream nodes first."""
        edges = {
            key: [upstream for upstream, _ in self._edges.get(key, ())] for key in self._graphs
        }
        places = {key: place for place, key in enumerate(TopologicalSorter(edges).static_order())}
        return sorted(moves, key=lambda move: places.get(move.instance, -1))

    def allow(self, key: int) -> bool:
        """Return whether an Instance may be redriven: nothing that it waits for has FAILED."""
        if key in self._closed:
            return False
        return not any(
            self._state(upstream) == State.FAILED and on == Condition.FINISHED
            for upstream, on in self._edges.get(key, ())
        )

    def waits(self, key: int) -> int | None:
        """Return the number of a node's unsatisfied edges; None if the Instance is no node."""
        return len(self._open(key)) if key in self else None

    def due(self, instance: Instance, now: datetime) -> datetime:
        """Return when an Instance is due: now, or after its upstream nodes.

        A node that has never begun is not due before its ``run_after``.
        """
        if self.waits(instance.pk):
            return BLOCKED
        not_before = self._not_before.get(instance.pk)
        return now if instance.started or not_before is None else max(now, not_before)

    def revive(self, key: int) -> None:
        """Note that this node is live again."""
        self._revived.add(key)

    def write(self) -> None:
        """Reopen the graphs of revived nodes; what waits for any end of theirs waits again."""
        if not self._revived:
            return
        graphs = {self._graphs[key] for key in self._revived}
        self._end_cancelling(graphs)
        self._rows(Graph).filter(pk__in=graphs).update(ended=None)
        self._rows(Failing).filter(pk__in=self._revived).delete()
        again = self._rows(Edge).filter(upstream__in=self._revived, on=Condition.ENDED)
        counts: dict[int, int] = defaultdict(int)
        for key in again.exclude(downstream__in=self._revived).values_list(
            "downstream_id", flat=True
        ):
            counts[key] += 1
        # What has been freed, and nobody has begun, waits again too.
        free = Q(waits=0, daemon__isnull=True, instance__started__isnull=True)
        locked = self._rows(Task).select_for_update(of=("self",))
        waiting = locked.filter(Q(waits__gt=0) | free, pk__in=counts)
        for task in waiting.order_by("pk"):
            more = {"waits": F("waits") + counts[task.pk], "due_at": BLOCKED}
            self._rows(Task).filter(pk=task.pk).update(**more)

    def _end_cancelling(self, graphs: Collection[int | None]) -> None:
        """Let nodes be added again to those cancelled graphs in which nothing else is live."""
        cancelled = self._rows(Graph).filter(pk__in=graphs, request=CANCEL)
        keys = set(cancelled.values_list("pk", flat=True))
        if keys:
            live = self._rows(Node).filter(graph__in=keys, instance__task__isnull=False)
            live = live.exclude(pk__in=self._revived)
            keys -= set(live.values_list("graph", flat=True))
            self._rows(Graph).filter(pk__in=keys).update(request="")

    def _state(self, key: int) -> str | None:
        return State.ACCEPTED if key in self._revived else self._states.get(key)

    def _open(self, key: int) -> list[int]:
        """Return the upstream nodes that a node must wait for, except those that were removed."""
        return [
            upstream
            for upstream, on in self._edges.get(key, ())
            if (state := self._state(upstream)) is not None and not is_satisfied(on, state)
        ]


def edges_of(edges: Iterable[PlannedEdge], keys: Mapping[str, int]) -> list[tuple[int, int, str]]:
    """Return planned edges as triples for the database; ``keys`` are the nodes' keys by name."""
    return [(keys[edge.upstream], keys[edge.downstream], edge.on) for edge in edges]


def _waiting(submission: Submission, waits: int) -> Submission:
    return submission._replace(waits=waits, due=BLOCKED if waits else submission.due)


# Verbs on a graph as a whole: cancel it, redrive it.

# The number of nodes that one transaction cancels or redrives.
PORTION = 1000


class Graphs(Part):
    """Submitting graphs, adding to them, cancelling and redriving them."""

    def _check_before(
        self,
        adder: int,
        found: Mapping[str, int],
        edges: Iterable[PlannedEdge],
        before: Collection[tuple[str, str]],
        upstreams: set[int],
    ) -> None:
        """Raise InvalidGraph unless each node in ``before`` is downstream of the adder.

        Also raise it if such a node would wait for itself, through a new node that comes after it.
        """
        wanted = {found[name] for _, name in before}
        if not wanted:
            return
        direct = self.rows(Edge).filter(upstream=adder, downstream__in=wanted)
        if not upstreams - {adder} and direct.count() == len(wanted):
            return
        behind = self._ways({adder}, "upstream", "downstream")
        reached = {key for keys in behind.values() for key in keys}
        for _, name in before:
            if found[name] not in reached:
                raise InvalidGraph(
                    f"before: {name!r} does not wait for the node that adds to the graph.",
                    parameter="before",
                )
        if upstreams & reached:
            self._check_circle(behind, reached | {adder}, edges, before)

    def _check_circle(
        self,
        behind: Mapping[int, Iterable[int]],
        keys: Iterable[int],
        edges: Iterable[PlannedEdge],
        before: Iterable[tuple[str, str]],
    ) -> None:
        names = self._names(keys)
        upstreams: dict[str, list[str]] = defaultdict(list)
        for key, others in behind.items():
            for other in others:
                upstreams[names[other]].append(names[key])
        for edge in edges:
            upstreams[edge.downstream].append(edge.upstream)
        for name, other in before:
            upstreams[other].append(name)
        check_order(upstreams)

    def _check_results(
        self, new: Sequence[PlannedNode], found: Mapping[str, int], edges: Iterable[PlannedEdge]
    ) -> None:
        """Raise InvalidGraph if a node takes a result that may be missing when the node starts."""
        needed = list(given_results(new))
        if not needed:
            return
        upstreams: dict[str, list[str]] = defaultdict(list)
        for edge in edges:
            upstreams[edge.downstream].append(edge.upstream)
        given = {found[name] for _, names in needed for name in names if name in found}
        own = self.rows(Instance).filter(pk__in=given, state=State.FINISHED)
        finished = set(own.values_list("pk", flat=True))
        for own_name, names in needed:
            before = all_upstream(own_name, upstreams)
            missing = {
                name for name in names if name not in before and found.get(name) not in finished
            }
            if missing:
                there: Collection[Any] = {found[name] for name in before if name in found}
                ways = self._ways(there, "downstream", "upstream")
                above = {key for keys in ways.values() for key in keys}
                missing = {name for name in missing if found.get(name) not in above}
            if missing:
                there = [*found, *(node.name for node in new)]
                raise early_result(own_name, min(missing), there)

    def _check_size(
        self,
        graph: Graph,
        new: Iterable[PlannedNode],
        found: Mapping[str, int],
        pairs: Collection[tuple[str, str]],
    ) -> None:
        there = self.rows(Node).filter(graph=graph.pk).count()
        there += self.rows(Undo).filter(node__graph=graph.pk).count()
        if there + size_of(new) > MOST_NODES:
            raise InvalidGraph(f"The graph would have more than {MOST_NODES} nodes.")
        for place, end, words in (
            (0, "upstream", "{count} nodes would wait for {name!r}"),
            (1, "downstream", "{name!r} would wait for {count} nodes"),
        ):
            more = Counter(pair[place] for pair in pairs)
            keys = {found[name] for name in more if name in found}
            counted = self.rows(Edge).filter(**{f"{end}__in": keys}).order_by().values(end)
            there = dict(counted.annotate(count=Count("pk")).values_list(end, "count"))
            for name, new_ones in more.items():
                count = new_ones + there.get(found.get(name), 0)
                if count > MOST_EDGES:
                    told = words.format(name=name, count=count)
                    raise InvalidGraph(
                        f"{told}, {MOST_EDGES} at most can: put a layer between.",
                        parameter="after",
                    )

    def _ways(self, keys: Collection[int], near: str, far: str) -> dict[int, list[int]]:
        """Follow the edges from these nodes to the end; returns the neighbours of each node."""
        ways: dict[int, list[int]] = defaultdict(list)
        ahead = sorted(keys)
        seen = set(keys)
        while ahead:
            some, ahead = ahead[:CHUNK], ahead[CHUNK:]
            edges = self.rows(Edge).filter(**{f"{near}__in": some})
            for key, other in edges.values_list(f"{near}_id", f"{far}_id"):
                ways[key].append(other)
                if other not in seen:
                    seen.add(other)
                    ahead.append(other)
        return ways

    def _names(self, keys: Iterable[int]) -> dict[int, str]:
        ordered = sorted(keys)
        names: dict[int, str] = {}
        for start in range(0, len(ordered), CHUNK):
            some = self.rows(Node).filter(pk__in=ordered[start : start + CHUNK])
            names.update(some.values_list("pk", "name"))
        return names

    def extend(
        self, addition: GraphAddition, *, who: str = "", ends: bool = False
    ) -> dict[str, int] | None:
        for remaining in reversed(range(ATTEMPTS)):
            try:
                with self.store.atomic():
                    self._hurry()
                    keys = self._extend(addition, who, ends)
                    if keys is None:
                        # Keep no lock while the caller waits.
                        transaction.set_rollback(True, using=self.store.alias)
                    return keys
            except IntegrityError:
                # Since we looked, another session added a node with one of these names.
                if not remaining:
                    raise
        raise AssertionError("unreachable")

    def _extend(self, addition: GraphAddition, who: str, ends: bool) -> dict[str, int] | None:
        own: Any = self.rows(Node).filter(pk=addition.instance, graph__isnull=False).first()
        if own is None:
            raise InvalidGraph("This Instance is in no graph: nothing can be added to it.")
        found = self._found(own.graph_id, addition)
        new = [node for node in addition.nodes if node.name not in found]
        names = {node.name for node in new}
        edges = [edge for edge in addition.edges if edge.downstream in names]
        before = [(name, other) for name, other in addition.before if name in names]
        upstreams = {found[edge.upstream] for edge in edges if edge.upstream not in names}
        # With such edges two concurrent additions could close a circle that neither sees.
        is_alone = bool(before and upstreams - {own.pk})
        graph = self._lock_graph(own.graph_id, is_alone)
        if graph is None:
            return None
        locked = upstreams | {own.pk} if ends else upstreams
        if self.lock_upstreams(locked, ends) != locked:
            return None
        if not holds(self.store, addition.instance, addition.attempt):
            return None
        if new:
            _check_open(graph)
            self._check_before(own.pk, found, edges, before, upstreams)
            if not self._lock_waiting({name: found[name] for _, name in before}):
                return None
            self._check_results(new, found, edges)
            pairs = [*((edge.upstream, edge.downstream) for edge in edges), *before]
            self._check_size(graph, new, found, pairs)
            self._write(graph, new, found, edges, before, who)
        return {node.name: found[node.name] for node in addition.nodes}

    def _found(self, graph: int, addition: GraphAddition) -> dict[str, int]:
        """Return the keys of the named nodes that exist, by name. Raises InvalidGraph."""
        names = sorted(addition.names)
        rows: dict[str, tuple[int, str]] = {}
        for start in range(0, len(names), CHUNK):
            some = self.rows(Node).filter(graph=graph, name__in=names[start : start + CHUNK])
            found = some.values_list("name", "pk", "instance__type__identifier")
            rows |= {name: (pk, type) for name, pk, type in found}
        planned = {node.name: node.registration.identifier for node in addition.nodes}
        for name in names:
            if name not in rows and name not in planned:
                raise InvalidGraph(f"There is no node {name!r}.", parameter="after")
            if name in rows and planned.get(name, rows[name][1]) != rows[name][1]:
                raise InvalidGraph(
                    f"There is a node {name!r} already, and it is of {rows[name][1]!r}, not of "
                    f"{planned[name]!r}.",
                    parameter="name",
                )
        return {name: pk for name, (pk, _) in rows.items()}

    def _hurry(self) -> None:
        """Limit how long each statement of this transaction waits for locks. Here: do nothing."""

    def _lock_graph(self, key: int, is_alone: bool) -> Graph | None:
        """Lock a graph against cancelling and other requests; None if another session has it."""
        locked = self.rows(Graph).select_for_update(skip_locked=True, no_key=True)
        return locked.filter(pk=key).first()

    def lock_upstreams(self, keys: Collection[int], ends: bool) -> set[int]:
        """Lock nodes so that they cannot end; returns the keys of those that could be locked."""
        nodes = self.rows(Node).filter(pk__in=keys).order_by("pk")
        return set(nodes.select_for_update(skip_locked=True).values_list("pk", flat=True))

    def _lock_waiting(self, keys: Mapping[str, int]) -> bool:
        """Lock the Tasks of these waiting nodes; False if another session has one.

        Raises GraphClosed if a node waits no more.
        """
        tasks = self.rows(Task).filter(pk__in=keys.values(), waits__gt=0).order_by("pk")
        tasks = tasks.values_list("pk", flat=True)
        there = set(tasks)
        for name, key in keys.items():
            if key not in there:
                raise GraphClosed(f"{name!r} waits no more: nothing can be added before it.")
        return set(tasks.select_for_update(skip_locked=True)) == there

    def _write(
        self,
        graph: Graph,
        new: Sequence[PlannedNode],
        found: dict[str, int],
        edges: Sequence[PlannedEdge],
        before: Sequence[tuple[str, str]],
        who: str,
    ) -> None:
        ends = self.rows(Instance).filter(pk__in={found.get(edge.upstream) for edge in edges})
        states: dict[int | None, str] = dict(ends.values_list("pk", "state"))
        waits: Counter[str] = Counter()
        doomed: set[int] = set()
        for edge in edges:
            state = states.get(found.get(edge.upstream))
            if not is_satisfied(edge.on, state):
                waits[edge.downstream] += 1
                if state == State.FAILED:
                    doomed.add(found[edge.upstream])
        found |= self.enqueue_nodes(new, waits, who)
        self.write_nodes(graph, new, found)
        self.store.graph_ends.write_undos(new, found)
        on = self._conditions({found[name] for _, name in before})
        more = [PlannedEdge(name, other, on[found[other]]) for name, other in before]
        self.write_edges(edges_of([*edges, *more], found))
        for other, count in Counter(other for _, other in before).items():
            waiting = self.rows(Task).filter(pk=found[other])
            waiting.update(waits=F("waits") + count)
        if doomed:
            self.store.graph_ends.fail_behind(doomed, who)

    def _conditions(self, keys: Collection[int]) -> dict[int, Condition]:
        """Return the condition of new edges to these nodes, by key.

        It is FINISHED for a node that has such an edge already; for the others it is ENDED.
        """
        edges = self.rows(Edge).filter(downstream__in=keys).order_by()
        on = dict.fromkeys(keys, Condition.ENDED)
        for key, condition in edges.values_list("downstream", "on").distinct():
            if condition == Condition.FINISHED:
                on[key] = Condition.FINISHED
        return on

    # Redriving nodes: locking what they wait for, and recounting their unsatisfied edges.

    def upstreams(self, keys: Collection[int]) -> Upstreams:
        """Lock these nodes, their upstream nodes and their graphs; returns :class:`Upstreams`."""
        nodes = list(self.rows(Node).filter(pk__in=keys))
        if not nodes:
            return Upstreams(self.rows, {}, {}, {}, set(), {})
        graphs: dict[int, Any] = {node.pk: node.graph_id for node in nodes}
        locked = self.rows(Graph).select_for_update(no_key=True).filter(pk__in=graphs.values())
        of_node: dict[int | None, Graph] = {graph.pk: graph for graph in locked.order_by("pk")}
        closed = {node.pk for node in nodes if _is_closed(node, of_node.get(node.graph_id))}
        edges: dict[int, list[tuple[int, str]]] = defaultdict(list)
        found = self.rows(Edge).filter(downstream__in=graphs)
        for key, upstream, on in found.values_list("downstream_id", "upstream_id", "on"):
            edges[key].append((upstream, on))
        upstreams = {upstream for own in edges.values() for upstream, _ in own}
        self.store.graph_ends.lock(upstreams | graphs.keys())
        # Read after the locks: no upstream node can end between this and the commit.
        states = dict(self.rows(Instance).filter(pk__in=upstreams).values_list("pk", "state"))
        not_before = {node.pk: node.not_before for node in nodes}
        return Upstreams(self.rows, graphs, edges, states, closed, not_before)

    # Writing a graph: its Instances, its nodes and its edges in one transaction.

    def submit(self, plan: GraphPlan) -> Graph:
        store = self.store
        waits = Counter(edge.downstream for edge in plan.edges)
        with store.atomic():
            graph = self.rows(Graph).create(
                uuid=plan.uuid, name=plan.name, created=store.now(), created_by=plan.created_by
            )
            keys = self.enqueue_nodes(plan.nodes, waits, plan.created_by)
            self.write_nodes(graph, plan.nodes, keys)
            self.write_edges(edges_of(plan.edges, keys))
            self.store.graph_ends.write_undos(plan.nodes, keys)
        return graph

    def enqueue_nodes(
        self, nodes: Iterable[PlannedNode], waits: Counter[str], who: str
    ) -> dict[str, int]:
        """Enqueue nodes; ``waits`` counts each one's open edges. Returns their keys by name."""
        of_type: dict[str, list[PlannedNode]] = defaultdict(list)
        keys: dict[str, int] = {}
        for node in nodes:
            of_type[node.registration.identifier].append(node)
        for own in of_type.values():
            submissions = [_waiting(node.submission, waits[node.name]) for node in own]
            registration = Registration.of_all(node.registration for node in own)
            made = self.store.enqueueing.enqueue(registration, submissions, who=who)
            keys.update(zip((node.name for node in own), self._keys_of(made), strict=True))
        return keys

    @staticmethod
    def _keys_of(instances: Sequence[Instance]) -> list[int]:
        return [instance.pk for instance in instances]

    def write_nodes(
        self, graph: Graph, nodes: Sequence[PlannedNode], keys: Mapping[str, int]
    ) -> None:
        self.rows(Node).bulk_create(
            [
                Node(
                    instance_id=keys[node.name],
                    graph=graph,
                    name=node.name,
                    not_before=node.submission.due,
                    undoes=node.undoes,
                )
                for node in nodes
            ],
            batch_size=2000,
        )

    def write_edges(self, edges: Sequence[tuple[int, int, str]]) -> None:
        """Write edges: triples of the upstream key, the downstream key and the Condition."""
        self.rows(Edge).bulk_create(
            [Edge(upstream_id=up, downstream_id=down, on=on) for up, down, on in edges],
            batch_size=2000,
        )

    def cancel(self, graph: int, *, who: str = "") -> Cancelled:
        self.rows(Graph).filter(pk=graph).update(request=CANCEL)
        nodes = self.rows(Task).filter(waits__isnull=False, instance__node__graph=graph)
        if self.rows(Graph).filter(pk=graph, undone__isnull=True).exists():
            # What is written to undo the cancelled nodes is not cancelled with them.
            nodes = nodes.filter(instance__node__undoes__isnull=True)
        failed: list[int] = []
        asked: list[int] = []
        before: list[int] = []
        waiting = nodes.filter(daemon__isnull=True)
        if self.store.connection.in_atomic_block:
            # Lock them in the usual order, since the portions below come in another order: all
            # nodes, those of held Tasks too, before the Tasks.
            self.store.graph_ends.lock(nodes.values_list("pk", flat=True))
            list(waiting.select_for_update(of=("self",)).order_by("pk").values_list("pk"))
        held = nodes.filter(daemon__isnull=False).exclude(request=CANCEL)
        # Waiting nodes first, so that none of them starts. Of these the last first, since most are
        # downstream of the others: then few have to fail one by one because of another. A held
        # node may be handed back meanwhile.
        while keys := _keys(waiting, "-pk") or _keys(held):
            done = self.store.control.cancel(keys, who=who)
            failed += done.failed
            asked += done.asked
            before += done.before
        return Cancelled(failed=tuple(failed), asked=tuple(asked), before=tuple(before))

    def redrive(self, graph: int, *, who: str = "") -> int:
        failed = self.rows(Node).filter(REDRIVABLE, graph=graph, instance__state=State.FAILED)
        self.rows(Graph).filter(pk=graph, request=CANCEL).update(request="")
        redriven = 0
        tried: set[int] = set()
        # Until the node that failed first is redriven, daemons go on failing what depends on it.
        while keys := set(failed.values_list("pk", flat=True)) - tried:
            tried |= keys
            ordered = self._in_order(keys)
            for start in range(0, len(ordered), PORTION):
                portion = ordered[start : start + PORTION]
                moves = [Move(event=Event.REDRIVE, instance=key, who=who) for key in portion]
                redriven += len(moves) - len(self.store.records.record(moves))
        return redriven

    def _in_order(self, keys: Collection[int]) -> list[int]:
        """Return these nodes in graph order: upstream nodes first."""
        edges: dict[int, list[int]] = {key: [] for key in keys}
        ordered = sorted(keys)
        for start in range(0, len(ordered), PORTION):
            some = self.rows(Edge).filter(downstream__in=ordered[start : start + PORTION])
            for key, upstream in some.values_list("downstream_id", "upstream_id"):
                if upstream in keys:
                    edges[key].append(upstream)
        return list(TopologicalSorter(edges).static_order())


def _keys(tasks: QuerySet[Task], order: str = "pk") -> list[int]:
    return list(tasks.order_by(order).values_list("pk", flat=True)[:PORTION])
