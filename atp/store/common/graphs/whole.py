"""What is asked of a graph as a whole: to be cancelled, to be redriven."""

from graphlib import TopologicalSorter

from ....models import Edge, Graph, Instance, Node, Task
from ....rows.graph import REDRIVABLE
from ....states import Event, State
from ...values import CANCEL, Cancelled, Move

# So many nodes are cancelled or redriven in one transaction.
PORTION = 1000


class Whole:
    def cancel(self, graph, *, who=""):
        self.rows(Graph).filter(pk=graph).update(request=CANCEL)
        nodes = self.rows(Task).filter(waits__isnull=False, instance__node__graph=graph)
        failed, asked, before = [], [], []
        waiting = nodes.filter(daemon__isnull=True)
        if self.store.connection.in_atomic_block:
            # In the order in which everybody locks them: the portions are taken in another.
            list(waiting.select_for_update(of=("self",)).order_by("pk").values_list("pk"))
        # What waits first: nothing of it starts then. And of that the last first, most of which
        # are behind the others: so little is failed for another, one by one.
        while keys := _keys(waiting, "-pk"):
            done = self.store.cancel(keys, who=who)
            failed += done.failed
            asked += done.asked
        held = nodes.filter(daemon__isnull=False).exclude(request=CANCEL)
        while keys := _keys(held):
            done = self.store.cancel(keys, who=who)
            failed += done.failed
            asked += done.asked
            before += done.before
        return Cancelled(failed=tuple(failed), asked=tuple(asked), before=tuple(before))

    def redrive(self, graph, *, who=""):
        own = self.rows(Node).filter(REDRIVABLE, graph=graph, instance__state=State.FAILED)
        failed = self.rows(Instance).filter(pk__in=own.values("pk"))
        keys = set(failed.values_list("pk", flat=True))
        self.rows(Graph).filter(pk=graph, request=CANCEL).update(request="")
        redriven = 0
        ordered = self._in_order(keys)
        for start in range(0, len(ordered), PORTION):
            portion = ordered[start : start + PORTION]
            moves = [Move(event=Event.REDRIVE, instance=key, who=who) for key in portion]
            redriven += len(moves) - len(self.store.record(moves))
        return redriven

    def _in_order(self, keys):
        """Return these nodes in the order of the graph, so that what waits has what to wait for."""
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
