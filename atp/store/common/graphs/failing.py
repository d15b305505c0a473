"""Failing the nodes that wait for a FAILED node, then those that wait for them, and so on.

A portion is one transaction: it reads the nodes that have to fail, however many edges behind the
FAILED ones, and fails them together. So it takes the same statements for a chain as for nodes
that all wait for the same one.
"""

import logging
from abc import abstractmethod
from collections import defaultdict, deque

from django.db.models import OuterRef, Subquery

from .... import messages
from ....graphs.models import Condition
from ....models import Edge, Failing, Instance, Node
from ....states import Actor, Event, Reason, State
from ...values import Move
from ..mover import Mover

# The number of dependants that the transaction of an end fails; a chore fails the others.
MOST = 500
# The number of FAILED nodes that the chore works on at once.
ROWS = 100


class Failures:
    def fail_behind(self, failed, who):
        """Fail the first dependants of nodes that have just FAILED; leave the others to a chore."""
        _, left = self._fail(failed, who, MOST)
        self._leave(left)

    def fail_dependants(self, *, who="", limit=MOST):
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

    def _leave(self, keys):
        if keys:
            rows = [Failing(pk=key) for key in sorted(keys)]
            self.rows(Failing).bulk_create(rows, ignore_conflicts=True)

    def _fail(self, failed, who, most):
        """Fail up to ``most`` dependants; returns how many, and the nodes that have more.

        Dependants that another session has locked count as more.
        """
        if not failed:
            return 0, set()
        done = set()
        if most and (doomed := self._doomed(failed, most)):
            done = self._fail_each(failed, doomed, who)
        return len(done), self._with_dependants(failed | done)

    @abstractmethod
    def _doomed(self, failed, most):
        """Return up to ``most`` waiting nodes that have to fail because of these FAILED ones."""

    def _edges(self):
        """Return the edges whose downstream node has to fail if the upstream node FAILED."""
        return self.rows(Edge).filter(
            on=Condition.FINISHED, downstream__instance__task__waits__gt=0
        )

    def _with_dependants(self, keys):
        # A scalar subquery is asked for each node. PostgreSQL would make a join of an EXISTS; where
        # its statistics say that there are no rows, the time of that join grows with their cube.
        more = self._edges().filter(upstream=OuterRef("pk")).order_by().values("pk")[:1]
        nodes = self.rows(Node).filter(pk__in=keys).annotate(more=Subquery(more))
        return set(nodes.filter(more__isnull=False).values_list("pk", flat=True))

    def _fail_each(self, failed, doomed, who):
        """Fail these nodes because of FAILED upstream nodes; returns the keys of those that failed.

        A node of which no upstream node is among ``failed``, or fails here, does not fail.
        """
        sources = failed | set(doomed)
        edges = self._edges().filter(downstream__in=doomed, upstream__in=sources)
        behind = defaultdict(list)
        for key, upstream in edges.values_list("downstream", "upstream"):
            behind[upstream].append(key)
        nodes = self.rows(Node).filter(pk__in=behind.keys())
        names = {
            key: (name, reason)
            for key, name, reason in nodes.values_list("pk", "name", "instance__reason")
        }
        mover = Mover(self.store, self.store.now()).load(sorted(doomed), waits=False)
        done, ahead = set(), deque(sorted(failed))
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


def _end(key, message, who):
    return Move(
        event=Event.FAIL,
        instance=key,
        who=who,
        message=message,
        level=logging.WARNING,
        reason=Reason.UPSTREAM,
    )
