"""What has been due for long and is not claimed, although a daemon has nothing else to do."""

import logging

from django.db.models import Max, OuterRef, Subquery

from ....models import Instance, LogRecord, Task, Type
from ....options import MAX_PRIORITY
from ....states import State
from ...findings import Finding, Trouble
from .look import MOST

# So many priorities, from the highest, are looked at by their index; the walk sees all.
LEVELS = 20

NOT_CLAIMED = Trouble.UNCLAIMED.label


class Forgotten:
    """Only reported: what keeps a daemon from claiming, nobody else can mend."""

    def __init__(self, look):
        self._look = look
        self._rows = look.rows
        self._types = self._served()

    def first_of_each(self):
        """By the first that waits of each Type and priority."""
        found = []
        for type, priority in self._due_levels():
            due = self._due().filter(type=type, priority=priority)
            found += self._unclaimed(due.order_by("due_at", "pk")[:MOST])
        return found

    def between(self, low, high):
        """By the keys of the Tasks; the lower one is not included."""
        if not self._types:
            return []
        due = self._due().filter(pk__gt=low, pk__lte=high, type__in=self._types)
        return self._unclaimed(due.order_by("pk")[:MOST])

    def _due(self):
        return self._rows(Task).due(self._look.then)

    def _served(self):
        """The Types that somebody serves who has been there for long, and is idle."""
        idle = [row for row in self._look.settled if row.idle and isinstance(row.types, list)]
        identifiers = {name for row in idle for name in row.types}
        if not identifiers:
            return []
        types = self._rows(Type).filter(identifier__in=identifiers).order_by("pk")
        return list(types.values_list("pk", flat=True))

    def _due_levels(self):
        """Yield Type and priority wherever the first that waits has been due for long.

        A step or two in an index for each, however much is dated in the future.
        """
        types, priority = self._types, MAX_PRIORITY + 1
        for _ in range(LEVELS):
            levels = self._next_levels(types, priority) if types else {}
            if not levels:
                return
            types, priority = list(levels), max(levels.values())
            here = [type for type in types if levels[type] == priority]
            yield from ((type, priority) for type in self._with_due(here, priority))

    def _next_levels(self, types, priority):
        """The highest priority below this one at which something waits, by Type."""
        waiting = self._rows(Task).waiting().filter(type=OuterRef("pk"), priority__lt=priority)
        level = Subquery(waiting.order_by("-priority").values("priority")[:1])
        found = self._rows(Type).filter(pk__in=types).order_by().annotate(level=level)
        return {pk: level for pk, level in found.values_list("pk", "level") if level is not None}

    def _with_due(self, types, priority):
        """Those of the Types of which the first at this priority is due."""
        waiting = self._rows(Task).waiting().filter(type=OuterRef("pk"), priority=priority)
        first = Subquery(waiting.order_by("due_at").values("due_at")[:1])
        found = self._rows(Type).filter(pk__in=types).order_by().annotate(first=first)
        return found.filter(first__lte=self._look.then).values_list("pk", flat=True)

    def _unclaimed(self, tasks):
        """Those of the Tasks to whose Instances nothing has happened for long."""
        due = dict(tasks.values_list("pk", "due_at"))
        if not due:
            return []
        last = self._look.last_transitions(due)
        quiet = [key for key in due if key not in last or last[key][0] <= self._look.then]
        # What was claimed since then is left out, and what does not fit its Task.
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
        """Say it in the log of each, once for as long as nothing happens."""
        said = self._rows(LogRecord).filter(instance__in=instances, event="", message=NOT_CLAIMED)
        newest = said.order_by().values("instance").annotate(newest=Max("pk"))
        newest = {row["instance"]: row["newest"] for row in newest}
        self._rows(LogRecord).bulk_create(
            LogRecord(
                instance=instance,
                time=self._look.now,
                state=instance.state,
                attempt=instance.attempt,
                level=logging.ERROR,
                who=self._look.who,
                message=NOT_CLAIMED,
            )
            for instance in instances
            if newest.get(instance.pk, 0) <= last.get(instance.pk, (None, 0))[1]
        )
