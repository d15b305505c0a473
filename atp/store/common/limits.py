"""Claiming limited Types: buckets, locks, lanes, downstreams."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar
from uuid import UUID

from django.db import DatabaseError
from django.db.models import Count, F, Q, QuerySet
from django.db.models.functions import Least

from ... import messages
from ...downstreams import protection
from ...downstreams.protection import Protection, Report, State
from ...exceptions import DownstreamChanged, UnknownDownstream
from ...models import Daemon, Downstream, Kind, Limit, Task, Type
from ...states import State as InstanceState
from ...text import did_you_mean
from ..values import Attempt
from .base import Part
from .turns import Claimant, ClaimMemory

Result = TypeVar("Result")

# The buckets of limited Types: how many Tasks may start now, and how many may be claimed ahead.

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
    def of_downstream(cls, row: Downstream, type: str, now: datetime, *, is_probed: bool) -> Self:
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
    def of(
        cls,
        limit: Row | Limit,
        type: str,
        now: datetime,
        *,
        held: int = 0,
        own: int = 0,
        daemons: int = 1,
    ) -> Self:
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
    def is_full(self) -> bool:
        """Whether a running Task has to end before another may start."""
        return self.max_running is not None and self.held >= self.max_running

    @property
    def _together(self) -> float:
        """The number of tokens that must have gathered before the next one is taken."""
        return max(1.0, min(self.burst / 2, TOGETHER * self.per_second))  # type: ignore[operator]

    @property
    def room(self) -> int:
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

    def room_ahead(self, free: int) -> int:
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
    def seconds(self) -> float:
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
    lanes: dict[tuple[str, str], int]
    whole: bool

    @classmethod
    def of(
        cls, buckets: Collection[Bucket], room: Callable[[Bucket], int] = lambda bucket: bucket.room
    ) -> Self:
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
    def open_lanes(self) -> list[tuple[str, str]]:
        """The lanes that have limits of their own and have room."""
        return [lane for lane, room in self.lanes.items() if room]

    @property
    def any(self) -> bool:
        """Whether any Task may start."""
        return self.total > 0 and (self.whole or any(self.lanes.values()))


def per_collection(buckets: Iterable[Bucket]) -> int | None:
    """Return how many Tasks each lane of a Type may run; None without such a limit."""
    found = [bucket.max_running_per_collection for bucket in buckets if bucket.collection is None]
    return next(iter(found), None)


def portions(buckets: Collection[Bucket], limit: int, free: int) -> Iterator[tuple[Rooms, int]]:
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


# Downstreams: reports of daemons, settings of operators, and claims.
#
# A claim of a Type whose downstream is not closed takes tokens under the lock of the
# Downstream's row, as it does with limits. While another session keeps that lock, Types of that
# downstream are not claimed. No daemon waits for the lock; only operators do.


class Downstreams(Part):
    """Downstreams: reports of daemons, settings of operators, and tokens for claims."""

    def report(
        self, name: str, report: Report, *, who: str = "", spread: float = 0.0
    ) -> Downstream | None:
        with self.store.atomic():
            row = self.locked(name)
            if row is None:
                return None
            now = self.store.now()
            found = protection.apply_report(row.protection, report, now.timestamp(), spread=spread)
            self._save(row, found, now, who)
            return row

    def bound(
        self,
        name: str,
        *,
        who: str = "",
        expected: datetime | str | None = None,
        **changes: float | None,
    ) -> Downstream:
        def change(row: Downstream, now: float) -> Protection:
            for column, value in changes.items():
                setattr(row, column, value)
            return protection.apply_limits(row.protection, now)

        return self._set(
            name, expected, who, change, messages.downstream_rate_limited(changes), "set"
        )

    def reset(
        self, name: str, *, who: str = "", expected: datetime | str | None = None
    ) -> Downstream:
        message = messages.downstream_reset()
        return self._set(
            name,
            expected,
            who,
            lambda row, now: protection.close_breaker(row.protection, now),
            message,
            "reset",
        )

    def trip(
        self, name: str, *, who: str = "", expected: datetime | str | None = None
    ) -> Downstream:
        message = messages.downstream_breaker_opened()
        return self._set(
            name,
            expected,
            who,
            lambda row, now: protection.open_breaker(row.protection, now),
            message,
            "trip",
        )

    def _set(
        self,
        name: str,
        expected: datetime | str | None,
        who: str,
        change: Callable[[Downstream, float], Protection],
        message: str,
        verb: str,
    ) -> Downstream:
        """Change a row for an operator, waiting for the lock if another session has it."""
        with self.store.atomic():
            row = self.rows(Downstream).select_for_update().filter(name=name).first()
            if row is None:
                known = self.rows(Downstream).values_list("name", flat=True)
                raise UnknownDownstream(
                    f"No Type names the downstream {name!r}.{did_you_mean(name, known)}"
                )
            if expected is not None and expected not in (row.state, row.since):
                raise DownstreamChanged(
                    f"The downstream {name} is not as expected: it is {row.state}.", downstream=row
                )
            now = self.store.now()
            found = change(row, now.timestamp())
            self._save(row, found, now, who, by_hand=True)
            self._log_downstream(row, now, who, message, verb)
            self.store.tell()
            return row

    def _save(
        self, row: Downstream, found: Protection, now: datetime, who: str, *, by_hand: bool = False
    ) -> None:
        was = row.state
        row.take(found)
        if row.state != was or by_hand:
            row.since, row.who = now, who
        row.save(using=self.store.alias)
        if row.state != was and not by_hand:
            message = messages.downstream_changed(was, row.state, row.per_second, row.not_before)
            self._log_downstream(row, now, who, message, row.state)
            # Waiting Tasks may start now, or may no longer be claimed ahead.
            self.store.tell()

    def _log_downstream(
        self, row: Downstream, now: datetime, who: str, message: str, detail: str
    ) -> None:
        subject = f"downstream:{row.name}"
        self.store.log(
            Kind.DOWNSTREAM,
            message,
            subject=subject,
            time=now,
            who=who,
            detail=detail,
            level=logging.WARNING,
        )

    # Claiming

    def guarded(self, types: Iterable[str]) -> dict[str, int]:
        """Return the Types whose downstream is not closed: their keys, by identifier."""
        names = self.rows(Downstream).exclude(state=State.CLOSED.value).values("name")
        rows = self.rows(Type).filter(identifier__in=list(types), downstream__in=names)
        return dict(rows.values_list("identifier", "pk"))

    def guards(self, types: Iterable[str]) -> list[Bucket]:
        """Return a :class:`Bucket` for each Type whose downstream is not closed."""
        rows = self.rows(Downstream).exclude(state=State.CLOSED.value)
        by_name = {row.name: row for row in rows}
        if not by_name:
            return []
        calling = self.rows(Type).filter(identifier__in=list(types), downstream__in=by_name)
        now = self.store.now()
        return [
            Bucket.of_downstream(by_name[name], type, now, is_probed=self._is_probed(by_name[name]))
            for type, name in calling.values_list("identifier", "downstream")
        ]

    def _is_probed(self, row: Downstream) -> bool:
        """Return whether a daemon holds the Instance that probes this downstream, not paused."""
        if row.probe is None:
            return False
        held = self.rows(Task).filter(pk=row.probe, daemon__isnull=False)
        return held.exclude(instance__state=InstanceState.PAUSED.value).exists()

    def locked(self, name: str) -> Downstream | None:
        """Return the row, locked; None if another session has locked it or it does not exist."""
        rows = self.rows(Downstream).filter(name=name)
        return rows.select_for_update(skip_locked=True).first()

    def let_go(self, bucket: Bucket, tasks: Sequence[Attempt]) -> None:
        """Take a token for each claimed Task, or record that the one Task is the probe."""
        if not tasks:
            return
        row = self.rows(Downstream).get(pk=bucket.key)
        at = bucket.now.timestamp()
        if bucket.probes:
            found = protection.start_probe(row.protection, tasks[0].instance, at)
        else:
            found = protection.spend_tokens(row.protection, len(tasks), at)
        was = row.state
        row.take(found)
        if row.state != was:
            row.since = bucket.now
        row.save(using=self.store.alias)


# The limit on each lane of a Type, which its code declares as ``max_running_per_collection``.
#
# The limit is a column of the Type's row of Limit: lanes need no rows of their own. A claim of
# such a Type counts the Tasks that daemons hold in each lane, and looks for lanes with room. A
# limit that an operator has set on one lane takes precedence.

# A further look behind locked Tasks finds so many times as many lanes as the one before.
MORE = 8


class _Counts(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return 0


def _own_limits(buckets: Iterable[Bucket], type: str) -> set[str]:
    """Return the collections for which an operator has set ``max_running``."""
    return {
        bucket.collection
        for bucket in buckets
        if bucket.type == type and bucket.collection is not None and bucket.max_running is not None
    }


# Claiming limited Tasks: one Type at a time, in a short transaction of its own.
#
# The claim locks the Type's rows of Limit, so that daemons take turns. The next statement counts
# the held Tasks; it sees the claim of the daemon that had the lock before. A daemon's turn is
# short. If another session keeps the lock for longer, nothing of the Type is claimed meanwhile.

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


class Limits(Part):
    """Claiming under limits, and when limits let a Task start."""

    def _take_open(
        self, by: Claimant, type: str, buckets: Collection[Bucket], rooms: Rooms, wanted: int
    ) -> list[Attempt]:
        """Claim up to ``wanted`` Tasks from lanes that have room."""
        most = wanted
        while True:
            open_rooms = self._in_lanes(by, type, buckets, rooms, most)
            tasks = self.store.claims.take_limited(by, type, open_rooms, wanted)
            if tasks or open_rooms is rooms or len(open_rooms.lanes) < most:
                return tasks
            most *= MORE

    def _in_lanes(
        self, by: Claimant, type: str, buckets: Collection[Bucket], rooms: Rooms, most_lanes: int
    ) -> Rooms:
        """Return the :class:`Rooms` of lanes that have room and due Tasks; ``rooms`` if unlimited.

        The result has at most ``most_lanes`` lanes.
        """
        most = per_collection(buckets)
        if most is None:
            return rooms
        held, own = self._held_by_lane(type), _own_limits(buckets, type)
        limited = {c: most - held[c] for c in held if c not in own}
        for (_, collection), room in rooms.lanes.items():
            default = room if collection in own else most
            limited[collection] = min(room, limited.get(collection, default))
        full = [collection for collection, room in limited.items() if room <= 0]
        rotation = by.memory.rotation
        after = rotation.after(type, apart=True)
        found, cut = self._open_lanes(type, full, after, most_lanes)
        rotation.skip([(type, collection) for collection in cut], apart=True)
        lanes = {(type, c): min(limited.get(c, most), rooms.total) for c in found}
        return Rooms(rooms.total, lanes, whole=False)

    def _are_full(
        self, type: str, collection: str | None, seconds: float, buckets: Iterable[Bucket]
    ) -> bool:
        """Return whether the limit on each lane keeps a lane, or all lanes, from starting Tasks.

        ``collection`` None means the lanes without own limit; their Tasks are due in ``seconds``.
        """
        buckets = [bucket for bucket in buckets if bucket.type == type]
        most = per_collection(buckets)
        if most is None:
            return False
        held, own = self._held_by_lane(type), _own_limits(buckets, type)
        if collection is not None:
            return collection not in own and held[collection] >= most
        full = [c for c in held if held[c] >= most or c in own]
        return seconds <= 0 and self._open_lanes(type, full, "", 1) == ([], [])

    def _held_by_lane(self, type: str) -> _Counts:
        """Return how many Tasks of a Type daemons hold, by collection."""
        # The filter by daemon, of which there are few, lets the index on held Tasks serve.
        tasks = self.rows(Task).filter(
            daemon__in=self.rows(Daemon).values("pk"), type__identifier=type
        )
        counts = tasks.order_by().values_list("collection").annotate(Count("pk"))
        return _Counts(counts)

    def _open_lanes(
        self, type: str, full: Collection[str], after: str, most: int
    ) -> tuple[list[str], list[str]]:
        """Return up to ``most`` lanes with due Tasks, except those that are ``full`` or shut.

        Lanes are given by collection, those behind ``after`` first. Returns also where the look
        was broken off, as a list of at most one collection.
        """
        now = self.store.now()
        row = self.rows(Type).filter(identifier=type).first()
        closed = self.store.gates.closed(now)
        if row is None or closed.shuts(row.pk):
            return [], []
        due = self.store.claims.sound(now).filter(type=row).exclude(collection__in=full)
        names = due.order_by("collection").values_list("collection", flat=True).distinct()
        found = [*names.filter(collection__gt=after), *names.filter(collection__lte=after)]
        return [name for name in found if not closed.shuts(row.pk, name)][:most], []

    def claim(
        self,
        by: Claimant,
        types: Collection[str],
        limit: int,
        free: int,
        parts: Mapping[str, int] | None = None,
    ) -> list[Attempt]:
        """Claim up to ``limit`` Tasks of these Types, as far as their limits allow.

        Where a limit leaves no room to claim ahead, only ``free`` workers get Tasks. ``parts`` says
        how many Tasks each Type may give ahead; without it the first Type may give all.
        """
        claimed: list[Attempt] = []
        patience = Patience()
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
                self.add(claimed, claim)
            if len(claimed) == before:
                by.memory.full.found(type)
        return claimed

    @staticmethod
    def _part(by: Claimant, type: str, parts: Mapping[str, int], free: int) -> int:
        """Return how many Tasks a Type may give: its part, and one for each free worker.

        The unlimited lanes of a mixed Type have a claim on the free workers too.
        """
        return parts[type] if by.memory.rotation.is_mixed(type) else max(free, parts[type])

    def add(self, claimed: list[Attempt], claim: Callable[[], Iterable[Attempt]]) -> None:
        """Add the Tasks of a further claim; if a lock stops it, keep those claimed before."""
        try:
            claimed += claim()
        except DatabaseError as error:
            if not claimed or not self.store.is_lock(error):
                raise

    def _claim_of(
        self,
        by: Claimant,
        type: str,
        limit: int,
        free: int,
        patience: Patience,
        downstream: str = "",
    ) -> list[Attempt]:
        def claim() -> list[Attempt]:
            if downstream and self.store.downstreams.locked(downstream) is None:
                return []
            buckets = self._buckets([type], daemon=by.daemon)
            guards = [bucket for bucket in buckets if bucket.downstream]
            if guards and not downstream:
                return []  # it has begun to refuse just now, and is not locked
            tasks: list[Attempt] = []
            room = Rooms.of(buckets).total
            for rooms, most in portions(buckets, limit, free):
                wanted = min(most, limit - len(tasks), rooms.total, room - len(tasks))
                if wanted > 0 and rooms.any:
                    tasks += self._take_open(by, type, buckets, rooms, wanted)
            self._spend(buckets, tasks)
            guard = ("probe" if guards[0].probes else "rate") if guards else ""
            for task in tasks:
                task.limited, task.guard = True, guard
            return tasks

        return self._in_turn(type, claim, by.memory.full.blocked, patience) or []

    def _in_turn(
        self, type: str, call: Callable[[], Result], blocked: set[str], patience: Patience
    ) -> Result | None:
        """Lock a Type's limits and return ``call()``; None if another session keeps the lock.

        It tries again instead of waiting in the database, where a long lock would hold up
        everything else. ``blocked`` is the set of Types whose limits are known to stay locked.
        ``patience`` is that for all Types of the claim: the others must not wait long for this one.
        """
        most, until = min(MOMENT if type in blocked else TURNS, patience.left), None
        while True:
            with self.store.atomic():
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

    def _lock_limits(self, type: str) -> bool:
        """Lock the limits of a Type without waiting; returns whether all of them are locked."""
        rows = self.rows(Limit).filter(type__identifier=type)
        locked = rows.select_for_update(of=("self",), skip_locked=True)
        return len(locked) == rows.count()

    def give_back(
        self, lanes: Collection[tuple[str, str]], *, memory: ClaimMemory | None = None
    ) -> None:
        blocked = set() if memory is None else memory.full.blocked
        for type in {type for type, _ in lanes}:
            own = Counter(collection for of, collection in lanes if of == type)
            self._in_turn(type, partial(self._give_back, type, own), blocked, Patience())

    def _give_back(self, type: str, counts: Counter[str]) -> None:
        # A Limit without ``refilled`` has not been used since it was set: its tokens are complete.
        rows = self.rows(Limit).filter(type__identifier=type, refilled__isnull=False)
        for key, collection in rows.values_list("pk", "collection"):
            count = counts.total() if collection is None else counts[collection]
            if count:
                tokens = Least(F("tokens") + count, F("burst") + 0.0)
                self.rows(Limit).filter(pk=key).update(tokens=tokens)

    def due_in(
        self,
        due: float | None,
        limited: Collection[tuple[tuple[str, str | None], float]],
        opens: float | None = None,
    ) -> float | None:
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

    def _buckets(self, types: Collection[str], *, daemon: UUID | None = None) -> list[Bucket]:
        """Return the :class:`Bucket` of each limit and downstream of these Types.

        ``daemon`` is the daemon that asks.
        """
        rows = self.rows(Limit).filter(LIMITING, type__identifier__in=types)
        limits = list(rows.select_related("type").order_by("pk"))
        guards = self.store.downstreams.guards(types)
        if not limits:
            return guards
        daemons, now = self.rows(Daemon).values("pk"), self.store.now()
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

    def _held(self, limit: Limit, daemons: QuerySet[Daemon, Any]) -> int:
        """Return how many Tasks under this limit these daemons hold; 0 without ``max_running``."""
        if limit.max_running is None:
            return 0
        # The filter by daemon, of which there are few, lets the index on held Tasks serve.
        tasks = self.rows(Task).filter(daemon__in=daemons, type=limit.type_id)
        if limit.collection is not None:
            tasks = tasks.filter(collection=limit.collection)
        return tasks.count()

    def _spend(self, buckets: Iterable[Bucket], tasks: Sequence[Attempt]) -> None:
        """Take a token for each claimed Task from every bucket that covers it."""
        for bucket in buckets:
            if bucket.downstream:
                self.store.downstreams.let_go(bucket, tasks)
                continue
            taken = sum(bucket.collection in (None, task.collection) for task in tasks)
            if taken and bucket.per_second is not None:
                self.rows(Limit).filter(pk=bucket.key).update(
                    tokens=bucket.tokens - taken, refilled=bucket.now
                )
