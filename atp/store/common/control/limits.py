"""Claiming limited Tasks: one Type at a time, in a short transaction of its own.

The claim locks the Type's rows of Limit, so that daemons take turns. The next statement counts
the held Tasks; it sees the claim of the daemon that had the lock before. A daemon's turn is
short. If another session keeps the lock for longer, nothing of the Type is claimed meanwhile.
"""

import time
from collections import Counter
from dataclasses import dataclass
from functools import partial

from django.db import DatabaseError
from django.db.models import F, Q
from django.db.models.functions import Least

from ....models import Daemon, Limit, Task
from ...buckets import Bucket, Rooms, portions
from .downstreams import Downstreams
from .lanes import LaneLimited

# In seconds: how long a claim tries for locks while other daemons may have their turns; how long to
# try if the lock is known to be kept; the pause between two tries.
TURNS, MOMENT, TURN = 0.1, 0.01, 0.002
LIMITING = (
    Q(max_running__isnull=False)
    | Q(per_second__isnull=False)
    | Q(max_running_per_collection__isnull=False)
)


@dataclass
class Patience:
    """How long a claim may still wait for limits that others have locked, in seconds."""

    left: float = TURNS


class Limited(LaneLimited, Downstreams):
    def _claim_limited(self, by, types, limit, free, parts=None):
        """Claim up to ``limit`` Tasks of these Types, as far as their limits allow.

        Where a limit leaves no room to claim ahead, only ``free`` workers get Tasks. ``parts`` says
        how many Tasks each Type may give ahead; without it the first Type may give all.
        """
        claimed, patience = [], Patience()
        # Look without the lock first: most of the time there is no room.
        buckets = self._buckets(types, daemon=by.daemon) if types and limit > 0 else []
        for type in types:
            left = limit - len(claimed)
            if left <= 0:
                break
            own_free = min(left, max(0, free - len(claimed)))
            wanted = left if parts is None else min(left, self._part(by, type, parts, own_free))
            own = [bucket for bucket in buckets if bucket.type == type]
            has_room = any(rooms.any and most for rooms, most in portions(own, wanted, own_free))
            before = len(claimed)
            if has_room:
                guard = next((bucket.downstream for bucket in own if bucket.downstream), "")
                claim = partial(self._claim_of, by, type, wanted, own_free, patience, guard)
                self._add(claimed, claim)
            if len(claimed) == before:
                by.memory.full.found(type)
        return claimed

    @staticmethod
    def _part(by, type, parts, free):
        """Return how many Tasks a Type may give: its part, and one for each free worker.

        The unlimited lanes of a mixed Type have a claim on the free workers too.
        """
        return parts[type] if by.memory.rotation.is_mixed(type) else max(free, parts[type])

    def _add(self, claimed, claim):
        """Add the Tasks of a further claim; if a lock stops it, keep those claimed before."""
        try:
            claimed += claim()
        except DatabaseError as error:
            if not claimed or not self.is_lock(error):
                raise

    def _claim_of(self, by, type, limit, free, patience, downstream=""):
        def claim():
            if downstream and self._locked_downstream(downstream) is None:
                return []
            buckets = self._buckets([type], daemon=by.daemon)
            guards = [bucket for bucket in buckets if bucket.downstream]
            if guards and not downstream:
                return []  # it has begun to refuse just now, and is not locked
            tasks, room = [], Rooms.of(buckets).total
            for rooms, most in portions(buckets, limit, free):
                wanted = min(most, limit - len(tasks), rooms.total, room - len(tasks))
                if wanted > 0 and rooms.any:
                    tasks += self._take_open(by, type, buckets, rooms, wanted)
            self._spend(buckets, tasks)
            guard = ("probe" if guards[0].probes else "rate") if guards else ""
            return [task._replace(limited=True, guard=guard) for task in tasks]

        return self._in_turn(type, claim, by.memory.full.blocked, patience) or []

    def _in_turn(self, type, call, blocked, patience):
        """Lock a Type's limits and return ``call()``; None if another session keeps the lock.

        It tries again instead of waiting in the database, where a long lock would hold up
        everything else. ``blocked`` is the set of Types whose limits are known to stay locked.
        ``patience`` is that for all Types of the claim: the others must not wait long for this one.
        """
        most, until = min(MOMENT if type in blocked else TURNS, patience.left), None
        while True:
            with self.atomic():
                if self._lock_limits(type):
                    blocked.discard(type)
                    return call()
            until = until or time.monotonic() + most
            left = until - time.monotonic()
            if left <= 0:
                blocked.add(type)
                return None
            pause = min(TURN, left)
            time.sleep(pause)
            patience.left -= pause

    def _lock_limits(self, type):
        """Lock the limits of a Type without waiting; returns whether all of them are locked."""
        rows = self.rows(Limit).filter(type__identifier=type)
        locked = rows.select_for_update(of=("self",), skip_locked=True)
        return len(locked) == rows.count()

    def give_back(self, lanes, *, memory=None):
        blocked = set() if memory is None else memory.full.blocked
        for type in {type for type, _ in lanes}:
            own = Counter(collection for of, collection in lanes if of == type)
            self._in_turn(type, partial(self._give_back, type, own), blocked, Patience())

    def _give_back(self, type, counts):
        # A Limit without ``refilled`` has not been used since it was set: its tokens are complete.
        rows = self.rows(Limit).filter(type__identifier=type, refilled__isnull=False)
        for key, collection in rows.values_list("pk", "collection"):
            count = counts.total() if collection is None else counts[collection]
            if count:
                tokens = Least(F("tokens") + count, F("burst") + 0.0)
                self.rows(Limit).filter(pk=key).update(tokens=tokens)

    def _due_in(self, due, limited, opens=None):
        """Return the seconds until a Task may start; None if none waits.

        ``due`` is the time of the first unlimited Task. ``limited`` are pairs of a lane and its
        due time, where a lane's collection may be None for a whole Type. ``opens`` is the time
        until a gate opens. All are in seconds.
        """
        times = [time for time in (due, opens) if time is not None]
        buckets = self._buckets({type for (type, _), _ in limited}) if limited else []
        for (type, collection), seconds in limited:
            own = [b for b in buckets if b.type == type and b.collection in (None, collection)]
            # A full lane is looked at again when one of its attempts ends.
            is_full = any(bucket.is_full for bucket in own)
            if not is_full and not self._are_full(type, collection, seconds, buckets):
                times.append(max([seconds, *(bucket.seconds for bucket in own)]))
        return min(times, default=None)

    def _buckets(self, types, *, daemon=None):
        """Return the :class:`Bucket` of each limit and downstream of these Types.

        ``daemon`` is the daemon that asks.
        """
        rows = self.rows(Limit).filter(LIMITING, type__identifier__in=types)
        limits = list(rows.select_related("type").order_by("pk"))
        guards = self._guards(types)
        if not limits:
            return guards
        daemons, now = self.rows(Daemon).values("pk"), self.now()
        own = daemons.filter(uuid=daemon)
        count = max(1, daemons.count())
        return [
            Bucket.of(
                limit,
                limit.type.identifier,
                now,
                held=self._held(limit, daemons),
                own=self._held(limit, own),
                daemons=count,
            )
            for limit in limits
        ] + guards

    def _held(self, limit, daemons):
        """Return how many Tasks under this limit these daemons hold; 0 without ``max_running``."""
        if limit.max_running is None:
            return 0
        # The filter by daemon, of which there are few, lets the index on held Tasks serve.
        tasks = self.rows(Task).filter(daemon__in=daemons, type=limit.type_id)
        if limit.collection is not None:
            tasks = tasks.filter(collection=limit.collection)
        return tasks.count()

    def _spend(self, buckets, tasks):
        """Take a token for each claimed Task from every bucket that covers it."""
        for bucket in buckets:
            if bucket.downstream:
                self._let_go(bucket, tasks)
                continue
            taken = sum(bucket.collection in (None, task.collection) for task in tasks)
            if taken and bucket.per_second is not None:
                self.rows(Limit).filter(pk=bucket.key).update(
                    tokens=bucket.tokens - taken, refilled=bucket.now
                )
