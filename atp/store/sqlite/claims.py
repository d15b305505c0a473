"""Claiming on SQLite: a look without the lock first, then the claim in a transaction."""

import time
from functools import partial

from ..common.claims import Claims as ORMClaims
from ..common.control.gates import Closed
from ..rotation import taken
from .base import as_json, as_text
from .look.known import Known
from .look.lane import Lane
from .look.situation import Asking
from .look.waiting import Waiting
from .parameters import parameters_of

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
        (instance_id, subject, time, kind, state, attempt, level, who, message)
    SELECT id, '', %(now)s, 'claim', state, attempt, 20, %(who)s, ''
    FROM atp_instance WHERE id IN (SELECT value FROM json_each(%(keys)s))
"""


class Claims(Asking, Waiting, ORMClaims):
    def _claim_unlimited(self, by, types, limit):
        # An idle daemon looks often, and must not keep writers waiting.
        look = self._look(by, types, limit) if limit > 0 else None
        if look is None:
            return []
        situation, found, cut = look
        rotation, shortcut = by.memory.rotation, by.memory.shortcut(Known)
        with self.atomic():
            now = self.now()
            if not self._stands(situation):
                situation = self._situation(types, now, daemon=by.daemon)
            _, name = situation.leased(now)
            if situation.is_late:
                self.miss(who=name)
            pick = partial(self._pick, rotation, situation, situation.not_claimed(), now, limit)
            # The shortcut may have ended since the look that used it.
            known = shortcut.lanes(limit)
            if known:
                claimed = pick(found=[(*lane, None) for lane in known], least=limit)
                if claimed:
                    rotation.skip(shortcut.cut)
                    return claimed
                shortcut.forget()
            claimed = pick(found=found)
            rotation.skip(cut)
            return claimed

    def _take_limited(self, by, type, rooms, wanted):
        now, rotation = self.now(), by.memory.rotation
        situation = self._situation([type], now, daemon=by.daemon)
        situation.leased(now)
        key = situation.served[type][0]
        full = {(key, lane[1]) for lane, room in rooms.lanes.items() if not room}
        closed = Closed(situation.gates.pairs | full)
        caps = {lane: rooms.lanes[lane] for lane in rotation.turned(rooms.open_lanes)}
        # If only some lanes of a Type are limited, the others are not looked at here.
        found = None if rooms.whole else [(key, collection, None) for _, collection in caps]
        return self._pick(rotation, situation, closed, now, wanted, caps, found)

    def miss(self, *, who="", limit=500):
        # Called whenever a claim has brought nothing.
        return super().miss(who=who, limit=limit) if self._is_late(self.now()) else 0

    def _look(self, by, types, limit):
        """Return the situation, the lanes with due Tasks, and where the look was broken off.

        The lanes are None if those of the shortcut are to be used. Returns None if there is nothing
        to do.
        """
        now, rotation, shortcut = self.now(), by.memory.rotation, by.memory.shortcut(Known)
        situation = self._situation(types, now, daemon=by.daemon)
        situation.leased(now)
        keys = {columns[0]: type for type, columns in situation.served.items()}
        by.memory.limited = {keys[key] for key, _ in situation.limits.pairs if key in keys}
        if shortcut.lanes(limit):
            return situation, None, []
        # CPU time of this thread, without the waits of a busy machine.
        began = time.thread_time()
        begins = _begins(rotation, situation.served)
        found, cut = self._ready(begins, as_text(now), situation.not_claimed(), limit)
        if cut:
            # Lanes that the look has not reached may still have due Tasks.
            names = {lane[:2] for lane in found}
            found += [(*lane, None) for lane in shortcut.last if lane not in names]
        cut = [(keys[key], collection) for key, collection in cut]
        shortcut.found(found, cut, limit, time.thread_time() - began)
        if found or situation.is_late:
            return situation, found, cut
        rotation.skip(cut)
        return None

    def _pick(self, rotation, situation, closed, now, limit, caps=None, found=None, least=1):
        """Claim an even share of each lane, then fill up from any lane; no lane exceeds its cap.

        Takes from the lanes in ``found``; without it, looks for lanes. Claims nothing if there are
        fewer than ``least`` Tasks.
        """
        apart, caps, served = caps is not None, caps or {}, situation.served
        cut = []

        def ready(most):
            begins = _begins(rotation, served, apart=apart)
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
            # Tasks that disagree with their Instances must not hide other lanes until a scan mends
            # them.
            claimed = take(ready(-1))
        if sum(map(len, claimed.values())) < least:
            claimed = {}
        if claimed:
            keys = [each.instance for tasks in claimed.values() for each in tasks]
            self._hold(keys, *situation.leased(now), now)
            counts = {name: len(tasks) for name, tasks in claimed.items()}
            rotation.took(counts, weights, apart=apart)
        rotation.skip([(names[key], collection) for key, collection in cut], apart=apart)
        return rotation.dealt(claimed) if claimed else []

    def _lanes(self, found, closed, served, names, now):
        """Return a :class:`Lane` for each found lane that is not shut by now, by name.

        A lane without a priority is left out if nothing is due in it.
        """
        parameters = {}
        lanes = {}
        for type_id, collection, priority in found:
            # The Type may have been unregistered meanwhile.
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


def _begins(rotation, served, *, apart=False):
    """Return the Types' keys in their order, each with the collection to begin behind."""
    order = rotation.order(served)
    return [(served[type][0], rotation.after(type, apart=apart)) for type in order]
