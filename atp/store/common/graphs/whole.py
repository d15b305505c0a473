"""Verbs on a graph as a whole: cancel it, redrive it."""

from graphlib import TopologicalSorter

from ....commands import CANCEL, Cancelled
from ....graphs.models import REDRIVABLE
from ....models import Edge, Graph, Node, Task
from ....states import Event, State
from ...values import Move

# The number of nodes that one transaction cancels or redrives.
PORTION = 1000


class Whole:
    def cancel(self, graph, *, who=""):
        self.rows(Graph).filter(pk=graph).update(request=CANCEL)
        nodes = self.rows(Task).filter(waits__isnull=False, instance__node__graph=graph)
        if self.rows(Graph).filter(pk=graph, undone__isnull=True).exists():
            # What is written to undo the cancelled nodes is not cancelled with them.
            nodes = nodes.filter(instance__node__undoes__isnull=True)
        failed, asked, before = [], [], []
        waiting = nodes.filter(daemon__isnull=True)
        if self.store.connection.in_atomic_block:
            # Lock them in the usual order, since the portions below come in another order: all
            # nodes, those of held Tasks too, before the Tasks.
            self.lock(nodes.values_list("pk", flat=True))
            list(waiting.select_for_update(of=("self",)).order_by("pk").values_list("pk"))
        held = nodes.filter(daemon__isnull=False).exclude(request=CANCEL)
        # Waiting nodes first, so that none of them starts. Of these the last first, since most are
        # downstream of the others: then few have to fail one by one because of another. A held
        # node may be handed back meanwhile.
        while keys := _keys(waiting, "-pk") or _keys(held):
            done = self.store.cancel(keys, who=who)
            failed += done.failed
            asked += done.asked
            before += done.before
        return Cancelled(failed=tuple(failed), asked=tuple(asked), before=tuple(before))

    def redrive(self, graph, *, who=""):
        failed = self.rows(Node).filter(REDRIVABLE, graph=graph, instance__state=State.FAILED)
        self.rows(Graph).filter(pk=graph, request=CANCEL).update(request="")
        redriven, tried = 0, set()
        # Until the node that failed first is redriven, daemons go on failing what depends on it.
        while keys := set(failed.values_list("pk", flat=True)) - tried:
            tried |= keys
            ordered = self._in_order(keys)
            for start in range(0, len(ordered), PORTION):
                portion = ordered[start : start + PORTION]
                moves = [Move(event=Event.REDRIVE, instance=key, who=who) for key in portion]
                redriven += len(moves) - len(self.store.record(moves))
        return redriven

    def _in_order(self, keys):
        """Return these nodes in graph order: upstream nodes first."""
        edges = {key: [] for key in keys}
        ordered = sorted(keys)
        for start in range(0, len(ordered), PORTION):
            some = self.rows(Edge).filter(downstream__in=ordered[start : start + PORTION])
            for key, upstream in some.values_list("downstream_id", "upstream_id"):
                if upstream in keys:
                    edges[key].append(upstream)
        return list(TopologicalSorter(edges).static_order())


def _keys(tasks, order="pk"):
    return list(tasks.order_by(order).values_list("pk", flat=True)[:PORTION])
