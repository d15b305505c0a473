"""A daemon's regular questions, in one statement each."""

import json
from datetime import UTC, datetime

from ...exceptions import LeaseLost
from ...modes import Mode
from ..orm.daemons import Daemons as ORMDaemons
from ..rotation import most_steps
from ..values import Outlook, Renewal
from .arrays import array, texts
from .cursors import cursor_of
from .statements import execute


class Daemons(ORMDaemons):
    def renew(self, daemon, *, lease, workers=(), idle=False, mode=Mode.RUNNING, channel=""):
        with cursor_of(self.connection) as cursor:
            execute(
                cursor,
                "renew",
                {
                    "daemon": str(daemon),
                    "lease": lease,
                    "workers": json.dumps(list(workers)),
                    "idle": idle,
                    "channel": channel,
                    "mode": str(mode),
                },
            )
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
            due, late, lost, request, limited, opens, drops, is_cut = cursor.fetchone()
        limited = [
            ((type, collection), due) for type, collection, due in json.loads(limited or "[]")
        ]
        return Outlook(
            due=0.0 if is_cut else self._due_in(due, limited, opens),
            late=late,
            lost=lost,
            request=request,
            drops=drops and self._drops(),
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
            # Pages ask this too, seldom.
            execute(cursor, "due_lanes", parameters, prepared=False)
            return cursor.fetchall()
