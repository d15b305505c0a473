"""Claiming on PostgreSQL: one statement."""

import json
from datetime import UTC, datetime, timedelta

from ...exceptions import LeaseLost
from ..orm.claims import Claims as ORMClaims
from ..values import Claimed, Parameters
from .statements import FEW, execute

# Where the columns of a claimed Task begin in a row; those before are of the claim.
_OWN = 3


class Claims(ORMClaims):
    # How much the last claim found: there will be as much again.
    _found = 0

    def claim(self, daemon, types, limit):
        types = list(types)
        self._turn = (self._turn + 1) % (len(types) or 1)
        parameters = {
            "daemon": str(daemon),
            "types": types[self._turn :] + types[: self._turn],
            "limit": limit,
        }
        with self.connection.cursor() as cursor:
            execute(cursor, "claim", parameters, prepared=self._found <= FEW)
            rows = cursor.fetchall()
        self._found = len(rows)
        if not rows:
            raise LeaseLost("The daemon's row is gone, or its lease has run out.")
        epoch, name, late, instance, *_ = rows[0]
        if late:
            self.miss(who=name)
        if instance is None:
            return []
        time = datetime.fromtimestamp(epoch, UTC)
        read = {text: _parameters(text) for text in {row[-1] for row in rows}}
        return [Claimed(*row[_OWN:-1], read[row[-1]], time) for row in rows]


def _parameters(text):
    type, timeout, max_retries, backoff, backoff_max, max_restarts = json.loads(text)
    return Parameters(
        type=type,
        timeout=None if timeout is None else timedelta(seconds=timeout),
        max_retries=max_retries,
        backoff=timedelta(seconds=backoff),
        backoff_max=timedelta(seconds=backoff_max),
        max_restarts=max_restarts,
    )
