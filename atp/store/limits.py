"""What a limited Type may start at this moment."""

from dataclasses import dataclass
from datetime import datetime

# What one row of Limit leaves where nothing is limited.
UNBOUNDED = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A Limit as it is at ``now``: how many of it are held, how many tokens there are."""

    key: int
    type: str
    collection: str | None
    weight: float
    max_running: int | None
    per_second: float | None
    tokens: float
    held: int
    now: datetime

    @classmethod
    def of(cls, limit, type, held, now):
        """Look at a row of Limit of the Type of this identifier; so many Tasks are held."""
        tokens = 0.0
        if limit.per_second is not None:
            passed = (now - limit.refilled).total_seconds() if limit.refilled else 0.0
            had = limit.tokens if limit.refilled else limit.burst
            tokens = min(limit.burst, had + max(0.0, passed) * limit.per_second)
        return cls(
            key=limit.pk,
            type=type,
            collection=limit.collection,
            weight=limit.weight,
            max_running=limit.max_running,
            per_second=limit.per_second,
            tokens=tokens,
            held=held,
            now=now,
        )

    @property
    def is_full(self):
        """Whether one has to end before another may start."""
        return self.max_running is not None and self.held >= self.max_running

    @property
    def room(self):
        """How many more may be started now."""
        room = UNBOUNDED if self.max_running is None else self.max_running - self.held
        if self.per_second is not None:
            # A token that is complete but for rounding is one.
            room = min(room, int(self.tokens + 1e-6))
        return max(0, room)

    @property
    def seconds(self):
        """In how many seconds one may be started, if nothing else is in the way."""
        if self.per_second is None or self.tokens >= 1:
            return 0.0
        return (1 - self.tokens) / self.per_second


@dataclass(frozen=True)
class Rooms:
    """How many more a Type may start: in all, and in its lanes that have limits of their own.

    ``whole`` says that all its lanes are limited together.
    """

    total: int
    lanes: dict
    whole: bool

    @classmethod
    def of(cls, buckets):
        """Put the :class:`Bucket` of a Type together."""
        whole = [bucket for bucket in buckets if bucket.collection is None]
        total = min((bucket.room for bucket in whole), default=UNBOUNDED)
        lanes = {
            (bucket.type, bucket.collection): min(bucket.room, total)
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
