"""The claim statement, limits, shortcuts after a slow one."""

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self, TypeAlias, overload
from uuid import UUID

from django.db import DatabaseError

from ...exceptions import LeaseLost
from ...models import Type
from ...querysets import CLAIMING_ORDER
from ..common.claims import Claims as ORMClaims
from ..common.limits import MORE, Bucket, Rooms, Row
from ..common.limits import Limits as ORMLimits
from ..common.turns import STEPS, Claimant, RowOrder, enough_lanes, most_steps
from ..values import Attempt, Parameters
from .statements import FEW, array, cursor_of, execute, texts

if TYPE_CHECKING:
    from . import PostgreSQLStore

# Claiming on PostgreSQL: one statement finds, locks and writes the Tasks.
#
# The locks of that statement, numbered in the order in which it takes them:
#
#                     daemon's row           Tasks                  their Instances
#                     (KEY SHARE)            (UPDATE)               (NO KEY UPDATE)
# `claim.sql`         1 waits                2 steps over locked    3 waits
# `claim_first.sql`   1 waits                2 steps over locked    3 waits
# `claim_careful.sql` 1 never waits          3 steps over locked    2 steps over locked
#
# `claim_careful.sql` locks the daemon's row or its spare lease (atp_sparelease), whichever is free.
#
# If the Type has limits, a transaction locks those first (`lock_limits.sql`, UPDATE): if another
# session has one of them, this claim leaves the Type out. Afterwards the daemon counts the room
# and runs the statement in the same transaction.
#
# Why claims do not deadlock. Whoever writes a live Instance locks its Task first (its node before
# that, if it has one), and several Tasks in the order of their keys: see `Batch.load` in
# common/transitions.py, `finish.sql`, `record.sql`. A claim never waits for a Task, so two claims
# never wait for each other; and whoever waits for a Task of a claim has not locked its Instance.
# `claim_careful.sql` waits for nothing, so its order does not matter: it locks the Instance first,
# to leave a Task alone whose Instance is locked.
#
# How long a claim waits. The daemon's row is locked against it by whoever takes the daemon's
# identity away (the renewal of its lease is not in the way); an Instance, by a session of somebody
# that has locked it without its Task. A daemon's connection waits for a lock up to its lock timeout
# (LOCK_TIMEOUT in daemon/database.py). Then the statement fails and has claimed nothing, and for
# CAREFUL_FOR seconds (daemon/dispatcher/claiming.py) the daemon claims by `claim_careful.sql`. If
# a claim needs a second statement and that one fails, the claim has the Tasks of the first.
#
# Who waits for a claim: cancel, redrive and all others that lock one of its Tasks, until it
# commits, at once after the statement.
#
# Tasks whose "start_before" has passed are failed after the claim, in a transaction of their own
# (`miss` in common/claims.py).

# In seconds: a time may lose this much on its way to the server and back.
_ROUNDING = 2e-6
# A lane, by Type and collection; a position in it, by priority and due time.
_Lane: TypeAlias = tuple[str, str]
_End: TypeAlias = tuple[int, float]


class Claims(ORMClaims):
    """Finds, locks and claims Tasks by one statement: see `claim.sql`."""

    store: "PostgreSQLStore"

    def _claim_unlimited(self, by: Claimant, types: Sequence[str], limit: int) -> list[Attempt]:
        memory = by.memory
        shortcut, known_types = memory.shortcut(Ends), memory.shortcut(KnownTypes)
        types = memory.rotation.order(types)
        ends = shortcut.lanes
        if limit == 1 and not ends and not by.careful:
            claimed = self._first(by, types)
            if claimed:
                return claimed
        part = known_types.of(types)
        look = self._look(by, part or types, limit, ends)
        if part and len(look.rows) < limit:
            part = None
            look = self._followed(look, by, types, limit - len(look.rows), ends)
        if ends and len(look.rows) < limit:
            # The missing Tasks may lie before the ends where the look began.
            ends = {}
            look = self._followed(look, by, types, limit - len(look.rows), ends)
        memory.limited = look.limited or []
        if look.late:
            self._miss(look)
        cut = look.cut or []
        if not ends and not cut and not part:
            shortcut.forget()
        claimed = self._claimed(by, look.rows, look.now, look.types)
        if not part:
            known_types.looked(claimed, limit)
        if not ends and not part:
            shortcut.looked(look)
        memory.rotation.skip(shortcut.cut if ends else cut or look.barren or [])
        return claimed

    def _followed(self, look: "Look", *args: Any, **kwargs: Any) -> "Look":
        """Return this look and another one after it; a lock that stops the other is ignored."""
        try:
            return look.followed_by(self._look(*args, **kwargs))
        except DatabaseError as error:
            if not look.rows or not self.store.is_lock(error):
                raise
            return look

    def _miss(self, look: "Look") -> None:
        try:
            self.miss(who=look.name)
        except DatabaseError as error:
            if not look.rows or not self.store.is_lock(error):
                raise

    def _first(self, by: Claimant, types: list[str]) -> list[Attempt]:
        """Claim one Task by a simple look; return [] if a full look is needed."""
        afters = [by.memory.rotation.after(type) for type in types]
        with cursor_of(self.store.connection) as cursor:
            parameters = {"daemon": str(by.daemon), "types": types, "afters": afters}
            execute(cursor, "claim_first", parameters)
            row = cursor.fetchone()
        return self._claimed(by, [row], row[AT], {row[TYPE]: row[PARAMETERS]}) if row else []

    def take_limited(self, by: Claimant, type: str, rooms: Rooms, wanted: int) -> list[Attempt]:
        rotation = by.memory.rotation
        caps = {lane: rooms.lanes[lane] for lane in rotation.turned(rooms.open_lanes)}
        look = self._look(by, [type], wanted, walks=rooms.whole, caps=caps)
        claimed = self._claimed(by, look.rows, look.now, look.types, apart=True)
        rotation.skip(look.cut or [], apart=True)
        return claimed

    def _claimed(
        self,
        by: Claimant,
        rows: Iterable[tuple[Any, ...]],
        now: float,
        types: Mapping[int, str] | Mapping[str, str],
        *,
        apart: bool = False,
    ) -> list[Attempt]:
        """Return the Tasks claimed in these rows, and remember the claim."""
        at, now = now, datetime.fromtimestamp(now, UTC)
        read = {int(key): parameters_of(text) for key, text in types.items()}
        lanes: dict[_Lane, list[Attempt]]
        ends: dict[_Lane, _End]
        lanes, ends = {}, {}
        for (key, collection), together in groupby(rows, lane_of):
            parameters, _ = read[key]
            own = list(together)
            tasks = [
                Attempt(*row[TASK], parameters, now, False, at - row[DUE])  # type: ignore[call-arg]
                for row in own
            ]
            lane = parameters.type, collection
            lanes.setdefault(lane, []).extend(tasks)
            ends[lane] = own[-1][PRIORITY], own[-1][DUE] - _ROUNDING
        if not apart:
            by.memory.shortcut(Ends).claimed(ends)
        rotation = by.memory.rotation
        rotation.took(
            {lane: len(tasks) for lane, tasks in lanes.items()},
            {parameters.type: weight for parameters, weight in read.values()},
            apart=apart,
        )
        return rotation.dealt(lanes)

    def _look(
        self,
        by: Claimant,
        types: Sequence[str],
        limit: int,
        ends: dict[_Lane, _End] | None = None,
        *,
        walks: bool | None = None,
        caps: Mapping[_Lane, int] | None = None,
        finds: int | None = None,
    ) -> "Look":
        """Claim up to ``limit`` Tasks; returns a :class:`Look`. Raises LeaseLost.

        ``ends`` are the positions where claims of known lanes ended. ``caps`` are the lanes'
        limits. The walk ends with so many ``finds``.
        """
        finds = finds or limit
        rows = self._rows(by, types, limit, ends, walks, caps, finds)
        if not rows:
            raise LeaseLost("The daemon's row is gone, or its lease has run out.")
        look = Look.of(rows)
        if look.slipped and caps is None:
            # Not in a limited lane, where one more look might exceed the limit: those Tasks wait.
            look = self._followed(look, by, types, look.slipped, ends, walks=walks)
            look.sort()
        lacking = limit - len(look.rows)
        if lacking > 0 and look.has_enough and finds < STEPS and (caps is None or not look.rows):
            # Others have locked what was found: look behind that.
            more = {"walks": walks, "caps": caps, "finds": MORE * finds}
            look = self._followed(look, by, types, lacking, ends, **more)
        return look

    def _rows(
        self,
        by: Claimant,
        types: Sequence[str],
        limit: int,
        ends: dict[_Lane, _End] | None,
        walks: bool | None,
        caps: Mapping[_Lane, int] | None,
        finds: int,
    ) -> list[tuple[Any, ...]]:
        rotation, looks_between = by.memory.rotation, by.memory.shortcut(Ends).looks_between
        known: dict[_Lane, tuple[Any, Any]] = {}
        if ends:
            known = {(type, ""): (None, None) for type in types} | ends
        elif caps:
            known = dict.fromkeys(caps, (None, None))
        parameters = {
            "daemon": str(by.daemon),
            "types": types,
            "afters": [rotation.after(type, apart=caps is not None) for type in types],
            "walks": not ends if walks is None else walks,
            "lane_types": [type for type, _ in known],
            "lanes": [collection for _, collection in known],
            "floors": array([priority for priority, _ in known.values()]),
            "dues": array([due for _, due in known.values()]),
            "caps": array([(caps or {}).get(lane) for lane in known]),
            "gaps": bool(ends) and looks_between,
            "limited": caps is not None,
            "limit": limit,
            "finds": finds,
            "most": most_steps(len(types)),
            "enough": enough_lanes(finds, len(types)),
        }
        with cursor_of(self.store.connection) as cursor:
            # One plan serves any number of rows, since all parts of it walk along indexes.
            execute(cursor, "claim_careful" if by.careful else "claim", parameters)
            return cursor.fetchall()


# Limits on PostgreSQL: a statement each to look at them, to lock them, and to find open lanes.


class Limits(ORMLimits):
    """Reads all limits by one statement, and locks those of a Type by another."""

    store: "PostgreSQLStore"

    def _lock_limits(self, type: str) -> bool:
        with cursor_of(self.store.connection) as cursor:
            execute(cursor, "lock_limits", {"type": type})
            return cursor.fetchone()[0]

    def _open_lanes(
        self, type: str, full: Collection[str], after: str, most: int
    ) -> tuple[list[str], list[str]]:
        key = self.rows(Type).filter(identifier=type).values_list("pk", flat=True).first()
        closed = self.store.gates.closed(self.store.now())
        if key is None or closed.shuts(key):
            return [], []
        shut = [collection for of, collection in closed.lanes if of == key]
        parameters = {
            "type": type,
            "after": after,
            "closed": texts([*full, *shut]),
            "limit": most,
            "most": most_steps(1),
        }
        with cursor_of(self.store.connection) as cursor:
            execute(cursor, "open_lanes", parameters)
            rows = cursor.fetchall()
        found = [collection for collection, is_open, _ in rows if is_open]
        return found[:most], [collection for collection, _, is_cut in rows if is_cut]

    def _buckets(self, types: Collection[str], *, daemon: UUID | None = None) -> list[Bucket]:
        asking = None if daemon is None else str(daemon)
        with cursor_of(self.store.connection) as cursor:
            execute(cursor, "limits", {"types": list(types), "daemon": asking})
            rows = cursor.fetchall()
        return [
            Bucket.of(
                Row(*columns, _time(refilled)),  # type: ignore[call-arg]
                columns[1],
                _time(now),
                held=held,
                own=own,
                daemons=max(1, daemons),
            )
            for *columns, refilled, held, own, daemons, now in rows
        ] + self.store.downstreams.guards(types)


@overload
def _time(epoch: float) -> datetime: ...
@overload
def _time(epoch: None) -> None: ...
def _time(epoch: float | None) -> datetime | None:
    return None if epoch is None else datetime.fromtimestamp(epoch, UTC)


# The rows that the claim statement returns, as an object.

# The columns of a row: the place of its lane in the claim, its due time, its Type; and those of
# the claimed Task.
PLACE, DUE, TYPE, INSTANCE = range(4)
TASK = slice(INSTANCE, 15)
COLLECTION = INSTANCE + Attempt.CLAIMED.index("collection")
PRIORITY = INSTANCE + Attempt.CLAIMED.index("priority")
# The first row is about the claim itself: its facts are in the column of the inputs.
_OF_CLAIM = INSTANCE + Attempt.CLAIMED.index("data")
# More columns of claim_first.sql: the time of the claim, and the Type's parameters.
AT, PARAMETERS = 15, 16

lane_of = itemgetter(TYPE, COLLECTION)
# By the place of the lane, then in claim order within the lane.
_ORDER = RowOrder(
    ("place", *CLAIMING_ORDER),
    {"place": PLACE, "priority": PRIORITY, "due_at": DUE, "instance_id": INSTANCE},
)


@dataclass(kw_only=True)
class Look:
    """The Tasks that a claim has found, in claim order in ``rows``, and facts about the claim."""

    now: float
    rows: list[tuple[Any, ...]]
    name: str
    late: bool | None
    # The Types' parameters as text, by the key of the Type.
    types: dict[str, str]
    # In seconds: how long it took to find due Tasks; None if none is due.
    looked: float | None
    steps: int
    cut: list[Any] | None
    barren: list[Any] | None
    limited: list[str] | None
    # The number of Tasks that were locked but not claimed: they had just been handed back.
    slipped: int

    @classmethod
    def of(cls, rows: Iterable[tuple[Any, ...]]) -> Self:
        of_claim, *rows = rows
        look = cls(now=of_claim[DUE], rows=rows, **json.loads(of_claim[_OF_CLAIM]))
        look.sort()
        return look

    @property
    def has_enough(self) -> bool:
        """Whether the walk ended since it had found enough: what it found may be locked."""
        return self.looked is not None and not self.steps

    def sort(self) -> None:
        _ORDER.sort(self.rows)

    def followed_by(self, later: Self) -> Self:
        """Return this look and a later one as one: the rows of both, the facts of the later."""
        return replace(later, rows=self.rows + later.rows, types=self.types | later.types)


# The parameters of a Type, as the claim statements return them.


@lru_cache
def parameters_of(text: str) -> tuple[Parameters, float]:
    """Return the :class:`Parameters` of a Type from this JSON, and the Type's weight."""
    (
        *(type, timeout, max_retries, backoff, backoff_max, max_restarts, max_memory),
        weight,
    ) = json.loads(text)
    parameters = Parameters(
        type=type,
        timeout=None if timeout is None else timedelta(seconds=timeout),
        max_retries=max_retries,
        backoff=timedelta(seconds=backoff),
        backoff_max=timedelta(seconds=backoff_max),
        max_restarts=max_restarts,
        max_memory=max_memory,
    )
    return parameters, weight


# Shortcuts of claims on PostgreSQL: used for a moment after a look was slow.
#
# Each shortcut is an object in the memory of the claiming daemon. A claim without shortcuts finds
# the same Tasks, but may take longer.

# In seconds, a look is slow if it needs more than SLOW to find due Tasks: then it has stepped over
# many dead rows. The next claims begin where this one ended, for TIMES as long as the look took,
# but no longer than AGAIN.
SLOW, TIMES, AGAIN = 0.005, 20, 1.0
# A look of at least MANY steps, over lanes and priorities, is slow after SLOW_OF_MANY seconds. Then
# the next claims do not look between the known lanes.
MANY, SLOW_OF_MANY = 100, 0.001
# In seconds: the shortcut does not help if the look took no longer than this for each lane.
EACH = 20e-6
# If a claim leaves Tasks of more Types than PART waiting, the next claims look at PART Types each,
# in turn. After ALL_AGAIN seconds a claim looks at all Types.
PART, ALL_AGAIN = 24, 0.1


class Ends:
    """The positions where the last claims ended: priority and due time, by lane.

    While they are valid, claims begin there instead of at the beginning of each lane. ``cut`` says
    where the last full look was broken off, as pairs of Type and collection: the next full look
    goes on there, wherever the claims between them end.
    """

    def __init__(self) -> None:
        self._lanes: dict[_Lane, _End] = {}
        self.until = 0.0
        self.cut: list[Any] = []
        # Whether claims look for other lanes between the known ones.
        self.looks_between = True

    @property
    def lanes(self) -> dict[_Lane, _End]:
        """The positions where the next claim begins, by lane; empty for a full look."""
        return self._lanes if time.monotonic() < self.until else {}

    def forget(self) -> None:
        self._lanes = {}

    def claimed(self, ends: dict[_Lane, _End]) -> None:
        """Remember where a claim ended in these lanes; lanes are kept in the order of use."""
        for lane in ends:
            self._lanes.pop(lane, None)
        self._lanes |= ends

    def looked(self, look: Look) -> None:
        """Decide, after a full look, where the claims of the next moment begin.

        They begin at the known ends if the look was slow, or was broken off.
        """
        self.cut = look.cut or []
        looked, is_long = look.looked or 0.0, look.steps >= MANY
        each = looked / max(1, len(self._lanes))
        is_slow = looked > (SLOW_OF_MANY if is_long else SLOW)
        if look.cut and self._lanes:
            self.until = time.monotonic() + AGAIN
            self.looks_between = False
        elif is_slow and each > EACH and len(look.rows) > FEW:
            self.until = time.monotonic() + min(AGAIN, TIMES * looked)
            self.looks_between = not is_long
        else:
            self.until = 0.0


class KnownTypes:
    """The Types of the last full look's Tasks, if more waited than it took.

    While they are valid, claims look at a part of these Types.
    """

    def __init__(self) -> None:
        self.types: frozenset[str] = frozenset()
        self.until = 0.0

    def of(self, types: Iterable[str]) -> list[str] | None:
        """Return the part of ``types`` to look at, in their order; None for all of them."""
        if len(self.types) <= PART or time.monotonic() >= self.until:
            return None
        return [type for type in types if type in self.types][:PART]

    def looked(self, claimed: Collection[Attempt], limit: int) -> None:
        """Remember the Types of a claim that has looked at all Types."""
        self.until = time.monotonic() + ALL_AGAIN
        has_more = len(claimed) >= limit
        self.types = frozenset(task.type for task in claimed) if has_more else frozenset()
