"""The Tasks that wait in one lane, read only as far as they are needed."""

from datetime import UTC

from ....options import MAX_PRIORITY
from ....querysets import CLAIMING_ORDER
from ...sorting import in_sql
from ...values import Claimed
from ..base import as_text

# Walks atp_task_claim in its order, and no further than to the limit. It steps over Tasks that
# are too late to be started, until miss() fails them, and over Tasks that disagree with their
# Instances, until a scan mends them.
_WAITING = f"""
    SELECT task.instance_id,
        substr(uuid, 1, 8) || '-' || substr(uuid, 9, 4) || '-' || substr(uuid, 13, 4)
            || '-' || substr(uuid, 17, 4) || '-' || substr(uuid, 21),
        task.attempt + 1, inputs.format, inputs.data, instance.identifier,
        task.collection, task.priority, instance.retries, instance.restarts, instance.lost,
        instance.own, task.due_at
    FROM atp_task task INDEXED BY atp_task_claim
    CROSS JOIN atp_instance instance ON instance.id = task.instance_id
    CROSS JOIN atp_inputs inputs INDEXED BY sqlite_autoindex_atp_inputs_1
        ON inputs.instance_id = task.instance_id
    WHERE task.type_id = %(type)s AND task.daemon_id IS NULL
      AND task.collection = %(collection)s AND task.priority = %(priority)s
      AND task.due_at <= %(now)s
      AND (task.start_before IS NULL OR task.start_before > %(now)s)
      AND instance.state = 'ACCEPTED'
    ORDER BY {in_sql(CLAIMING_ORDER[1:], "task.")}
    LIMIT %(wanted)s OFFSET %(taken)s
"""  # noqa: S608 (the claim order)
# Higher than every priority.
ABOVE = MAX_PRIORITY + 1
_LOWER = f"""
    SELECT priority, due_at <= %(now)s FROM atp_task INDEXED BY atp_task_claim
    WHERE type_id = %(type)s AND daemon_id IS NULL AND collection = %(collection)s
      AND priority < %(priority)s
    ORDER BY {in_sql(CLAIMING_ORDER[:-1])} LIMIT 1
"""  # noqa: S608 (the claim order)


class Lane:
    """The due Tasks of a lane in claim order, priority by priority (G8).

    ``priority`` is the highest priority with a due Task; if it is None, call ``begin()`` first.
    ``select`` executes a statement. Write nothing between two calls of ``take()``.
    """

    def __init__(self, select, type_id, collection, priority, parameters, time):
        self._query = select
        self._type = type_id
        self._collection = collection
        self._priority = priority
        self._parameters = parameters
        self._time, self._now = time, as_text(time)
        # The number of Tasks taken of this priority.
        self._taken = 0

    def begin(self):
        """Find the highest priority with a due Task; returns whether there is one."""
        self._priority = ABOVE
        self._descend()
        return self._priority is not None

    def take(self, wanted):
        """Return up to ``wanted`` further Tasks, as the :class:`Claimed` of the current claim."""
        rows = []
        while len(rows) < wanted and self._priority is not None:
            left = wanted - len(rows)
            found = self._select(_WAITING, wanted=left, taken=self._taken)
            self._taken += len(found)
            rows += found
            if len(found) < left:
                self._descend()
        return [
            Claimed(*row, self._parameters, self._time, False, self._since(due))
            for *row, due in rows
        ]

    def _since(self, due):
        return (self._time - due.replace(tzinfo=UTC)).total_seconds()

    def _descend(self):
        """Go on with the next lower priority that has a due Task."""
        self._taken, is_due = 0, False
        while self._priority is not None and not is_due:
            lower = self._select(_LOWER)
            self._priority, is_due = lower[0] if lower else (None, False)

    def _select(self, statement, **parameters):
        parameters |= {"type": self._type, "collection": self._collection}
        parameters |= {"priority": self._priority, "now": self._now}
        return self._query(statement, **parameters)
