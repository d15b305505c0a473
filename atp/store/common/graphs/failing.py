"""Failing the nodes that wait for a FAILED node, then those that wait for them, and so on."""

import logging

from ....models import Edge, Failing, Instance, Node
from ....rows.graph import Condition
from ....states import Actor, Event, Reason, State
from ....words import graph_messages
from ...values import Move
from ..mover import Mover

# The transaction of an end fails at most MOST dependants, and follows at most STEPS edges. A
# chore fails the others; it follows up to STEPS_OF_CHORE edges.
MOST, STEPS, STEPS_OF_CHORE = 500, 10, 100
# The number of FAILED nodes that the chore works on at once.
ROWS = 100


class Failures:
    def fail_behind(self, failed, who):
        """Fail the first dependants of nodes that have just FAILED; leave the others to a chore."""
        _, left = self._fail(failed, who, MOST, STEPS)
        self._leave(left)

    def fail_dependants(self, *, who="", limit=MOST):
        if not self.rows(Failing).exists():
            return 0
        with self.store.atomic():
            rows = self.rows(Failing).select_for_update(skip_locked=True).order_by("pk")
            keys = [row.pk for row in rows.filter(pk__gt=self.failing_mark)[:ROWS]]
            self.failing_mark = 0
            if not keys:
                return 0
            locked = self.lock(keys, waits=False)
            own = self.rows(Instance).filter(pk__in=locked)
            failed = set(own.filter(state=State.FAILED).values_list("pk", flat=True))
            count, left = self._fail(failed, who, limit, STEPS_OF_CHORE)
            # A node that has been redriven meanwhile must not fail its dependants any more.
            self.rows(Failing).filter(pk__in=locked - left).delete()
            self._leave(left - failed)
        if not count and len(keys) == ROWS:
            # Somebody has locked what is behind all of these: others may come first.
            self.failing_mark = keys[-1]
        return count

    def _leave(self, keys):
        if keys:
            rows = [Failing(pk=key) for key in sorted(keys)]
            self.rows(Failing).bulk_create(rows, ignore_conflicts=True)

    def _fail(self, failed, who, most, steps):
        """Fail up to ``most`` dependants; returns how many, and the nodes that have more.

        Dependants that another session has locked count as more.
        """
        count, left, ahead = 0, set(), sorted(failed)
        while ahead:
            if count >= most or not steps:
                return count, left | self._with_dependants(ahead)
            steps -= 1
            edges = self._edges(ahead).order_by("downstream", "upstream")
            pairs = list(edges.values_list("downstream", "upstream")[: most - count + 1])
            if len(pairs) > most - count:
                # It was one too many: it shows that there are more.
                pairs.pop()
                left |= self._with_dependants(ahead)
            done = self._fail_each(pairs, who)
            left |= {upstream for key, upstream in pairs if key not in done}
            count, ahead = count + len(done), sorted(done)
        # Some nodes in ``left`` may have no dependants any more.
        return count, self._with_dependants(left) if left else left

    def _edges(self, failed):
        """Return the edges behind these FAILED nodes whose downstream node has to fail."""
        return self.rows(Edge).filter(
            upstream__in=failed,
            on=Condition.FINISHED,
            downstream__instance__task__waits__gt=0,
        )

    def _with_dependants(self, keys):
        return set(self._edges(keys).values_list("upstream", flat=True).distinct())

    def _fail_each(self, pairs, who):
        """Fail nodes because of their upstream node; returns the keys of those that failed.

        ``pairs`` are pairs of keys: the node, and the upstream node that FAILED.
        """
        why = {}
        for key, upstream in pairs:
            why.setdefault(key, upstream)
        upstreams = self.rows(Node).filter(pk__in=set(why.values()))
        told = {
            key: graph_messages.upstream_failed(name, reason)
            for key, name, reason in upstreams.values_list("pk", "name", "instance__reason")
        }
        mover = Mover(self.store, self.store.now()).load(sorted(why), waits=False)
        done = {
            key
            for key, upstream in why.items()
            if mover.apply(_end(key, told[upstream], who), actor=Actor.ANYONE)
        }
        mover.write(settles=False)
        # Nodes that wait for any end of the failed ones are satisfied now. Others must fail next.
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
