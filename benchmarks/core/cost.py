"""What work costs a PostgreSQL: rows, statements and bytes of its log (WAL)."""

import time
from contextlib import contextmanager
from dataclasses import dataclass

from .statements import counted

# A session that has ended has told its statistics by then, in seconds.
SETTLED_AFTER = 1
_TOTALS = """
SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn,
    sum(n_tup_ins), sum(n_tup_upd), sum(n_tup_del)
FROM pg_stat_user_tables WHERE relname LIKE 'atp\\_%'
"""


@dataclass(kw_only=True)
class Cost:
    """What was spent; ``statements`` is None where they cannot be counted."""

    inserted: float = 0
    updated: float = 0
    deleted: float = 0
    wal: float = 0
    statements: float | None = None

    def tell(self, report, figure, tasks):
        """Keep and print it for one of so many tasks."""
        for name, value in (
            ("rows inserted", self.inserted),
            ("rows updated", self.updated),
            ("rows deleted", self.deleted),
            ("bytes of WAL", self.wal),
            ("statements", self.statements),
        ):
            if value is not None:
                report.row(figure, [value / tasks], unit=f"{name} a task")


@contextmanager
def spent(connection, *, own):
    """Count what is spent in the block; give the :class:`Cost`, which is known at its end.

    The statements are those of this process if ``own``, else those of others. What
    others do counts if they end in the block.
    """
    cost = Cost()
    with counted(connection) as statements:
        connection.close()
        pid = _asked(connection, "SELECT pg_backend_pid()")[0]
        before = _totals(connection)
        if statements:
            statements.forget()
        yield cost
        if statements:
            sent = statements.by_pid()
            cost.statements = sent[pid] if own else sent.total() - sent[pid]
        time.sleep(SETTLED_AFTER)
        differences = [float(b - a) for a, b in zip(before, _totals(connection), strict=True)]
        cost.wal, cost.inserted, cost.updated, cost.deleted = differences
    connection.close()


def _totals(connection):
    _asked(connection, "SELECT pg_stat_force_next_flush()")
    _asked(connection, "SELECT pg_stat_clear_snapshot()")
    return _asked(connection, _TOTALS)


def _asked(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()
