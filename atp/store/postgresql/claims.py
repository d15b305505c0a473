"""Claiming on PostgreSQL: one statement."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from ...codec import Payload
from ...exceptions import LeaseLost
from ..orm.claims import Claims as ORMClaims
from ..values import Claimed
from .statements import statement


class Claims(ORMClaims):
    def claim(self, daemon, types, limit):
        types = list(types)
        self._turn = (self._turn + 1) % (len(types) or 1)
        parameters = {
            "daemon": str(daemon),
            "types": types[self._turn :] + types[: self._turn],
            "limit": limit,
        }
        with self.connection.cursor() as cursor:
            cursor.execute(statement("claim"), parameters)
            rows = cursor.fetchall()
        if not rows:
            raise LeaseLost("The daemon's row is gone, or its lease has run out.")
        epoch, name, late, *_ = rows[0]
        if late:
            self.miss(who=name)
        time = datetime.fromtimestamp(epoch, UTC)
        return [_claimed(row, time) for row in rows if row[3] is not None]


def _claimed(row, time):
    # fmt: off
    (
        _, _, _, instance, uuid, _, attempt, format, data,
        identifier, collection, priority, retries, restarts, lost,
        type, timeout, max_retries, backoff, backoff_max, max_restarts,
    ) = row
    # fmt: on
    return Claimed(
        instance=instance,
        uuid=UUID(uuid),
        type=type,
        attempt=attempt,
        inputs=Payload(format, data),
        identifier=identifier,
        collection=collection,
        priority=priority,
        timeout=None if timeout is None else timedelta(seconds=timeout),
        max_retries=max_retries,
        retries=retries,
        backoff=timedelta(seconds=backoff),
        backoff_max=timedelta(seconds=backoff_max),
        max_restarts=max_restarts,
        restarts=restarts,
        lost=lost,
        time=time,
    )
