"""Claiming on SQLite: a look at the queue without the lock, then the same in a transaction."""

from datetime import timedelta

from ...exceptions import LeaseLost
from ..orm.claims import Claims as ORMClaims
from ..orm.gates import Closed
from ..rotation import shares
from ..values import Parameters
from .base import as_json, as_text
from .lane import Lane
from .waiting import Waiting

_DAEMON = """
    SELECT id, host || ':' || pid, lock <> '' OR lease_until > %(now)s
    FROM atp_daemon WHERE uuid = %(daemon)s
"""

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


class Claims(Waiting, ORMClaims):
    def _claim_unlimited(self, daemon, types, limit):
        # An idle daemon looks often, and should keep no writer waiting.
        if limit <= 0 or not self._has_work(daemon, types):
            return []
        with self.atomic():
            time = self.now()
            row = self._leased(daemon, as_text(time))
            self.miss(who=row[1])
            served = self._served(types)
            gates, limits, weights = self._set(as_text(time))
            closed = Closed(gates.pairs | limits.pairs)
            return self._pick(row, served, weights, closed, time, limit)

    def _take_limited(self, daemon, type, rooms, wanted):
        time = self.now()
        row = self._leased(daemon, as_text(time))
        served = self._served([type])
        gates, _, weights = self._set(as_text(time))
        key = served[type][0]
        full = {(key, lane[1]) for lane, room in rooms.lanes.items() if not room}
        closed = Closed(gates.pairs | full)
        caps = {lane: room for lane, room in rooms.lanes.items() if room}
        return self._pick(row, served, weights, closed, time, wanted, caps, rooms.whole)

    def miss(self, *, who="", limit=500):
        # Asked whenever a claim has brought nothing.
        return super().miss(who=who, limit=limit) if self._is_late(as_text(self.now())) else 0

    def _has_work(self, daemon, types):
        now = as_text(self.now())
        self._leased(daemon, now)
        served = self._served(types)
        keys = {columns[0]: type for type, columns in served.items()}
        gates, limits, _ = self._set(now)
        self._limited = {keys[key] for key, _ in limits.pairs if key in keys}
        closed = Closed(gates.pairs | limits.pairs)
        return self._is_late(now) or bool(self._ready(self._begins(served), now, closed, 1))

    def _begins(self, served):
        """The keys of the Types in their order, each with the collection to begin behind."""
        order = self.rotation.order(served)
        return [(served[type][0], self.rotation.after(type)) for type in order]

    def _leased(self, daemon, now):
        """Return the key and the name of the daemon, if its lease is live."""
        row = self.run(_DAEMON, daemon=daemon.hex, now=now).fetchone()
        if row is None:
            raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
        key, name, is_live = row
        if not is_live:
            raise LeaseLost("The daemon's lease has run out.")
        return key, name

    def _pick(self, row, served, weights, closed, time, limit, caps=None, walks=True):
        """Claim an even share of each lane first, then whatever fits; no more than its cap."""
        now = as_text(time)
        # Of a Type of which only some lanes are limited, the others are not looked at.
        of_lanes = not walks
        found = self._ready(self._begins(served), now, closed, -1 if of_lanes else limit)
        names = {columns[0]: type for type, columns in served.items()}
        parameters = {type: _parameters(type, *columns[1:]) for type, columns in served.items()}
        cursor, lanes = self.connection.cursor(), {}
        for type_id, collection, priority in found:
            name = names[type_id], collection
            if not of_lanes or name in caps:
                lanes[name] = Lane(cursor, type_id, collection, priority, parameters[name[0]], time)
        weights = {type: weights.get(columns[0], 1.0) for type, columns in served.items()}
        share, claimed = shares(limit, weights, list(lanes)), {}
        for further in (False, True):
            for name, lane in lanes.items():
                left = limit - sum(map(len, claimed.values()))
                wanted = left if further else min(left, share[name], (caps or {}).get(name, left))
                had = claimed.setdefault(name, [])
                if wanted > 0 and not (
                    further and (name in (caps or ()) or len(had) < share[name])
                ):
                    had += lane.take(wanted)
        claimed = {name: tasks for name, tasks in claimed.items() if tasks}
        if not claimed:
            return []
        self._hold([each.instance for tasks in claimed.values() for each in tasks], *row, now)
        counts = {name: len(tasks) for name, tasks in claimed.items()}
        self.rotation.took(counts, weights, apart=caps is not None)
        return self.rotation.dealt(claimed)

    def _hold(self, keys, daemon, name, now):
        keys, count = as_json(keys), len(keys)
        self.run(_HOLD, keys=keys, daemon=daemon)
        if self.run(_MOVE, keys=keys).rowcount != count:
            raise AssertionError("a waiting Task belongs to an Instance that is not ACCEPTED")
        self.run(_LOG, keys=keys, now=now, who=name)


def _parameters(type, timeout, max_retries, backoff, backoff_max, max_restarts, max_memory):
    return Parameters(
        type=type,
        timeout=_duration(timeout),
        max_retries=max_retries,
        backoff=_duration(backoff),
        backoff_max=_duration(backoff_max),
        max_restarts=max_restarts,
        max_memory=max_memory,
    )


def _duration(microseconds):
    return None if microseconds is None else timedelta(microseconds=microseconds)
