"""Tasks that have been due for a long time and are not claimed, although a daemon is idle."""

import logging
from itertools import islice

from django.db.models import Max

from .... import messages
from ....models import Instance, Kind, LogRecord, Task, Type
from ....states import State
from ...facts import Finding, Trouble
from .look import MOST

# The number of lanes that one scan looks at by their index. The walk sees all lanes.
LANES = 100
# The number of Tasks that are read at once.
PAGE = 1000


class Forgotten:
    """Forgotten Tasks are only reported: a scan cannot mend what keeps daemons from claiming."""

    def __init__(self, look):
        self._look = look
        self._rows = look.rows
        self._types = self._served()

    def first_of_each(self):
        """Check the first waiting Tasks of each lane, in its highest priority that is due."""
        look, found = self._look, {}
        if not self._types:
            return []
        lanes = look.store.due_lanes(self._types, look.closed, look.then, LANES)
        for type, collection, priority in lanes:
            due = self._due().filter(type=type, collection=collection, priority=priority)
            found |= _by_key(due.order_by("due_at", "pk")[: -(-MOST // len(lanes))])
        return self._unclaimed(found)

    def between(self, low, high):
        """Check the Tasks with ``low < key <= high``."""
        if not self._types:
            return []
        due = self._due().filter(pk__lte=high, type__in=self._types).order_by("pk")
        found, last = {}, low
        while len(found) < MOST and last is not None:
            # There may be too many closed lanes for a query.
            rows = due.filter(pk__gt=last).values_list("pk", "due_at", "type", "collection")[:PAGE]
            last = None
            for key, due_at, *lane in rows:
                last = key
                if tuple(lane) not in self._look.closed.lanes:
                    found[key] = due_at
        return self._unclaimed(dict(islice(found.items(), MOST)))

    def _due(self):
        return self._rows(Task).due(self._look.then)

    def _served(self):
        """Return the keys of the Types served by a daemon that is idle and has run for long.

        Types that are closed to claims are left out.
        """
        idle = [row for row in self._look.settled if row.idle and isinstance(row.types, list)]
        identifiers = {name for row in idle for name in row.types}
        if not identifiers:
            return []
        types = self._rows(Type).filter(identifier__in=identifiers).order_by("pk")
        keys = types.values_list("pk", flat=True)
        return [key for key in keys if not self._look.closed.shuts(key)]

    def _unclaimed(self, due):
        """Return findings for Tasks with no transition for long; ``due`` maps keys to due times."""
        if not due:
            return []
        last = self._look.last_transitions(due)
        quiet = [key for key in due if key not in last or last[key][0] <= self._look.then]
        # Leave out Instances that were claimed since then, or that disagree with their Task.
        waiting = self._rows(Instance).filter(pk__in=quiet, state=State.ACCEPTED)
        instances = list(waiting.select_related("type").order_by("pk"))
        if self._look.repair and instances:
            self._complain(instances, last)
        return [
            Finding(
                trouble=Trouble.UNCLAIMED,
                instance=instance.uuid,
                type=instance.type.identifier,
                since=due[instance.pk],
            )
            for instance in instances
        ]

    def _complain(self, instances, last):
        """Log the trouble for each Instance, once until its next transition."""
        said = self._rows(LogRecord).filter(instance__in=instances, kind=Kind.UNCLAIMED)
        newest = said.order_by().values("instance").annotate(newest=Max("pk"))
        newest = {row["instance"]: row["newest"] for row in newest}
        self._rows(LogRecord).bulk_create(
            LogRecord(
                instance=instance,
                time=self._look.now,
                kind=Kind.UNCLAIMED,
                state=instance.state,
                attempt=instance.attempt,
                level=logging.ERROR,
                who=self._look.who,
                message=messages.unclaimed(),
            )
            for instance in instances
            if newest.get(instance.pk, 0) <= last.get(instance.pk, (None, 0))[1]
        )


def _by_key(tasks):
    return dict(tasks.values_list("pk", "due_at"))
