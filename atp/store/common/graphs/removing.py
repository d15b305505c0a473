"""The end of graphs: recording when they ended, and removing each as a whole."""

from datetime import timedelta

from django.db.models import Exists, Max, OuterRef

from ....models import Failing, Graph, Instance, Node, Type
from ..removal import failures_kept
from .reviving import REMOVE

# The number of ended graphs, oldest first, that one purge looks at.
GRAPHS = 50
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
            ended += self._end(key, who)
        return ended, keys[-1] if len(keys) == limit else 0

    def _end(self, key, who):
        with self.store.atomic():
            # A redrive or an addition locks the graph too.
            locked = self.rows(Graph).select_for_update(skip_locked=True, no_key=True)
            graph = locked.filter(pk=key, ended__isnull=True).first()
            if graph is None or self.rows(Graph).filter(self._tasks(), pk=key).exists():
                return 0
            if self.undo(graph, who):
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
        """Yield the graphs that no Type keeps any longer, the oldest first."""
        now = self.store.now()
        kept = {
            pk: _kept(retention) for pk, retention in self.rows(Type).values_list("pk", "retention")
        }
        ended = self.rows(Graph).filter(ended__isnull=False)
        for graph in ended.order_by("ended")[:GRAPHS]:
            if now - graph.ended < min(kept.values(), default=_EVER):
                return
            own = self.rows(Instance).filter(node__graph=graph).order_by()
            types = own.values_list("type", flat=True).distinct()
            if all(now - graph.ended >= kept[type] for type in types):
                yield graph

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


def _kept(retention):
    if retention is None:
        return _EVER
    if retention:
        return retention
    # FAILED nodes are kept for longer, and the graph may have some.
    return failures_kept() or _EVER
