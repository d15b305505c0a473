"""The end of graphs: recording when they ended, and removing each as a whole."""

from collections import defaultdict
from datetime import timedelta

from django.db.models import Exists, Max, OuterRef, Q

from ....models import Failing, Graph, Instance, Node, Type
from ..removal import failures_kept
from .reviving import REMOVE
from .undoing import MOST

# The number of ended graphs that one purge looks at, and that it reads at a time.
GRAPHS, PART = 5_000, 50
# A Type that keeps its Instances for ever keeps their graphs too.
_EVER = timedelta.max


class Removing:
    def end(self, *, limit=100, after=0, who=""):
        live = self.rows(Graph).filter(ended__isnull=True)
        keys = list(live.filter(pk__gt=after).order_by("pk").values_list("pk", flat=True)[:limit])
        if not keys:
            return 0, 0
        ended = 0
        for key in live.filter(pk__in=keys).filter(~self._tasks()).values_list("pk", flat=True):
            begun = []
            with self.store.unless_locked():
                ended += self._end(key, begun)
            for graph in begun:
                self._undo_portion(graph, min(limit, MOST), who)
        return ended, keys[-1] if len(keys) == limit else 0

    def _end(self, key, begun):
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

    def _tasks(self):
        """Return a condition: the graph has a node that has not ended."""
        nodes = self.rows(Node).filter(graph=OuterRef("pk"), instance__task__isnull=False)
        return Exists(nodes.order_by())

    def are_live(self):
        live = self.rows(Graph).filter(ended__isnull=True)
        return live.exists() or self.rows(Failing).exists()

    def purge(self, *, limit=500):
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

    def _over(self):
        """Yield the graphs that no Type keeps any longer, the oldest first.

        If there are many that are kept, it goes on behind those that it has looked at before.
        """
        now = self.store.now()
        kept = {
            pk: _kept(retention) for pk, retention in self.rows(Type).values_list("pk", "retention")
        }
        shortest = min(kept.values(), default=_EVER)
        if shortest == _EVER:
            return
        ended = self.rows(Graph).filter(ended__lte=now - shortest).order_by("ended", "pk")
        for _ in range(GRAPHS // PART):
            part = list(ended.filter(_behind(self.purge_mark))[:PART])
            if not part:
                self.purge_mark = None
                return
            own = self.rows(Instance).filter(node__graph__in=part).order_by()
            types = defaultdict(set)
            for graph, type in own.values_list("node__graph", "type").distinct():
                types[graph].add(type)
            for graph in part:
                if all(now - graph.ended >= kept[type] for type in types[graph.pk]):
                    yield graph
                self.purge_mark = graph.ended, graph.pk

    def _remove_part(self, graph, limit):
        """Remove up to ``limit`` Instances of a graph, and the graph itself after the last one."""
        with self.store.atomic():
            locked = self.rows(Graph).select_for_update(skip_locked=True)
            if not locked.filter(pk=graph.pk, ended__isnull=False).first():
                return 0
            self.rows(Graph).filter(pk=graph.pk).update(request=REMOVE)
        nodes = self.rows(Node).filter(graph=graph.pk)
        own = self.rows(Instance).filter(pk__in=nodes.values("pk"))
        removed = self.store.remove_nodes(own, limit)
        with self.store.atomic():
            if not nodes.exists():
                self.rows(Graph).filter(pk=graph.pk).delete()
        return removed


def _behind(mark):
    """Return a condition: the graph ended after the mark, a pair of a time and a key."""
    if mark is None:
        return Q()
    time, key = mark
    return Q(ended__gt=time) | Q(ended=time, pk__gt=key)


def _kept(retention):
    if retention is None:
        return _EVER
    if retention:
        return retention
    # FAILED nodes are kept for longer, and the graph may have some.
    return failures_kept() or _EVER
