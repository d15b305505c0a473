"""Claiming on PostgreSQL: one statement."""

import json
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter

from ...exceptions import LeaseLost
from ..orm.claims import Claims as ORMClaims
from ..rotation import enough_lanes, most_steps
from ..values import Claimed
from .arrays import array
from .cursors import cursor_of
from .parameters import parameters_of
from .statements import FEW, execute

# The columns of a row: whose turn it came in, when it was due, its Type; and what is of the
# claimed Task.
_PLACE, _DUE, _TYPE, _INSTANCE = range(4)
_OWN = slice(_INSTANCE, 14)
_COLLECTION = _INSTANCE + Claimed._fields.index("collection")
_PRIORITY = _INSTANCE + Claimed._fields.index("priority")
# In the row of the claim itself: where others have their inputs.
_SAID = _INSTANCE + Claimed._fields.index("data")
# Behind what is claimed by claim_first.sql: when it was, and the Type's parameters.
_AT, _PARAMETERS = 14, 15
# To find what is due took so long, in seconds, that much was stepped over that is gone. For
# so many times as long, and no longer than that, the next claims begin where this one
# ended.
SLOW, TIMES, AGAIN = 0.005, 20, 1.0
# Who has looked at so many lanes and priorities for so long does so too, and does not look
# between those that are known.
MANY, SLOW_OF_MANY = 100, 0.001
# It is no help where a look at so many lanes has taken no longer for each, in seconds.
EACH = 20e-6
# Where of more than so many Types more waits than a claim takes, the next claims look at so
# many of them, those whose turn it is; and at all again after so long, in seconds.
PART, ALL_AGAIN = 24, 0.1
# What a time may lose on its way here and back, in seconds.
_ROUNDING = 2e-6


@dataclass(kw_only=True)
class Look:
    """What a claim has found, and what it says of itself; ``rows`` are in claiming order."""

    now: float
    rows: list
    name: str
    late: bool | None
    # Parameters by the key of their Type, as text.
    types: dict
    # How long it took to find what is due, in seconds; None if nothing is.
    looked: float | None
    steps: int
    cut: list | None
    limited: list | None
    # How many were locked and not claimed, as they had just been handed back.
    missed: int

    @classmethod
    def of(cls, rows):
        said, *rows = rows
        rows.sort(key=_order)
        return cls(now=said[_DUE], rows=rows, **json.loads(said[_SAID]))

    def followed_by(self, later):
        """Return what is true after another look: what both have found, and what that one says."""
        return replace(later, rows=self.rows + later.rows, types=self.types | later.types)


_lane = itemgetter(_TYPE, _COLLECTION)


def _order(row):
    """By the lane's place, then as they are claimed in a lane."""
    return row[_PLACE], -row[_PRIORITY], row[_DUE], row[_INSTANCE]


class Claims(ORMClaims):
    # Where it ended, by Type and collection: priority and due time.
    _ends = {}
    _from_the_end_until = 0.0
    _looks_between = True
    # The Types that the last look at all has taken from, if more waited than it took, and
    # until when that is relied on.
    _plenty = frozenset()
    _plenty_until = 0.0

    def _claim_unlimited(self, daemon, types, limit):
        types = self.rotation.order(types)
        ends = self._ends if time.monotonic() < self._from_the_end_until else {}
        if limit == 1 and not ends:
            claimed = self._first(daemon, types)
            if claimed:
                return claimed
        part = self._part_of(types)
        look = self._look(daemon, part or types, limit, ends)
        if part and len(look.rows) < limit:
            part = None
            look = look.followed_by(self._look(daemon, types, limit - len(look.rows), ends))
        if ends and len(look.rows) < limit:
            # What is missing may lie before.
            ends = {}
            look = look.followed_by(self._look(daemon, types, limit - len(look.rows), ends))
        self._limited = look.limited or []
        if look.late:
            self.miss(who=look.name)
        cut = look.cut or []
        if not ends and not cut and not part:
            self._ends = {}
        claimed = self._claimed(look.rows, look.now, look.types)
        if not part:
            self._plenty_until = time.monotonic() + ALL_AGAIN
            has_more = len(claimed) >= limit
            self._plenty = frozenset(task.type for task in claimed) if has_more else frozenset()
        if not ends and not part:
            self._look_again(look)
        self.rotation.skip(cut)
        return claimed

    def _part_of(self, types):
        """Return those to look at, in their order; None if it is time to look at all."""
        if len(self._plenty) <= PART or time.monotonic() >= self._plenty_until:
            return None
        return [type for type in types if type in self._plenty][:PART]

    def _first(self, daemon, types):
        """Claim one if that is simple; else it is to be looked for."""
        afters = [self.rotation.after(type) for type in types]
        with cursor_of(self.connection) as cursor:
            parameters = {"daemon": str(daemon), "types": types, "afters": afters}
            execute(cursor, "claim_first", parameters)
            row = cursor.fetchone()
        return self._claimed([row], row[_AT], {row[_TYPE]: row[_PARAMETERS]}) if row else []

    def _take_limited(self, daemon, type, rooms, wanted):
        caps = {lane: rooms.lanes[lane] for lane in self.rotation.turned(rooms.open_lanes)}
        look = self._look(daemon, [type], wanted, walks=rooms.whole, caps=caps)
        claimed = self._claimed(look.rows, look.now, look.types, apart=True)
        self.rotation.skip(look.cut or [], apart=True)
        return claimed

    def _look_again(self, look):
        """Decide where the claims of the next moment begin: a look at everything was slow.

        Or there was too much to look at all.
        """
        looked, is_long = look.looked or 0.0, look.steps >= MANY
        each = looked / max(1, len(self._ends))
        is_slow = looked > (SLOW_OF_MANY if is_long else SLOW)
        if look.cut and self._ends:
            self._from_the_end_until = time.monotonic() + AGAIN
            self._looks_between = False
        elif is_slow and each > EACH and len(look.rows) > FEW:
            self._from_the_end_until = time.monotonic() + min(AGAIN, TIMES * looked)
            self._looks_between = not is_long
        else:
            self._from_the_end_until = 0.0

    def _claimed(self, rows, now, types, *, apart=False):
        """Return what was claimed, of these rows, and remember it."""
        now = datetime.fromtimestamp(now, UTC)
        read = {int(key): parameters_of(text) for key, text in types.items()}
        lanes, ends = {}, {}
        for (key, collection), together in groupby(rows, _lane):
            parameters, _ = read[key]
            own = list(together)
            tasks = [Claimed(*row[_OWN], parameters, now) for row in own]
            lane = parameters.type, collection
            lanes.setdefault(lane, []).extend(tasks)
            ends[lane] = own[-1][_PRIORITY], own[-1][_DUE] - _ROUNDING
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

    def _look(self, daemon, types, limit, ends=None, *, walks=None, caps=None):
        """Claim what there is: see :class:`Look`.

        ``ends`` are where known lanes ended, ``caps`` their limits. Raises LeaseLost.
        """
        rows = self._rows(daemon, types, limit, ends, walks, caps)
        if not rows:
            raise LeaseLost("The daemon's row is gone, or its lease has run out.")
        look = Look.of(rows)
        if look.missed and caps is None:
            # Of a lane with a limit it might be too many: what was missed there waits.
            look = look.followed_by(self._look(daemon, types, look.missed, ends, walks=walks))
            look.rows.sort(key=_order)
        return look

    def _rows(self, daemon, types, limit, ends, walks, caps):
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
