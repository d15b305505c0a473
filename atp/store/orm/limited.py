"""Claiming what is limited: one Type at a time, in a short transaction of its own.

First its rows of Limit are locked, so that daemons take turns; then what is held is
counted, by a statement that sees what whoever had the lock before has claimed.
"""

import time

from django.db.models import Q
from django.utils.functional import cached_property

from ...models import Daemon, Limit, Task
from ..limits import Bucket, Rooms
from .base import ORMBase

# While there is other work, what had nothing to claim is left alone for so long, in seconds.
FULL_FOR = 0.05
LIMITING = Q(max_running__isnull=False) | Q(per_second__isnull=False)


class Limited(ORMBase):
    @cached_property
    def _full_at(self):
        """When nothing could be claimed of limited Types, on the monotonic clock."""
        return {}

    def _claim_limited(self, daemon, types, limit):
        """Claim up to ``limit`` of these Types, as far as their limits allow."""
        claimed = []
        for type in types:
            if len(claimed) >= limit:
                break
            # A look without the lock first: most of the time there is no room.
            has_room = Rooms.of(self._buckets([type])).any
            tasks = self._claim_of(daemon, type, limit - len(claimed)) if has_room else []
            if not tasks:
                self._full_at[type] = time.monotonic()
            claimed += [task._replace(limited=True) for task in tasks]
        return claimed

    def _claim_of(self, daemon, type, limit):
        with self.atomic():
            buckets = self._buckets([type], lock=True)
            rooms = Rooms.of(buckets)
            if not rooms.any:
                return []
            tasks = self._take_limited(daemon, type, rooms, min(limit, rooms.total))
            self._spend(buckets, tasks)
            return tasks

    def _not_full_lately(self, types):
        """Return the Types of which it was not found a moment ago that nothing can be claimed.

        Others are looked at when there is nothing else to be done.
        """
        before = time.monotonic() - FULL_FOR
        return [type for type in types if self._full_at.get(type, 0.0) < before]

    def _due_in(self, due, limited, opens=None):
        """In how many seconds a Task may be started; None if none waits.

        ``due`` is that of what is not limited. ``limited`` are pairs of a lane, or a Type
        and None, and of its due time in seconds; ``opens`` is when a gate does.
        """
        times = [time for time in (due, opens) if time is not None]
        buckets = self._buckets({type for (type, _), _ in limited}) if limited else []
        for (type, collection), seconds in limited:
            own = [b for b in buckets if b.type == type and b.collection in (None, collection)]
            # Of what is full, its end will be told.
            if not any(bucket.is_full for bucket in own):
                times.append(max([seconds, *(bucket.seconds for bucket in own)]))
        return min(times, default=None)

    def _buckets(self, types, *, lock=False):
        """Return the :class:`Bucket` of each limit of these Types."""
        rows = self.rows(Limit).filter(LIMITING, type__identifier__in=types)
        rows = rows.select_related("type").order_by("pk")
        limits = list(rows.select_for_update(of=("self",)) if lock else rows)
        if not limits:
            return []
        now = self.now()
        return [
            Bucket.of(
                limit,
                limit.type.identifier,
                0 if limit.max_running is None else self._held(limit),
                now,
            )
            for limit in limits
        ]

    def _held(self, limit):
        """Return how many Tasks of a limit are claimed."""
        # By daemon, of which there are few: so the index on what is held serves.
        daemons = self.rows(Daemon).values("pk")
        tasks = self.rows(Task).filter(daemon__in=daemons, type=limit.type_id)
        if limit.collection is not None:
            tasks = tasks.filter(collection=limit.collection)
        return tasks.count()

    def _spend(self, buckets, tasks):
        """Take a token for each Task from the buckets that it comes out of."""
        for bucket in buckets:
            taken = sum(bucket.collection in (None, task.collection) for task in tasks)
            if taken and bucket.per_second is not None:
                self.rows(Limit).filter(pk=bucket.key).update(
                    tokens=bucket.tokens - taken, refilled=bucket.now
                )
