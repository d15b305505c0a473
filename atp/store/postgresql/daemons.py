"""A daemon's regular queries, one statement each."""

import json
from dataclasses import replace
from datetime import UTC, datetime

from django.db import DatabaseError

from ...commands import Mode
from ...exceptions import LeaseLost
from ..common.daemons import Daemons as ORMDaemons
from ..facts import NO_MISFITS, Outlook, Renewal
from ..rotation import most_steps
from .driver.arrays import array, texts
from .driver.cursors import cursor_of
from .driver.statements import execute


class Daemons(ORMDaemons):
    def renew(
        self,
        daemon,
        *,
        lease,
        workers=(),
        idle=False,
        mode=Mode.RUNNING,
        channel="",
        misfits=NO_MISFITS,
    ):
        own = {"daemon": str(daemon), "lease": lease}
        said = {"workers": json.dumps(list(workers)), "idle": idle, "channel": channel}
        said["misfits"] = json.dumps(dict(misfits))
        try:
            return self._renewed("renew", own | said | {"mode": str(mode)})
        except DatabaseError as error:
            if not self.is_lock(error):
                raise
        renewal = self._renewed("renew_spare", own)
        return replace(renewal, is_spare=True)

    def _renewed(self, statement, parameters):
        with cursor_of(self.connection) as cursor:
            execute(cursor, statement, parameters)
            renewed = cursor.fetchone()
        if renewed is None:
            raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
        epoch, request = renewed
        return Renewal(time=datetime.fromtimestamp(epoch, UTC), request=request)

    def outlook(self, types, *, daemon=None):
        with cursor_of(self.connection) as cursor:
            who = None if daemon is None else str(daemon)
            parameters = {"types": list(types), "daemon": who, "most": most_steps(len(types))}
            execute(cursor, "outlook", parameters)
            found = cursor.fetchone()
        due, late, lost, request, limited, opens, drops, is_cut, planned, graphs = found
        limited = [
            ((type, collection), due) for type, collection, due in json.loads(limited or "[]")
        ]
        return Outlook(
            due=0.0 if is_cut else self._due_in(due, limited, opens),
            late=late,
            lost=lost,
            request=request,
            drops=drops and self._drops(),
            planned=planned,
            graphs=graphs,
        )

    def due_lanes(self, types, closed, time, limit):
        parameters = {
            "types": array(types),
            "closed_types": array([type for type, _ in closed.lanes]),
            "closed": texts([collection for _, collection in closed.lanes]),
            "time": time,
            "limit": limit,
            "most": most_steps(len(types)),
        }
        with cursor_of(self.connection) as cursor:
            # Pages ask this too, but rarely.
            execute(cursor, "due_lanes", parameters, prepared=False)
            return cursor.fetchall()
