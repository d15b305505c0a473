"""The situation of a claim: all facts but the waiting Tasks, read by one statement."""

from typing import NamedTuple

from ....exceptions import LeaseLost
from ...common.control.gates import Closed
from ..base import SQLiteBase, as_json, as_text

_VERSION = "SELECT data_version FROM pragma_data_version"
# The index is named: with statistics from a time when the queue was empty, or full, the planner
# would choose another.
_IS_LATE = """
    SELECT 1 FROM atp_task INDEXED BY atp_task_missed
    WHERE daemon_id IS NULL AND start_before IS NOT NULL AND start_before <= %(now)s
    LIMIT 1
"""
# The columns of a Type: first its key, then its parameters.
_SITUATION = """
    SELECT 'version', data_version, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM pragma_data_version
  UNION ALL
    SELECT 'daemon', id, host || ':' || pid, CASE WHEN lock = '' THEN lease_until END,
        NULL, NULL, NULL, NULL, NULL
    FROM atp_daemon WHERE uuid = %(daemon)s
  UNION ALL
    SELECT * FROM (
        SELECT 'late', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
        FROM atp_task INDEXED BY atp_task_missed
        WHERE daemon_id IS NULL AND start_before IS NOT NULL AND start_before <= %(now)s
        LIMIT 1
    )
  UNION ALL
    SELECT 'gate', type_id, collection, NULL, NULL, NULL, NULL, NULL, NULL FROM atp_gate
    WHERE until IS NULL OR until > %(now)s
  UNION ALL
    SELECT
        CASE WHEN max_running IS NULL AND per_second IS NULL
            AND max_running_per_collection IS NULL THEN 'weight' ELSE 'limit' END,
        type_id, collection, weight, NULL, NULL, NULL, NULL, NULL
    FROM atp_limit
  UNION ALL
    SELECT 'limit', atp_type.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM json_each(%(types)s) CROSS JOIN atp_type ON identifier = value
    CROSS JOIN atp_downstream ON name = atp_type.downstream
    WHERE atp_type.downstream <> '' AND state <> 'closed'
  UNION ALL
    SELECT 'type', identifier, atp_type.id, timeout, max_retries, backoff, backoff_max,
        max_restarts, max_memory
    FROM json_each(%(types)s) CROSS JOIN atp_type ON identifier = value
"""


class Situation(NamedTuple):
    """The facts that a claim depends on, apart from the waiting Tasks.

    ``served`` are the columns of the Types by identifier, ``weights`` are by the Types' keys.
    ``holder`` is the key and the name of the daemon, and the end of its lease: None if a file lock
    is its lease. ``holder`` is None if the daemon has no row. ``version`` changes whenever another
    connection writes.
    """

    version: int
    holder: tuple | None
    is_late: bool
    gates: Closed
    limits: Closed
    weights: dict
    served: dict

    def leased(self, now):
        """Return the key and the name of the daemon. Raises LeaseLost if its lease is over."""
        if self.holder is None:
            raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
        key, name, until = self.holder
        if until is not None and until <= as_text(now):
            raise LeaseLost("The daemon's lease has run out.")
        return key, name

    def not_claimed(self):
        """Return the lanes that are shut or limited, as :class:`Closed`."""
        return Closed(self.gates.pairs | self.limits.pairs)


class Asking(SQLiteBase):
    def _situation(self, types, now, *, daemon=None):
        """Read gates and limits of these Types, and whether the daemon may claim."""
        rows = {"version": [], "daemon": [], "late": [], "gate": [], "limit": [], "weight": []}
        found = rows["type"] = []
        own = None if daemon is None else daemon.hex
        for kind, *row in self.select(
            _SITUATION, now=as_text(now), types=as_json(types), daemon=own
        ):
            rows[kind].append(row)
        columns = {identifier: own for identifier, *own in found}
        lanes = rows["limit"] + rows["weight"]
        return Situation(
            version=rows["version"][0][0],
            holder=next((tuple(row[:3]) for row in rows["daemon"]), None),
            is_late=bool(rows["late"]),
            gates=_closed(rows["gate"]),
            limits=_closed(rows["limit"]),
            weights={row[0]: row[2] for row in lanes if row[1] is None and row[2] is not None},
            served={type: columns[type] for type in types if type in columns},
        )

    def _stands(self, situation):
        """Return whether no other connection has written since the situation was read."""
        return self.select(_VERSION) == [(situation.version,)]

    def _is_late(self, now):
        """Return whether a waiting Task has missed its ``start_before``."""
        return bool(self.select(_IS_LATE, now=as_text(now)))


def _closed(rows):
    return Closed(frozenset(tuple(row[:2]) for row in rows))
