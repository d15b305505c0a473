"""Claiming on SQLite: a look at the queue without the lock, then the same in a transaction."""

from datetime import timedelta

from ...exceptions import LeaseLost
from ..orm.claims import Claims as ORMClaims
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
    def claim(self, daemon, types, limit):
        types = as_json(list(types))
        # An idle daemon looks often, and should keep no writer waiting.
        if not self._has_work(daemon, types) or limit <= 0:
            return []
        with self.atomic():
            return self._claim(daemon, types, limit)

    def miss(self, *, who="", limit=500):
        # Asked whenever a claim has brought nothing.
        return super().miss(who=who, limit=limit) if self._is_late(as_text(self.now())) else 0

    def _has_work(self, daemon, types):
        now = as_text(self.now())
        self._leased(daemon, now)
        return self._is_late(now) or bool(self._ready(types, now))

    def _claim(self, daemon, types, limit):
        time = self.now()
        now = as_text(time)
        key, name = self._leased(daemon, now)
        self.miss(who=name)
        ready = self._ready(types, now)
        claimed = self._picked(ready, time, limit) if ready else []
        if claimed:
            self._hold([each.instance for each in claimed], key, name, now)
        return claimed

    def _leased(self, daemon, now):
        """Return the key and the name of the daemon, if its lease is live."""
        row = self.run(_DAEMON, daemon=daemon.hex, now=now).fetchone()
        if row is None:
            raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
        key, name, is_live = row
        if not is_live:
            raise LeaseLost("The daemon's lease has run out.")
        return key, name

    def _picked(self, ready, time, limit):
        """An even share of each Type that has something due, then whatever fits."""
        self._turn = (self._turn + 1) % len(ready)
        share = -(-limit // len(ready))
        cursor = self.connection.cursor()
        lanes = [
            Lane(cursor, type_id, priority, _parameters(*columns), time)
            for type_id, priority, *columns in ready[self._turn :] + ready[: self._turn]
        ]
        claimed = []
        for wanted in (share, limit):
            for lane in lanes:
                claimed += lane.take(min(wanted, limit - len(claimed)))
        return claimed

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
