"""The buckets of limited Types: how many Tasks may start now, and how many may be claimed ahead."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from ..downstreams.protection import State

# The room of a Limit that limits nothing.
UNBOUNDED = 2**31 - 1
# A daemon may use the tokens of a rate this many seconds late and lose none of them.
LATE = 0.1
# When a rate is used up, the Tasks of this many seconds start together. Daemons take turns at
# the rate no more often than that.
TOGETHER = 0.02
# While a Downstream is being probed, daemons look at it again after this many seconds.
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
    """A Limit at the time ``now``: how many Tasks daemons hold under it, and its tokens.

    ``held`` is the number of Tasks that all daemons hold. ``own`` is the number that the asking
    daemon holds. ``daemons`` is the number of daemons.
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
    # Only for a Downstream: it lets no call through for ``shut_for`` seconds; ``probes`` says that
    # it lets one Task through, as a probe.
    downstream: str = ""
    shut_for: float = 0.0
    probes: bool = False

    @classmethod
    def of_downstream(cls, row, type, now, *, is_probed):
        """Return the bucket of a Downstream that is not closed.

        ``is_probed`` says that a daemon holds the Instance that probes it, and has not paused it.
        """
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
        """Return the bucket of a Limit of this Type; ``held`` and ``own`` count Tasks."""
        tokens = 0.0
        if limit.per_second is not None:
            passed = (now - limit.refilled).total_seconds() if limit.refilled else 0.0
            had = limit.tokens if limit.refilled else limit.burst
            # Less than one token above the burst: at most ``burst`` Tasks start at once.
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
        """Whether a running Task has to end before another may start."""
        return self.max_running is not None and self.held >= self.max_running

    @property
    def _together(self):
        """The number of tokens that must have gathered before the next one is taken."""
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
            # Rounding may leave a whole token a little below 1.
            has_enough = self.tokens + 1e-6 >= self._together
            room = min(room, int(self.tokens + 1e-6) if has_enough else 0)
        return max(0, room)

    def room_ahead(self, free):
        """Return how many more Tasks the daemon may claim; 0 if it may claim none ahead.

        Then only ``free`` workers may get Tasks. A Task that is claimed ahead counts as running.
        Each daemon may claim an equal part of ``max_running`` ahead, so that the other daemons have
        room for the Tasks that they can run.
        """
        room = self.room
        part = UNBOUNDED if self.max_running is None else self.max_running // self.daemons
        ahead = min(room, max(0, part - self.own))
        return max(ahead, min(room, free)) if ahead else 0

    @property
    def seconds(self):
        """The seconds until the rate or the Downstream lets a Task start."""
        if self.per_second is None:
            return self.shut_for
        return max(self.shut_for, (self._together - self.tokens) / self.per_second, 0.0)


@dataclass(frozen=True)
class Rooms:
    """The number of Tasks that a Type may start: in total, and in each lane with its own limit.

    ``whole`` says that there is a limit on the Type, which all its lanes share.
    """

    total: int
    lanes: dict
    whole: bool

    @classmethod
    def of(cls, buckets, room=lambda bucket: bucket.room):
        """Combine the buckets of a Type; ``room(bucket)`` returns the room of one of them."""
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
        """The lanes that have limits of their own and have room."""
        return [lane for lane, room in self.lanes.items() if room]

    @property
    def any(self):
        """Whether any Task may start."""
        return self.total > 0 and (self.whole or any(self.lanes.values()))


def per_collection(buckets):
    """Return how many Tasks each lane of a Type may run; None without such a limit."""
    found = [bucket.max_running_per_collection for bucket in buckets if bucket.collection is None]
    return next(iter(found), None)


def portions(buckets, limit, free):
    """Yield the parts of a claim of one Type: pairs of :class:`Rooms` and a maximum of Tasks.

    The parts add up to at most ``limit``. A lane whose limit has no room for Tasks that are
    claimed ahead gets at most ``free`` Tasks, one for each free worker; such lanes come first, as
    a part of their own. If the Type limits each of its lanes, all lanes get at most ``free``.
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
