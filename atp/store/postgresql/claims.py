"""Claiming on PostgreSQL: one statement."""

import json
import time
from datetime import UTC, datetime, timedelta

from ...exceptions import LeaseLost
from ..orm.claims import Claims as ORMClaims
from ..values import Claimed, Parameters
from .arrays import array
from .statements import FEW, execute

# The columns of a claimed Task in a row; those before are of the claim.
_OWN = slice(3, 14)
_PARAMETERS, _DUE = 14, 15
# A look from the beginning that took longer, in seconds, had to step over much that
# is gone; for this time those that follow begin where it ended.
SLOW, AGAIN = 0.03, 1.0
# What a time may lose on its way here and back, in seconds.
_ROUNDING = 2e-6


class Claims(ORMClaims):
    # How much the last claim found: there will be as much again.
    _found = 0
    # Where it ended, by Type: priority and due time.
    _ends = {}
    _from_the_end_until = 0.0

    def claim(self, daemon, types, limit):
        types = list(types)
        self._turn = (self._turn + 1) % (len(types) or 1)
        types = types[self._turn :] + types[: self._turn]
        began = time.monotonic()
        ends = self._ends if began < self._from_the_end_until else {}
        rows = self._rows(daemon, types, limit, ends)
        found = sum(row[3] is not None for row in rows)
        if ends and found < limit:
            # What is missing may lie before.
            ends = {}
            more = self._rows(daemon, types, limit - found, ends)
            rows = [row for row in (*rows, *more) if row[3] is not None] or more
        if not rows:
            raise LeaseLost("The daemon's row is gone, or its lease has run out.")
        if not ends:
            is_slow = time.monotonic() - began > SLOW and len(rows) > FEW
            self._from_the_end_until = time.monotonic() + AGAIN if is_slow else 0.0
        epoch, name, late, instance, *_ = rows[0]
        if late:
            self.miss(who=name)
        if instance is None:
            return []
        now = datetime.fromtimestamp(epoch, UTC)
        read = {text: _parameters(text) for text in {row[_PARAMETERS] for row in rows}}
        claimed = [Claimed(*row[_OWN], read[row[_PARAMETERS]], now) for row in rows]
        self._ends = {
            task.type: (task.priority, row[_DUE] - _ROUNDING)
            for task, row in zip(claimed, rows, strict=True)
        }
        return claimed

    def _rows(self, daemon, types, limit, ends):
        ended = [ends.get(type, (None, None)) for type in types]
        parameters = {
            "daemon": str(daemon),
            "types": types,
            "floors": array([priority for priority, _ in ended]),
            "dues": array([due for _, due in ended]),
            "limit": limit,
        }
        with self.connection.cursor() as cursor:
            execute(cursor, "claim", parameters, prepared=self._found <= FEW)
            rows = cursor.fetchall()
        self._found = len(rows)
        return rows


def _parameters(text):
    type, timeout, max_retries, backoff, backoff_max, max_restarts, max_memory = json.loads(text)
    return Parameters(
        type=type,
        timeout=None if timeout is None else timedelta(seconds=timeout),
        max_retries=max_retries,
        backoff=timedelta(seconds=backoff),
        backoff_max=timedelta(seconds=backoff_max),
        max_restarts=max_restarts,
        max_memory=max_memory,
    )
