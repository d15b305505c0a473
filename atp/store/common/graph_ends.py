"""What the end of a node means: freeing, failing, undoing, the end of the graph."""

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, KeysView, Mapping, Sequence
from datetime import datetime, timedelta
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError
from django.db.models import Count, Exists, F, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Length

from ... import messages
from ...commands import CANCEL
from ...graphs.models import SATISFIED, Condition, is_satisfied
from ...graphs.plan import PlannedNode, undo_order
from ...models import (
    BLOCKED,
    Edge,
    Failing,
    Graph,
    Instance,
    Kind,
    LogRecord,
    Node,
    Task,
    Type,
    Undo,
)
from ...options import MAX_IDENTIFIER
from ...payload.codec import Payload
from ...states import TERMINAL, Actor, Event, Reason, State
from ..values import Move, Registration, Submission
from .base import Part
from .removal import failures_kept
from .transitions import Mover

if TYPE_CHECKING:
    from .store import ORMStore

# Failing the nodes that wait for a FAILED node, then those that wait for them, and so on.
#
# A portion is one transaction: it reads the nodes that have to fail, however many edges behind the
# FAILED ones, and fails them together. So it takes the same statements for a chain as for nodes
# that all wait for the same one.

# The number of dependants that the transaction of an end fails; a maintenance job fails the others.
MOST = 500
# The number of FAILED nodes that the job works on at once.
ROWS = 100


def _end(key: int, message: str, who: str) -> Move:
    return Move(
        event=Event.FAIL,
        instance=key,
        who=who,
        message=message,
        level=logging.WARNING,
        reason=Reason.UPSTREAM,
    )


# The end of graphs: recording when they ended, and removing each as a whole.

# The number of ended graphs that one purge looks at, and that it reads at a time.
GRAPHS, PART = 5_000, 50
# A Type that keeps its Instances for ever keeps their graphs too.
_EVER = timedelta.max


def _behind(mark: tuple[datetime, int] | None) -> Q:
    """Return a condition: the graph ended after the mark, a pair of a time and a key."""
    if mark is None:
        return Q()
    time, key = mark
    return Q(ended__gt=time) | Q(ended=time, pk__gt=key)


def _kept(retention: timedelta | None) -> timedelta:
    if retention is None:
        return _EVER
    if retention:
        return retention
    # FAILED nodes are kept for longer, and the graph may have some.
    return failures_kept() or _EVER


# Settling: what an Instance's end means for the nodes that wait for it, and for its hooks.
#
# Settling is a statement of its own in the transaction of the end, after the node was locked. So
# it sees all edges that were committed before, and nobody adds an edge until this commits. If two
# ends are recorded at once, they settle one after the other: both count down the same Task, and
# the second waits for the lock on its row (G17). Instances with hooks that are no nodes are
# settled as well.

CHUNK = 1000


# Undoing the work of a graph's nodes after the graph has failed.
#
# Each node that has FINISHED and has an Undo is undone by a node of its own. The undo begins in a
# transaction that has locked the graph and found none of its nodes live; from then on nobody
# redrives or adds a node, so the set of what is to be undone is fixed. The undo nodes are then
# written in portions, one transaction each, in the order in which they will run: each portion knows
# by ``Node.undoes`` what others have written. Those that are written may run, and end, meanwhile.

PREFIX = "undo-"
# The number of undo nodes that one transaction writes, and the length of their inputs at which it
# takes no more.
MOST_UNDONE, LENGTH = 500, 8_000_000
# The number of edges that one call reads in order to find the order, about, and the number of nodes
# whose edges it reads at a time.
EDGES, NODES = 50_000, 1000
# The number of graphs whose order is kept in memory between portions.
KEPT = 8


class GraphEnds(Part):
    """What the end of a node means for its graph, and the end of a graph."""

    def __init__(self, store: "ORMStore") -> None:
        super().__init__(store)
        # Where the next purge(), fail_dependants() and undo() go on, so that all graphs have their
        # turn.
        self.purge_mark: tuple[datetime, int] | None = None
        self.failing_mark = self.undoing_mark = 0
        # The orders in which graphs are being undone, by the key of the graph.
        self.undo_orders: dict[int, UndoOrder] = {}

    def fail_behind(self, failed: set[int], who: str) -> None:
        """Fail the first dependants of nodes that have just FAILED; leave the others to a job."""
        _, left = self._fail(failed, who, MOST)
        self._leave(left)

    def fail_dependants(self, *, who: str = "", limit: int = MOST) -> int:
        if not self.rows(Failing).exists():
            return 0
        with self.store.atomic():
            rows = self.rows(Failing).select_for_update(skip_locked=True).order_by("pk")
            behind = rows.filter(pk__gt=self.failing_mark)
            keys = [row.pk for row in behind[:ROWS] or rows[:ROWS]]
            self.failing_mark = 0
            if not keys:
                return 0
            locked = self.lock(keys, waits=False)
            own = self.rows(Instance).filter(pk__in=locked)
            failed = set(own.filter(state=State.FAILED).values_list("pk", flat=True))
            count, left = self._fail(failed, who, limit)
            # A node that has been redriven meanwhile must not fail its dependants any more.
            self.rows(Failing).filter(pk__in=locked - left).delete()
            self._leave(left - failed)
        if len(keys) == ROWS:
            # More rows lie behind these: it is their turn next, whatever is left of these.
            self.failing_mark = keys[-1]
        return count

    def _leave(self, keys: Collection[int]) -> None:
        if keys:
            rows = [Failing(pk=key) for key in sorted(keys)]
            self.rows(Failing).bulk_create(rows, ignore_conflicts=True)

    def _fail(self, failed: set[int], who: str, most: int) -> tuple[int, set[int]]:
        """Fail up to ``most`` dependants; returns how many, and the nodes that have more.

        Dependants that another session has locked count as more.
        """
        if not failed:
            return 0, set()
        done: set[int] = set()
        if most and (doomed := self._doomed(failed, most)):
            done = self._fail_each(failed, doomed, who)
        return len(done), self._with_dependants(failed | done)

    def _doomed(self, failed: set[int], most: int) -> list[int]:
        """Return up to ``most`` waiting nodes that have to fail because of these FAILED ones."""
        raise NotImplementedError  # Each database walks along the edges in one statement.

    def _edges(self) -> QuerySet[Edge]:
        """Return the edges whose downstream node has to fail if the upstream node FAILED."""
        return self.rows(Edge).filter(
            on=Condition.FINISHED, downstream__instance__task__waits__gt=0
        )

    def _with_dependants(self, keys: Collection[int]) -> set[int]:
        # A scalar subquery is asked for each node. PostgreSQL would make a join of an EXISTS; where
        # its statistics say that there are no rows, the time of that join grows with their cube.
        more = self._edges().filter(upstream=OuterRef("pk")).order_by().values("pk")[:1]
        nodes = self.rows(Node).filter(pk__in=keys).annotate(more=Subquery(more))
        return set(nodes.filter(more__isnull=False).values_list("pk", flat=True))

    def _fail_each(self, failed: set[int], doomed: Collection[int], who: str) -> set[int]:
        """Fail these nodes because of FAILED upstream nodes; returns the keys of those that failed.

        A node of which no upstream node is among ``failed``, or fails here, does not fail.
        """
        sources = failed | set(doomed)
        edges = self._edges().filter(downstream__in=doomed, upstream__in=sources)
        behind: dict[int, list[int]] = defaultdict(list)
        for key, upstream in edges.values_list("downstream", "upstream"):
            behind[upstream].append(key)
        nodes = self.rows(Node).filter(pk__in=behind.keys())
        names = {
            key: (name, reason)
            for key, name, reason in nodes.values_list("pk", "name", "instance__reason")
        }
        mover = Mover(self.store, self.store.now()).load(sorted(doomed), waits=False)
        done: set[int] = set()
        ahead = deque(sorted(failed))
        while ahead:
            upstream = ahead.popleft()
            for key in sorted(set(behind.get(upstream, ())) - done):
                name, reason = names[upstream]
                message = messages.upstream_failed(
                    name, Reason.UPSTREAM if upstream in done else reason
                )
                if mover.apply(_end(key, message, who), actor=Actor.ANYONE):
                    done.add(key)
                    ahead.append(key)
        mover.write(settles=False)
        # Nodes that wait for any end of the failed ones are satisfied now.
        self.satisfy(dict.fromkeys(done, State.FAILED), who)
        return done

    # Recounting the unsatisfied edges of waiting nodes, a number that all other code relies on.

    def miscounted(self, tasks: QuerySet[Task]) -> set[int]:
        """Return those of these Tasks whose ``waits`` is not the number of unsatisfied edges.

        Returns also the Tasks that wait for a FAILED node although nothing is about to fail them.
        Each is one statement, since an end and its consequences are one transaction.
        """
        waiting = tasks.filter(waits__gt=0)
        own = self.rows(Edge).filter(~SATISFIED, downstream=OuterRef("pk")).order_by()
        count = own.values("downstream").annotate(count=Count("pk")).values("count")
        odd = waiting.annotate(open=Coalesce(Subquery(count), 0)).exclude(waits=F("open"))
        return {*odd.values_list("pk", flat=True), *self._stuck(waiting)}

    def _stuck(self, waiting: QuerySet[Task]) -> Iterable[int]:
        doomed = self.rows(Edge).filter(
            on=Condition.FINISHED,
            upstream__instance__state=State.FAILED,
            downstream__in=waiting.values("pk"),
        )
        failing = self.rows(Failing).values("pk")
        return doomed.exclude(upstream__in=failing).values_list("downstream", flat=True)

    def recount(self, keys: Collection[int], now: datetime, who: str) -> dict[int, str]:
        """Recount the edges of waiting nodes; returns words for what was done, by key.

        Nodes that wait for a FAILED node are left to the job that fails them. Nodes that another
        session has locked are left alone: that session is about to settle them.
        """
        done: dict[int, str] = {}
        with self.store.atomic():
            edges: dict[int, list[tuple[int, str]]] = defaultdict(list)
            found = self.rows(Edge).filter(downstream__in=keys)
            for key, upstream, on in found.values_list("downstream", "upstream", "on"):
                edges[key].append((upstream, on))
            upstreams = {upstream for own in edges.values() for upstream, _ in own}
            locked = self.lock(upstreams, waits=False)
            tasks = self.rows(Task).select_for_update(skip_locked=True)
            free = [
                task
                for task in tasks.filter(pk__in=keys, waits__gt=0).order_by("pk")
                if all(upstream in locked for upstream, _ in edges[task.pk])
            ]
            own = self.rows(Instance).filter(pk__in=upstreams)
            states = dict(own.values_list("pk", "state"))
            for task in free:
                done[task.pk] = self._mend(task, edges[task.pk], states, now, who)
        return {key: words for key, words in done.items() if words}

    def _mend(
        self,
        task: Any,
        edges: Iterable[tuple[int, str]],
        states: Mapping[int, str],
        now: datetime,
        who: str,
    ) -> str:
        count = 0
        doomed: set[int] = set()
        for upstream, on in edges:
            state = states.get(upstream)
            if state is None or is_satisfied(on, state):
                continue
            count += 1
            if state == State.FAILED:
                doomed.add(upstream)
        words = ""
        if task.waits != count:
            words = messages.waits_corrected(task.waits, count)
            self.rows(Task).filter(pk=task.pk).update(waits=count, due_at=BLOCKED)
            self.rows(LogRecord).create(
                instance_id=task.pk,
                time=now,
                kind=Kind.MENDED,
                state=State.ACCEPTED,
                attempt=task.attempt,
                level=logging.WARNING,
                who=who,
                message=words,
            )
            if not count:
                self._free([task], who)
        if doomed:
            there = self.rows(Failing).filter(pk__in=doomed).count()
            self._leave(doomed)
            words = words or (messages.node_will_fail() if there < len(doomed) else "")
        return words

    def end(self, *, limit: int = 100, after: int = 0, who: str = "") -> tuple[int, int]:
        live = self.rows(Graph).filter(ended__isnull=True)
        keys = list(live.filter(pk__gt=after).order_by("pk").values_list("pk", flat=True)[:limit])
        if not keys:
            return 0, 0
        ended = 0
        for key in live.filter(pk__in=keys).filter(~self._tasks()).values_list("pk", flat=True):
            begun: list[int] = []
            with self.store.unless_locked():
                ended += self._end(key, begun)
            for graph in begun:
                self._undo_portion(graph, min(limit, MOST_UNDONE), who)
        return ended, keys[-1] if len(keys) == limit else 0

    def _end(self, key: int, begun: list[int]) -> int:
        """Mark a graph as ended, unless its undo begins here; then add it to ``begun``."""
        with self.store.atomic():
            # A redrive or an addition locks the graph too.
            locked = self.rows(Graph).select_for_update(skip_locked=True, no_key=True)
            graph = locked.filter(pk=key, ended__isnull=True).first()
            if graph is None or self.rows(Graph).filter(self._tasks(), pk=key).exists():
                return 0
            if graph.undo_pending:
                return 0
            if self._begin_undo(graph):
                begun.append(key)
                return 0
            nodes = self.rows(Node).filter(graph=key)
            last = nodes.aggregate(last=Max("instance__finished"))["last"]
            found = self.rows(Graph).filter(pk=key)
            return found.update(ended=last or self.store.now())

    def _tasks(self) -> Exists:
        """Return a condition: the graph has a node that has not ended."""
        nodes = self.rows(Node).filter(graph=OuterRef("pk"), instance__task__isnull=False)
        return Exists(nodes.order_by())

    def are_live(self) -> bool:
        live = self.rows(Graph).filter(ended__isnull=True)
        return live.exists() or self.rows(Failing).exists()

    def purge(self, *, limit: int = 500) -> int:
        removed = 0
        for graph in self._over():
            while removed < limit:
                count = self._remove_part(graph, limit - removed)
                removed += count
                if not count:
                    break
            if removed >= limit:
                break
        return removed

    def _over(self) -> Iterator[Graph]:
        """Yield the graphs that no Type keeps any longer, the oldest first.

        If there are many that are kept, it goes on behind those that it has looked at before.
        """
        if not self.rows(Graph).filter(ended__isnull=False).exists():
            return
        now = self.store.now()
        kept = {
            pk: _kept(retention) for pk, retention in self.rows(Type).values_list("pk", "retention")
        }
        shortest = min(kept.values(), default=_EVER)
        if shortest == _EVER:
            return
        ended = self.rows(Graph).filter(ended__lte=now - shortest).order_by("ended", "pk")
        for _ in range(GRAPHS // PART):
            part: list[Any] = list(ended.filter(_behind(self.purge_mark))[:PART])
            if not part:
                self.purge_mark = None
                return
            own = self.rows(Instance).filter(node__graph__in=part).order_by()
            types: dict[int | None, set[int]] = defaultdict(set)
            for graph, type in own.values_list("node__graph", "type").distinct():
                types[graph].add(type)
            for graph in part:
                if all(now - graph.ended >= kept[type] for type in types[graph.pk]):
                    yield graph
                self.purge_mark = graph.ended, graph.pk

    def _remove_part(self, graph: Graph, limit: int) -> int:
        """Remove up to ``limit`` Instances of a graph, and the graph itself after the last one."""
        with self.store.atomic():
            locked = self.rows(Graph).select_for_update(skip_locked=True)
            if not locked.filter(pk=graph.pk, ended__isnull=False).first():
                return 0
            self.rows(Graph).filter(pk=graph.pk).update(request=REMOVE)
        nodes = self.rows(Node).filter(graph=graph.pk)
        own = self.rows(Instance).filter(pk__in=nodes.values("pk"))
        removed = self.store.removal.remove_nodes(own, limit)
        with self.store.atomic():
            if not nodes.exists():
                self.rows(Graph).filter(pk=graph.pk).delete()
        return removed

    def lock(self, instances: Collection[int], *, waits: bool = True) -> set[int]:
        nodes = self.rows(Node).filter(pk__in=instances).order_by("pk")
        locked = nodes.select_for_update(of=("self",), skip_locked=not waits)
        keys = set(locked.values_list("pk", flat=True))
        return keys if waits else keys - self._hindered(keys)

    def _hindered(self, keys: Collection[int]) -> set[int]:
        """Return the nodes whose settling would have to wait for a Task that others have locked.

        Such a Task waits for any end of the node. All other Tasks of that kind are locked here.
        """
        edges = self.rows(Edge).filter(upstream__in=keys, on=Condition.ENDED)
        behind = list(edges.values_list("upstream_id", "downstream_id"))
        if not behind:
            return set()
        tasks = self.rows(Task).filter(pk__in={key for _, key in behind}, waits__gt=0)
        there = tasks.order_by("pk").values_list("pk", flat=True)
        missing = set(there) - set(there.select_for_update(skip_locked=True))
        return {upstream for upstream, key in behind if key in missing}

    def settle(self, ended: Mapping[int, State], *, who: str = "") -> None:
        doomed = self.satisfy(ended, who)
        if doomed:
            self.fail_behind(doomed, who)

    def satisfy(self, ended: Mapping[int, State], who: str) -> set[int]:
        """Count down the nodes that wait for these, and write their hooks.

        ``ended`` maps keys to states. Returns the ended nodes with a dependant that has to fail.
        """
        satisfied: Counter[int] = Counter()
        doomed: set[int] = set()
        edges = self.rows(Edge).filter(upstream__in=ended)
        for upstream, downstream, on in edges.values_list("upstream_id", "downstream_id", "on"):
            if is_satisfied(on, ended[upstream]):
                satisfied[downstream] += 1
            else:
                doomed.add(upstream)
        keys = sorted(satisfied)
        for start in range(0, len(keys), CHUNK):
            self._count_down({key: satisfied[key] for key in keys[start : start + CHUNK]}, who)
        self._leave_line(ended)
        self.store.hooks.write(self.store.hooks.of(ended), who)
        return doomed

    def _leave_line(self, ended: Collection[int]) -> None:
        """Delete the nodes and edges of the ended Instances that were in the line of a schedule."""
        own = self.rows(Node).filter(pk__in=ended, graph__isnull=True)
        keys = list(own.values_list("pk", flat=True))
        if keys:
            self.rows(Edge).filter(Q(upstream__in=keys) | Q(downstream__in=keys)).delete()
            self.rows(Node).filter(pk__in=keys).delete()

    def _count_down(self, satisfied: Mapping[int, int], who: str) -> None:
        tasks = self.rows(Task).select_for_update().filter(pk__in=satisfied, waits__gt=0)
        freed: list[Task] = []
        others: dict[int, list[int]] = defaultdict(list)
        for task in tasks.order_by("pk"):
            if task.waits <= satisfied[task.pk]:
                freed.append(task)
            else:
                others[satisfied[task.pk]].append(task.pk)
        for count, keys in others.items():
            self.rows(Task).filter(pk__in=keys).update(waits=F("waits") - count)
        if freed:
            self._free(freed, who)

    def _free(self, tasks: Sequence[Task], who: str) -> None:
        now = self.store.now()
        later = self.rows(Node).filter(pk__in=[task.pk for task in tasks], not_before__gt=now)
        due: dict[datetime, list[int]] = defaultdict(list)
        not_before: dict[int, Any] = dict(later.values_list("pk", "not_before"))
        for task in tasks:
            due[not_before.get(task.pk, now)].append(task.pk)
        for time, keys in due.items():
            self.rows(Task).filter(pk__in=keys).update(waits=0, due_at=time)
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance_id=task.pk,
                    time=now,
                    kind=Kind.FREED,
                    state=State.ACCEPTED,
                    attempt=task.attempt,
                    level=logging.INFO,
                    who=who,
                    message=messages.node_freed(),
                )
                for task in tasks
            ]
        )
        self.store.tell()

    def undo(self, *, limit: int = MOST_UNDONE, who: str = "") -> bool:
        pending = self.rows(Graph).filter(undo_pending=True).order_by("pk")
        graph = pending.filter(pk__gt=self.undoing_mark).first() or pending.first()
        if graph is None:
            self.undo_orders.clear()
            return False
        # The others have their turn first, even if this fails.
        self.undoing_mark = graph.pk
        is_on = self._undo_portion(graph.pk, limit, who)
        return is_on or pending.exclude(pk=graph.pk).exists()

    def _begin_undo(self, graph: Graph) -> bool:
        """Begin to undo a locked graph at rest, unless nothing is to be undone."""
        if graph.undone is not None:
            return False
        nodes = self.rows(Node).filter(graph=graph.pk).order_by()
        finished = self.rows(Undo).filter(
            node__graph=graph.pk, node__instance__state=State.FINISHED
        )
        if not (finished.exists() and nodes.filter(instance__state=State.FAILED).exists()):
            return False
        # A request to cancel was for the nodes that have ended.
        self.rows(Graph).filter(pk=graph.pk).update(
            undone=self.store.now(), undo_pending=True, request=""
        )
        return True

    def _undo_portion(self, key: int, limit: int, who: str) -> bool:
        """Write up to ``limit`` undo nodes of a graph; returns whether more can be written now."""
        # What was read of the order outlasts a call that fails.
        order = self.undo_orders.pop(key, None) or UndoOrder(key)
        self.undo_orders[key] = order
        for old in list(self.undo_orders)[:-KEPT]:
            del self.undo_orders[old]
        if not order.read(self.rows):
            return True
        graph, done, position = None, 0, 0
        # To write them, it may have to wait for a Type that another session has locked.
        with self.store.unless_locked() as failed:
            locked = self.rows(Graph).select_for_update(skip_locked=True, no_key=True)
            graph = locked.filter(pk=key, undo_pending=True).first()
            if graph is not None:
                done, position = self._undo_next(graph, order, limit, who)
        if graph is None or failed:
            # Another session writes them, or holds them up.
            return False
        order.position = position
        if order.is_over():
            del self.undo_orders[key]
            return False
        return done > 0

    def _undo_next(self, graph: Graph, order: "UndoOrder", limit: int, who: str) -> tuple[int, int]:
        """Write the next undo nodes; returns how many, and up to where all are written."""
        position = order.position
        missing: list[int] = []
        while position < len(order.keys) and not missing:
            some = order.keys[position : position + limit]
            written = self._undo_nodes(some)
            missing = [key for key in some if key not in written]
            position += 0 if missing else len(some)
        chosen = self._write_undo(graph, order, self._that_fit(missing), who) if missing else set()
        left = next((key for key in missing if key not in chosen), None)
        if missing:
            position += len(some) if left is None else some.index(left)
        if position == len(order.keys):
            self.rows(Graph).filter(pk=graph.pk).update(undo_pending=False)
        if graph.ended is not None:
            # A daemon of an earlier release has not seen that more is to come.
            self.rows(Graph).filter(pk=graph.pk).update(ended=None)
        return len(chosen), position

    def _that_fit(self, keys: list[int]) -> list[int]:
        """Return the first of these keys whose inputs are not too long for one transaction."""
        lengths = self.rows(Undo).filter(pk__in=keys).annotate(length=Length("data"))
        length_of = dict(lengths.values_list("pk", "length"))
        total = 0
        for count, key in enumerate(keys):
            total += length_of.get(key, 0)
            if total > LENGTH and count:
                return keys[:count]
        return keys

    def _write_undo(
        self, graph: Graph, order: "UndoOrder", keys: Collection[int], who: str
    ) -> KeysView[int]:
        """Write the undo nodes of those nodes behind which nothing is locked; returns the latter.

        Each waits for undo nodes that were written before, and of these some may have ended.
        """
        before = {first for key in keys for first in order.firsts.get(key, ())}
        written = self._undo_nodes(sorted(before.difference(keys)))
        states = self._lock_and_read(written.values())
        chosen: dict[int, str] = {}
        waits: Counter[str] = Counter()
        names = self._undo_names(graph, keys)
        for key in keys:
            firsts = order.firsts.get(key, ())
            if all(first in chosen or written.get(first) in states for first in firsts):
                chosen[key] = names[key]
                waits[names[key]] = sum(
                    first in chosen or states[written[first]] not in TERMINAL for first in firsts
                )
        undos = self.rows(Undo).select_related("type").in_bulk(list(chosen))
        planned = [
            PlannedNode(name, Registration.of(undos[key].type), _submission(undos[key]), undoes=key)
            for key, name in chosen.items()
        ]
        made = self.store.graphs.enqueue_nodes(planned, waits, who)
        self.store.graphs.write_nodes(graph, planned, made)
        written |= {key: made[name] for key, name in chosen.items()}
        # An edge from the undone node, which has FINISHED, shows each undo at its place.
        own = [(key, written[key], Condition.FINISHED) for key in chosen]
        self.store.graphs.write_edges(
            own
            + [
                (written[first], written[key], Condition.ENDED)
                for key in chosen
                for first in order.firsts.get(key, ())
            ]
        )
        if graph.request == CANCEL:
            self.store.control.cancel([written[key] for key in chosen], who=who)
        return chosen.keys()

    def _undo_nodes(self, keys: Sequence[int]) -> dict[int, int]:
        """Return the keys of the undo nodes that exist, by the key of the node that each undoes."""
        found: dict[Any, int] = {}
        for start in range(0, len(keys), NODES):
            some = self.rows(Node).filter(undoes__in=keys[start : start + NODES])
            found.update(some.values_list("undoes", "pk"))
        return found

    def _lock_and_read(self, keys: Iterable[int]) -> dict[int, str]:
        """Lock nodes so that they cannot end; returns the states of those that could be locked."""
        ordered = sorted(keys)
        states: dict[int, str] = {}
        for start in range(0, len(ordered), NODES):
            locked = self.store.graphs.lock_upstreams(set(ordered[start : start + NODES]), False)
            states.update(self.rows(Instance).filter(pk__in=locked).values_list("pk", "state"))
        return states

    def _undo_names(self, graph: Graph, keys: Collection[int]) -> dict[int, str]:
        """Return the names of the new nodes, by the key of the node that each undoes."""
        nodes = self.rows(Node).filter(pk__in=keys).values_list("pk", "name")
        wanted = {key: f"{PREFIX}{name}"[:MAX_IDENTIFIER] for key, name in nodes}
        there = self.rows(Node).filter(graph=graph.pk, name__in=wanted.values())
        taken = set(there.values_list("name", flat=True))
        names: dict[int, str] = {}
        for key in keys:
            # A node of the graph may have this name already.
            names[key] = wanted[key] if wanted[key] not in taken else f"{PREFIX}{key}"
            taken.add(names[key])
        return names

    def write_undos(self, nodes: Collection[PlannedNode], keys: Mapping[str, int]) -> None:
        """Store the Undo of each of these nodes that has one, for the case that the graph fails."""
        types: dict[str, int] = {}
        for node in nodes:
            if node.undo is not None and node.undo.registration.identifier not in types:
                # The Type stays registered until this commits; from then on it is in use.
                types[node.undo.registration.identifier] = self.store.enqueueing.type_id(
                    node.undo.registration
                )
        self.rows(Undo).bulk_create(
            [
                Undo(
                    node_id=keys[node.name],
                    type_id=types[node.undo.registration.identifier],
                    format=node.undo.submission.inputs.format,
                    data=node.undo.submission.inputs.data,
                    collection=node.undo.submission.collection,
                    priority=node.undo.submission.priority,
                    created_by=node.undo.submission.created_by,
                    own=node.undo.submission.own,
                )
                for node in nodes
                if node.undo is not None
            ],
            batch_size=2000,
        )


def _submission(undo: Undo) -> Submission:
    return Submission(
        inputs=Payload(undo.format, undo.data),
        collection=undo.collection,
        priority=undo.priority,
        created_by=undo.created_by,
        own=undo.own,
    )


class UndoOrder:
    """The order in which the nodes of one graph are undone, read in pieces.

    ``keys`` are the undone nodes: each comes after its ``firsts``, those that are undone before it.
    All before ``position`` have undo nodes. Once the undo has begun, the order is the same for all
    daemons.
    """

    def __init__(self, graph: int) -> None:
        self.keys: Any = None  # a list[int] once all is read
        self.firsts: dict[int, list[int]] = defaultdict(list)
        self.position = 0
        self._graph = graph
        self._undone: Any = None
        self._nodes: Any = None  # both are a Sequence[int] from the first piece on
        self._edges: list[tuple[int, int]] = []
        self._at, self._piece = 0, NODES

    def read(self, rows: Callable[..., QuerySet[Any]]) -> bool:
        """Read a piece; returns whether all is read. A piece that fails is read again, halved."""
        if self.keys is not None:
            return True
        if self._nodes is None:
            undos = rows(Undo).filter(node__graph=self._graph, node__instance__state=State.FINISHED)
            self._undone = list(undos.order_by("pk").values_list("pk", flat=True))
            nodes = rows(Node).filter(graph=self._graph, undoes__isnull=True).order_by("pk")
            self._nodes = list(nodes.values_list("pk", flat=True))
        count = len(self._edges)
        while self._at < len(self._nodes):
            if len(self._edges) - count >= EDGES:
                return False
            self._read_edges(rows)
        if len(self._edges) - count >= EDGES:
            # To sort so many takes a call of its own.
            return False
        self._sort()
        return True

    def is_over(self) -> bool:
        return self.position >= len(self.keys)

    def _read_edges(self, rows: Callable[..., QuerySet[Any]]) -> None:
        some = self._nodes[self._at : self._at + self._piece]
        try:
            edges = rows(Edge).filter(downstream__in=some).order_by("downstream", "upstream")
            self._edges += edges.values_list("upstream", "downstream")
        except DatabaseError:
            self._piece = max(1, self._piece // 2)
            raise
        self._at += len(some)

    def _sort(self) -> None:
        for first, then in undo_order(self._undone, self._edges):
            self.firsts[then].append(first)
        sorter = TopologicalSorter({key: self.firsts.get(key, ()) for key in self._undone})
        self.keys = list(sorter.static_order())
        self._undone, self._nodes, self._edges = None, (), []


# The value of ``request`` of a graph that is being removed.
REMOVE = "remove"
