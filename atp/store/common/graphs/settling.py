"""Settling: what follows from the end of an Instance, for nodes that wait for it, and its hooks.

It is a statement of its own in the transaction of the end, after the node was locked: it sees
all edges that were committed before, and nobody adds another until this commits. Two ends
that are recorded at once settle one after the other, as the second waits for the lock on
the Task that both count down (G17). What is no node, and has hooks, is settled as well.
"""

import logging
from collections import Counter, defaultdict

from django.db.models import F, Q

from ....models import Edge, LogRecord, Node, Task
from ....rows.graph import Condition, is_satisfied
from ....rows.log import Kind
from ....states import State
from ....words import graph_messages

CHUNK = 1000


class Settling:
    def lock(self, instances, *, waits=True):
        nodes = self.rows(Node).filter(pk__in=instances).order_by("pk")
        locked = nodes.select_for_update(of=("self",), skip_locked=not waits)
        keys = set(locked.values_list("pk", flat=True))
        return keys if waits else keys - self._hindered(keys)

    def _hindered(self, keys):
        """Return those of the nodes whose failure would have to wait for a Task of others.

        That is the Task of what waits for any end of theirs; the other Tasks are locked.
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
        """Count down what waits for these, and write their hooks.

        Returns those of them of which some has to fail.
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
        """Forget those of what ended that were in the line of a schedule, and their edges."""
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
                    message=graph_messages.freed(),
                )
                for task in tasks
            ]
        )
        self.store.tell()
