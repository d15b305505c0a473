"""Claiming on SQLite: a look at the queue without the lock, then the same in a transaction."""

import time
from functools import partial

from django.utils.functional import cached_property

from ..orm.claims import Claims as ORMClaims
from ..orm.gates import Closed
from ..rotation import taken
from .base import as_json, as_text
from .known import Known
from .lane import Lane
from .parameters import parameters_of
from .situation import Asking
from .waiting import Waiting

_HOLD = """
    UPDATE atp_task SET daemon_id = %(daemon)s, attempt = attempt + 1, request = ''
    WHERE instance_id IN (SELECT value FROM json_each(%(keys)s))
"""
_MOVE = """
    UPDATE atp_instance SET state = 'SCHEDULED', attempt = attempt + 1
    WHERE id IN (SELECT value FROM json_each(%(keys)s)) AND state = 'ACCEPTED'
"""
_LOG = """
    INSERT INTO atp_logrecord
        (instance_id, subject, time, event, state, attempt, level, who, message)
    SELECT id, '', %(now)s, 'claim', state, attempt, 20, %(who)s, ''
    FROM atp_instance WHERE id IN (SELECT value FROM json_each(%(keys)s))
"""


class Claims(Asking, Waiting, ORMClaims):
    @cached_property
    def _known(self):
        return Known()

    def _claim_unlimited(self, daemon, types, limit):
        # An idle daemon looks often, and should keep no writer waiting.
        look = self._look(daemon, types, limit) if limit > 0 else None
        if look is None:
            return []
        situation, found, cut = look
        with self.atomic():
            now = self.now()
            if not self._stands(situation):
                situation = self._situation(types, now, daemon=daemon)
            _, name = situation.leased(now)
            if situation.is_late:
                self.miss(who=name)
            pick = partial(self._pick, situation, situation.not_claimed(), now, limit)
            known = self._known.lanes(limit)
            if known:
                claimed = pick(found=[(*lane, None) for lane in known], least=limit)
                if claimed:
                    return claimed
                self._known.forget()
                found = None
            claimed = pick(found=found)
            self.rotation.skip(cut)
            return claimed

    def _take_limited(self, daemon, type, rooms, wanted):
        now = self.now()
        situation = self._situation([type], now, daemon=daemon)
        situation.leased(now)
        key = situation.served[type][0]
        full = {(key, lane[1]) for lane, room in rooms.lanes.items() if not room}
        closed = Closed(situation.gates.pairs | full)
        caps = {lane: rooms.lanes[lane] for lane in self.rotation.turned(rooms.open_lanes)}
        # Of a Type of which only some lanes are limited, the others are not looked at.
        found = None if rooms.whole else [(key, collection, None) for _, collection in caps]
        return self._pick(situation, closed, now, wanted, caps, found)

    def miss(self, *, who="", limit=500):
        # Asked whenever a claim has brought nothing.
        return super().miss(who=who, limit=limit) if self._is_late(self.now()) else 0

    def _look(self, daemon, types, limit):
        """Return the situation, the lanes that have something due, and where it was broken off.

        None if there is nothing to be done.
        """
        now = self.now()
        situation = self._situation(types, now, daemon=daemon)
        situation.leased(now)
        keys = {columns[0]: type for type, columns in situation.served.items()}
        self._limited = {keys[key] for key, _ in situation.limits.pairs if key in keys}
        if self._known.lanes(limit):
            return situation, [], []
        # Without the waits that a busy machine has for everybody.
        began = time.thread_time()
        begins = self._begins(situation.served)
        found, cut = self._ready(begins, as_text(now), situation.not_claimed(), limit)
        if cut:
            # What it has not come to may be due as it was.
            names = {lane[:2] for lane in found}
            found += [(*lane, None) for lane in self._known.last if lane not in names]
        self._known.found(found, limit, time.thread_time() - began)
        cut = [(keys[key], collection) for key, collection in cut]
        if found or situation.is_late:
            return situation, found, cut
        self.rotation.skip(cut)
        return None

    def _begins(self, served, *, apart=False):
        """The keys of the Types in their order, each with the collection to begin behind."""
        order = self.rotation.order(served)
        return [(served[type][0], self.rotation.after(type, apart=apart)) for type in order]

    def _pick(self, situation, closed, now, limit, caps=None, found=None, least=1):
        """Claim an even share of each lane first, then whatever fits; no more than its cap.

        From the lanes that were ``found``, or else those that are; nothing if that is less
        than ``least``.
        """
        apart, caps, served = caps is not None, caps or {}, situation.served
        cut = []

        def ready(most):
            begins = self._begins(served, apart=apart)
            found, cut[:] = self._ready(begins, as_text(now), closed, most)
            return found

        names = {columns[0]: type for type, columns in served.items()}
        weights = {t: situation.weights.get(columns[0], 1.0) for t, columns in served.items()}

        def take(found):
            lanes = self._lanes(found, closed, served, names, now)
            claimed = taken(limit, weights, lanes, caps, lambda name, n: lanes[name].take(n))
            return {name: tasks for name, tasks in claimed.items() if tasks}

        if found is None:
            found = ready(limit)
        claimed = take(found)
        if not claimed and least == 1 and len(found) == limit:
            # What does not fit its Instance must not hide other lanes until a scan mends it.
            claimed = take(ready(-1))
        if sum(map(len, claimed.values())) < least:
            claimed = {}
        if claimed:
            keys = [each.instance for tasks in claimed.values() for each in tasks]
            self._hold(keys, *situation.leased(now), now)
            counts = {name: len(tasks) for name, tasks in claimed.items()}
            self.rotation.took(counts, weights, apart=apart)
        self.rotation.skip([(names[key], collection) for key, collection in cut], apart=apart)
        return self.rotation.dealt(claimed) if claimed else []

    def _lanes(self, found, closed, served, names, now):
        """Return a :class:`Lane` of each that was found, and is not shut since then, by name.

        Where no priority is given, it is seen whether anything is due.
        """
        parameters = {}
        lanes = {}
        for type_id, collection, priority in found:
            # A Type may have been unregistered since.
            type = names.get(type_id)
            if type is not None and not closed.shuts(type_id, collection):
                if type not in parameters:
                    parameters[type] = parameters_of(type, *served[type][1:])
                lane = Lane(self.select, type_id, collection, priority, parameters[type], now)
                if priority is not None or lane.begin():
                    lanes[type, collection] = lane
        return lanes

    def _hold(self, keys, daemon, name, now):
        keys, count, now = as_json(keys), len(keys), as_text(now)
        self.run(_HOLD, keys=keys, daemon=daemon)
        if self.run(_MOVE, keys=keys) != count:
            raise AssertionError("a waiting Task belongs to an Instance that is not ACCEPTED")
        self.run(_LOG, keys=keys, now=now, who=name)
