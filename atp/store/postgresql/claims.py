"""Claiming on PostgreSQL: one statement."""

import json
import time
from datetime import UTC, datetime

from ...exceptions import LeaseLost
from ..orm.claims import Claims as ORMClaims
from ..rotation import enough_lanes, most_steps
from ..values import Claimed
from .arrays import array
from .cursors import cursor_of
from .parameters import parameters_of
from .statements import FEW, execute

# The columns of a claimed Task in a row; those before are of the claim, those behind too.
_OWN = slice(3, 14)
_PARAMETERS, _DUE, _LOOKED, _STEPS, _CUT, _LIMITED = range(14, 20)
# To find what is due took so long, in seconds, that much was stepped over that is gone. For
# so many times as long, and no longer than that, the next claims begin where this one
# ended.
SLOW, TIMES, AGAIN = 0.005, 20, 1.0
# Who has looked at so many lanes and priorities for so long does so too, and does not look
# between those that are known.
MANY, SLOW_OF_MANY = 100, 0.001
# It is no help where a look at so many lanes has taken no longer for each, in seconds.
EACH = 20e-6
# What a time may lose on its way here and back, in seconds.
_ROUNDING = 2e-6


class Claims(ORMClaims):
    # Where it ended, by Type and collection: priority and due time.
    _ends = {}
    _from_the_end_until = 0.0
    _looks_between = True

    def _claim_unlimited(self, daemon, types, limit):
        types = self.rotation.order(types)
        ends = self._ends if time.monotonic() < self._from_the_end_until else {}
        if limit == 1 and not ends:
            claimed = self._first(daemon, types)
            if claimed:
                return claimed
        rows = self._rows(daemon, types, limit, ends)
        found = sum(row[3] is not None for row in rows)
        if ends and found < limit:
            # What is missing may lie before.
            ends = {}
            more = self._rows(daemon, types, limit - found, ends)
            rows = [row for row in (*rows, *more) if row[3] is not None] or more
        if not rows:
            raise LeaseLost("The daemon's row is gone, or its lease has run out.")
        _, name, late, instance, *_ = rows[0]
        self._limited = json.loads(rows[0][_LIMITED] or "[]")
        if late:
            self.miss(who=name)
        cut = json.loads(rows[0][_CUT] or "[]")
        if not ends and not cut:
            self._ends = {}
        claimed = [] if instance is None else self._claimed(rows)
        if not ends:
            self._look_again(rows, is_cut=bool(cut))
        self.rotation.skip(cut)
        return claimed

    def _first(self, daemon, types):
        """Claim one if that is simple; else it is to be looked for."""
        afters = [self.rotation.after(type) for type in types]
        with cursor_of(self.connection) as cursor:
            parameters = {"daemon": str(daemon), "types": types, "afters": afters}
            execute(cursor, "claim_first", parameters)
            rows = cursor.fetchall()
        return self._claimed(rows) if rows else []

    def _take_limited(self, daemon, type, rooms, wanted):
        caps = {lane: rooms.lanes[lane] for lane in self.rotation.turned(rooms.open_lanes)}
        rows = self._rows(daemon, [type], wanted, walks=rooms.whole, caps=caps)
        if not rows:
            raise LeaseLost("The daemon's row is gone, or its lease has run out.")
        claimed = [] if rows[0][3] is None else self._claimed(rows, apart=True)
        self.rotation.skip(json.loads(rows[0][_CUT] or "[]"), apart=True)
        return claimed

    def _look_again(self, rows, *, is_cut):
        """Decide where the claims of the next moment begin: a look at everything was slow.

        Or there was too much to look at all.
        """
        looked, is_long = rows[0][_LOOKED] or 0.0, rows[0][_STEPS] >= MANY
        each = looked / max(1, len(self._ends))
        if is_cut and self._ends:
            self._from_the_end_until = time.monotonic() + AGAIN
            self._looks_between = False
        elif looked > (SLOW_OF_MANY if is_long else SLOW) and each > EACH and len(rows) > FEW:
            self._from_the_end_until = time.monotonic() + min(AGAIN, TIMES * looked)
            self._looks_between = not is_long
        else:
            self._from_the_end_until = 0.0

    def _claimed(self, rows, *, apart=False):
        now = datetime.fromtimestamp(rows[0][0], UTC)
        read = {text: parameters_of(text) for text in {row[_PARAMETERS] for row in rows}}
        lanes, ends = {}, {}
        for row in rows:
            task = Claimed(*row[_OWN], read[row[_PARAMETERS]][0], now)
            lane = task.type, task.collection
            lanes.setdefault(lane, []).append(task)
            ends[lane] = task.priority, row[_DUE] - _ROUNDING
        if not apart:
            for lane in ends:
                # Where a claim has just ended comes last.
                self._ends.pop(lane, None)
            self._ends |= ends
        self.rotation.took(
            {lane: len(tasks) for lane, tasks in lanes.items()},
            {parameters.type: weight for parameters, weight in read.values()},
            apart=apart,
        )
        return self.rotation.dealt(lanes)

    def _rows(self, daemon, types, limit, ends=None, *, walks=None, caps=None):
        """Execute the statement. ``ends`` are where known lanes ended, ``caps`` their limits."""
        known = {}
        if ends:
            known = {(type, ""): (None, None) for type in types} | ends
        elif caps:
            known = dict.fromkeys(caps, (None, None))
        parameters = {
            "daemon": str(daemon),
            "types": types,
            "afters": [self.rotation.after(type, apart=caps is not None) for type in types],
            "walks": not ends if walks is None else walks,
            "lane_types": [type for type, _ in known],
            "lanes": [collection for _, collection in known],
            "floors": array([priority for priority, _ in known.values()]),
            "dues": array([due for _, due in known.values()]),
            "caps": array([(caps or {}).get(lane) for lane in known]),
            "gaps": bool(ends) and self._looks_between,
            "limited": caps is not None,
            "limit": limit,
            "most": most_steps(len(types)),
            "enough": enough_lanes(limit, len(types)),
        }
        with cursor_of(self.connection) as cursor:
            # The plan does for any number of rows: all of it are walks along indexes.
            execute(cursor, "claim", parameters)
            return cursor.fetchall()
