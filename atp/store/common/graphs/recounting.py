"""Recounting the unsatisfied edges of waiting nodes, a number that all other code relies on."""

import logging
from collections import defaultdict

from django.db.models import Count, F, OuterRef, Subquery
from django.db.models.functions import Coalesce

from .... import messages
from ....graphs.models import SATISFIED, Condition, is_satisfied
from ....models import BLOCKED, Edge, Failing, Instance, Kind, LogRecord, Task
from ....states import State


class Recounting:
    def miscounted(self, tasks):
        """Return those of these Tasks whose ``waits`` is not the number of unsatisfied edges.

        Returns also the Tasks that wait for a FAILED node although nothing is about to fail them.
        Each is one statement, since an end and its consequences are one transaction.
        """
        waiting = tasks.filter(waits__gt=0)
        own = self.rows(Edge).filter(~SATISFIED, downstream=OuterRef("pk")).order_by()
        count = own.values("downstream").annotate(count=Count("pk")).values("count")
        odd = waiting.annotate(open=Coalesce(Subquery(count), 0)).exclude(waits=F("open"))
        return {*odd.values_list("pk", flat=True), *self._stuck(waiting)}

    def _stuck(self, waiting):
        doomed = self.rows(Edge).filter(
            on=Condition.FINISHED,
            upstream__instance__state=State.FAILED,
            downstream__in=waiting.values("pk"),
        )
        failing = self.rows(Failing).values("pk")
        return doomed.exclude(upstream__in=failing).values_list("downstream", flat=True)

    def recount(self, keys, now, who):
        """Recount the edges of waiting nodes; returns words for what was done, by key.

        Nodes that wait for a FAILED node are left to the chore that fails them. Nodes that another
        session has locked are left alone: that session is about to settle them.
        """
        done = {}
        with self.store.atomic():
            edges = defaultdict(list)
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

    def _mend(self, task, edges, states, now, who):
        count, doomed = 0, set()
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
