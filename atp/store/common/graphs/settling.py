"""Settling: what an Instance's end means for the nodes that wait for it, and for its hooks.

Settling is a statement of its own in the transaction of the end, after the node was locked. So
it sees all edges that were committed before, and nobody adds an edge until this commits. If two
ends are recorded at once, they settle one after the other: both count down the same Task, and
the second waits for the lock on its row (G17). Instances with hooks that are no nodes are
settled as well.
"""

import logging
from collections import Counter, defaultdict

from django.db.models import F, Q

from .... import messages
from ....graphs.models import Condition, is_satisfied
from ....models import Edge, Kind, LogRecord, Node, Task
from ....states import State

CHUNK = 1000


class Settling:
    def lock(self, instances, *, waits=True):
        nodes = self.rows(Node).filter(pk__in=instances).order_by("pk")
        locked = nodes.select_for_update(of=("self",), skip_locked=not waits)
        keys = set(locked.values_list("pk", flat=True))
        return keys if waits else keys - self._hindered(keys)

    def _hindered(self, keys):
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

    def settle(self, ended, *, who=""):
        doomed = self.satisfy(ended, who)
        if doomed:
            self.fail_behind(doomed, who)

    def satisfy(self, ended, who):
        """Count down the nodes that wait for these, and write their hooks.

        ``ended`` maps keys to states. Returns the ended nodes with a dependant that has to fail.
        """
        satisfied, doomed = Counter(), set()
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

    def _leave_line(self, ended):
        """Delete the nodes and edges of the ended Instances that were in the line of a schedule."""
        own = self.rows(Node).filter(pk__in=ended, graph__isnull=True)
        keys = list(own.values_list("pk", flat=True))
        if keys:
            self.rows(Edge).filter(Q(upstream__in=keys) | Q(downstream__in=keys)).delete()
            self.rows(Node).filter(pk__in=keys).delete()

    def _count_down(self, satisfied, who):
        tasks = self.rows(Task).select_for_update().filter(pk__in=satisfied, waits__gt=0)
        freed, others = [], defaultdict(list)
        for task in tasks.order_by("pk"):
            if task.waits <= satisfied[task.pk]:
                freed.append(task)
            else:
                others[satisfied[task.pk]].append(task.pk)
        for count, keys in others.items():
            self.rows(Task).filter(pk__in=keys).update(waits=F("waits") - count)
        if freed:
            self._free(freed, who)

    def _free(self, tasks, who):
        now = self.store.now()
        later = self.rows(Node).filter(pk__in=[task.pk for task in tasks], not_before__gt=now)
        due = defaultdict(list)
        not_before = dict(later.values_list("pk", "not_before"))
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
