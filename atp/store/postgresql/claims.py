"""Claiming on PostgreSQL: one statement does it all."""

from datetime import UTC, datetime
from itertools import groupby

from django.db import DatabaseError

from ...exceptions import LeaseLost
from ..common.claims import Claims as ORMClaims
from ..common.control.lanes import MORE
from ..rotation import STEPS, enough_lanes, most_steps
from ..values import Claimed
from .driver.arrays import array
from .driver.cursors import cursor_of
from .driver.statements import execute
from .look import AT, DUE, PARAMETERS, PRIORITY, TASK, TYPE, Look, lane_of
from .parameters import parameters_of
from .shortcuts import Ends, Part

# In seconds: a time may lose this much on its way to the server and back.
_ROUNDING = 2e-6
# The claim statement in two forms: waiting for no lock, and the usual one.
_CAREFUL, _PLAIN = frozenset({("careful", True)}), frozenset({("careful", None)})


class Claims(ORMClaims):
    def _claim_unlimited(self, by, types, limit):
        memory = by.memory
        shortcut, known_part = memory.shortcut(Ends), memory.shortcut(Part)
        types = memory.rotation.order(types)
        ends = shortcut.lanes
        if limit == 1 and not ends and not by.careful:
            claimed = self._first(by, types)
            if claimed:
                return claimed
        part = known_part.of(types)
        look = self._look(by, part or types, limit, ends)
        if part and len(look.rows) < limit:
            part = None
            look = self._followed(look, by, types, limit - len(look.rows), ends)
        if ends and len(look.rows) < limit:
            # The missing Tasks may lie before the ends where the look began.
            ends = {}
            look = self._followed(look, by, types, limit - len(look.rows), ends)
        memory.limited = look.limited or []
        if look.late:
            self._miss(look)
        cut = look.cut or []
        if not ends and not cut and not part:
            shortcut.forget()
        claimed = self._claimed(by, look.rows, look.now, look.types)
        if not part:
            known_part.looked(claimed, limit)
        if not ends and not part:
            shortcut.looked(look)
        memory.rotation.skip(shortcut.cut if ends else cut or look.barren or [])
        return claimed

    def _followed(self, look, *args, **kwargs):
        """Return this look and another one after it; a lock that stops the other is ignored."""
        try:
            return look.followed_by(self._look(*args, **kwargs))
        except DatabaseError as error:
            if not look.rows or not self.is_lock(error):
                raise
            return look

    def _miss(self, look):
        try:
            self.miss(who=look.name)
        except DatabaseError as error:
            if not look.rows or not self.is_lock(error):
                raise

    def _first(self, by, types):
        """Claim one Task by a simple look; return [] if a full look is needed."""
        afters = [by.memory.rotation.after(type) for type in types]
        with cursor_of(self.connection) as cursor:
            parameters = {"daemon": str(by.daemon), "types": types, "afters": afters}
            execute(cursor, "claim_first", parameters)
            row = cursor.fetchone()
        return self._claimed(by, [row], row[AT], {row[TYPE]: row[PARAMETERS]}) if row else []

    def _take_limited(self, by, type, rooms, wanted):
        rotation = by.memory.rotation
        caps = {lane: rooms.lanes[lane] for lane in rotation.turned(rooms.open_lanes)}
        look = self._look(by, [type], wanted, walks=rooms.whole, caps=caps)
        claimed = self._claimed(by, look.rows, look.now, look.types, apart=True)
        rotation.skip(look.cut or [], apart=True)
        return claimed

    def _claimed(self, by, rows, now, types, *, apart=False):
        """Return the Tasks claimed in these rows, and remember the claim."""
        at, now = now, datetime.fromtimestamp(now, UTC)
        read = {int(key): parameters_of(text) for key, text in types.items()}
        lanes, ends = {}, {}
        for (key, collection), together in groupby(rows, lane_of):
            parameters, _ = read[key]
            own = list(together)
            tasks = [Claimed(*row[TASK], parameters, now, False, at - row[DUE]) for row in own]
            lane = parameters.type, collection
            lanes.setdefault(lane, []).extend(tasks)
            ends[lane] = own[-1][PRIORITY], own[-1][DUE] - _ROUNDING
        if not apart:
            by.memory.shortcut(Ends).claimed(ends)
        rotation = by.memory.rotation
        rotation.took(
            {lane: len(tasks) for lane, tasks in lanes.items()},
            {parameters.type: weight for parameters, weight in read.values()},
            apart=apart,
        )
        return rotation.dealt(lanes)

    def _look(self, by, types, limit, ends=None, *, walks=None, caps=None, finds=None):
        """Claim up to ``limit`` Tasks; returns a :class:`Look`. Raises LeaseLost.

        ``ends`` are the positions where claims of known lanes ended. ``caps`` are the lanes'
        limits. The walk ends with so many ``finds``.
        """
        finds = finds or limit
        rows = self._rows(by, types, limit, ends, walks, caps, finds)
        if not rows:
            raise LeaseLost("The daemon's row is gone, or its lease has run out.")
        look = Look.of(rows)
        if look.missed and caps is None:
            # Not in a limited lane, where one more look might exceed the limit: those Tasks wait.
            look = self._followed(look, by, types, look.missed, ends, walks=walks)
            look.sort()
        lacking = limit - len(look.rows)
        if lacking > 0 and look.has_enough and finds < STEPS and (caps is None or not look.rows):
            # Others have locked what was found: look behind that.
            more = {"walks": walks, "caps": caps, "finds": MORE * finds}
            look = self._followed(look, by, types, lacking, ends, **more)
        return look

    def _rows(self, by, types, limit, ends, walks, caps, finds):
        rotation, looks_between = by.memory.rotation, by.memory.shortcut(Ends).looks_between
        known = {}
        if ends:
            known = {(type, ""): (None, None) for type in types} | ends
        elif caps:
            known = dict.fromkeys(caps, (None, None))
        parameters = {
            "daemon": str(by.daemon),
            "types": types,
            "afters": [rotation.after(type, apart=caps is not None) for type in types],
            "walks": not ends if walks is None else walks,
            "lane_types": [type for type, _ in known],
            "lanes": [collection for _, collection in known],
            "floors": array([priority for priority, _ in known.values()]),
            "dues": array([due for _, due in known.values()]),
            "caps": array([(caps or {}).get(lane) for lane in known]),
            "gaps": bool(ends) and looks_between,
            "limited": caps is not None,
            "limit": limit,
            "finds": finds,
            "most": most_steps(len(types)),
            "enough": enough_lanes(finds, len(types)),
        }
        with cursor_of(self.connection) as cursor:
            # One plan serves any number of rows, since all parts of it walk along indexes.
            execute(cursor, "claim", parameters, fixed=_CAREFUL if by.careful else _PLAIN)
            return cursor.fetchall()
