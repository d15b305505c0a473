"""The room of a limited Type: for Tasks to be started now, and to be claimed ahead."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from ..protection.values import State

# The room that a row of Limit leaves where it limits nothing.
UNBOUNDED = 2**31 - 1
# A daemon that is late by no more than this, in seconds, loses nothing of a rate.
LATE = 0.1
# Of a rate that is used up, what comes in so long a time is started together, in seconds: not
# more often than that do daemons take turns at it.
TOGETHER = 0.02
# While a Downstream is probed it is looked at again after this, in seconds.
LOOK_AGAIN = 0.5


class Row(NamedTuple):
    """The columns of a row of Limit that a store's own statement reads."""

    pk: int
    identifier: str
    collection: str | None
    weight: float
    max_running: int | None
    per_second: float | None
    burst: int
    max_running_per_collection: int | None
    tokens: float
    refilled: datetime | None


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A Limit as it is at ``now``: the Tasks that are held, and the tokens that there are.

    ``own`` of the Tasks that are held are those of the daemon that asks, which is one of so
    many ``daemons``.
    """

    key: int
    type: str
    collection: str | None
    weight: float
    max_running: int | None
    per_second: float | None
    burst: int
    max_running_per_collection: int | None
    tokens: float
    held: int
    own: int
    daemons: int
    now: datetime
    # Of a Downstream, not of a Limit. For so many seconds it lets nothing go; and it lets one
    # go that probes.
    downstream: str = ""
    shut_for: float = 0.0
    probes: bool = False

    @classmethod
    def of_downstream(cls, row, type, now, *, is_probed):
        """Look at a row of Downstream that is not closed; ``is_probed`` while a daemon probes."""
        found, at = row.protection, now.timestamp()
        shut_for = found.opens_in(at)
        if found.state is State.HALF_OPEN and is_probed:
            shut_for = max(shut_for, LOOK_AGAIN)
        is_rate = found.state is State.THROTTLED
        return cls(
            key=row.pk,
            type=type,
            collection=None,
            weight=1.0,
            max_running=None,
            per_second=found.per_second if is_rate else None,
            burst=1,
            max_running_per_collection=None,
            tokens=found.available(at) if is_rate else 0.0,
            held=0,
            own=0,
            daemons=1,
            now=now,
            downstream=row.name,
            shut_for=shut_for,
            probes=not is_rate,
        )

    @classmethod
    def of(cls, limit, type, now, *, held=0, own=0, daemons=1):
        """Look at a row of Limit of the Type of this identifier; so many Tasks are held."""
        tokens = 0.0
        if limit.per_second is not None:
            passed = (now - limit.refilled).total_seconds() if limit.refilled else 0.0
            had = limit.tokens if limit.refilled else limit.burst
            # Less than one more than the burst: so many at once, and no more.
            most = limit.burst + min(0.99, LATE * limit.per_second)
            tokens = min(most, had + max(0.0, passed) * limit.per_second)
        return cls(
            key=limit.pk,
            type=type,
            collection=limit.collection,
            weight=limit.weight,
            max_running=limit.max_running,
            per_second=limit.per_second,
            burst=limit.burst,
            max_running_per_collection=limit.max_running_per_collection,
            tokens=tokens,
            held=held,
            own=own,
            daemons=daemons,
            now=now,
        )

    @property
    def is_full(self):
        """Whether one has to end before another may start."""
        return self.max_running is not None and self.held >= self.max_running

    @property
    def _together(self):
        """The number of tokens that there must be before another is taken."""
        return max(1.0, min(self.burst / 2, TOGETHER * self.per_second))

    @property
    def room(self):
        """The number of Tasks that may be started now."""
        if self.shut_for > 0:
            return 0
        if self.probes:
            return 1
        room = UNBOUNDED if self.max_running is None else self.max_running - self.held
        if self.per_second is not None:
            # A token that is complete but for rounding is one.
            has_enough = self.tokens + 1e-6 >= self._together
            room = min(room, int(self.tokens + 1e-6) if has_enough else 0)
        return max(0, room)

    def room_ahead(self, free):
        """Return how many more the daemon may claim; 0 if that is only for ``free`` workers.

        A Task that is claimed ahead counts as running. Each daemon may claim its part of
        ``max_running`` ahead, so that others have room for the Tasks that they can run.
        """
        room = self.room
        part = UNBOUNDED if self.max_running is None else self.max_running // self.daemons
        ahead = min(room, max(0, part - self.own))
        return max(ahead, min(room, free)) if ahead else 0

    @property
    def seconds(self):
        """The seconds until a Task may be started, if nothing else is in the way."""
        if self.per_second is None:
            return self.shut_for
        return max(self.shut_for, (self._together - self.tokens) / self.per_second, 0.0)


@dataclass(frozen=True)
class Rooms:
    """The number of Tasks that a Type may start: in all, and in lanes with limits of their own.

    ``whole`` says that all its lanes are limited together.
    """

    total: int
    lanes: dict
    whole: bool

    @classmethod
    def of(cls, buckets, room=lambda bucket: bucket.room):
        """Put the :class:`Bucket` of a Type together; ``room(bucket)`` is that of one."""
        whole = [bucket for bucket in buckets if bucket.collection is None]
        total = min((room(bucket) for bucket in whole), default=UNBOUNDED)
        lanes = {
            (bucket.type, bucket.collection): min(room(bucket), total)
            for bucket in buckets
            if bucket.collection is not None
        }
        return cls(total, lanes, bool(whole))

    @property
    def open_lanes(self):
        """The lanes that have limits of their own, and room."""
        return [lane for lane, room in self.lanes.items() if room]

    @property
    def any(self):
        """Whether anything may be started."""
        return self.total > 0 and (self.whole or any(self.lanes.values()))


def per_collection(buckets):
    """Return the number of Tasks that each lane of a Type may run; None if they are not limited."""
    found = [bucket.max_running_per_collection for bucket in buckets if bucket.collection is None]
    return next(iter(found), None)


def portions(buckets, limit, free):
    """Yield what to claim of a Type, as pairs of :class:`Rooms` and how many at most.

    That is up to ``limit``, and where a limit may bind for ``free`` workers only. Lanes of
    which that is so come first, apart, and get no more than these workers. Where each lane of
    a Type is limited that is so of all of them.
    """
    if per_collection(buckets) is not None:
        limit = min(limit, free)
    rooms = Rooms.of(buckets)
    ahead = Rooms.of(buckets, lambda bucket: bucket.room_ahead(free))
    if limit <= free or not ahead.any:
        yield rooms, min(limit, free)
        return
    narrow = {lane: room for lane, room in rooms.lanes.items() if room and not ahead.lanes[lane]}
    if narrow:
        yield Rooms(rooms.total, narrow, whole=False), free
    yield ahead, limit
