"""Scanning without the lock, then claiming in a transaction; limits."""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, overload
from uuid import UUID

from ...exceptions import LeaseLost
from ...models import Type
from ...options import MAX_PRIORITY
from ...querysets import CLAIMING_ORDER
from ..common.claims import Claims as ORMClaims
from ..common.control import Closed
from ..common.control import Gates as ORMGates
from ..common.limits import Bucket, Rooms, Row
from ..common.limits import Limits as ORMLimits
from ..common.turns import Claimant, Rotation, enough_lanes, in_sql, most_steps, taken
from ..values import Attempt, Parameters
from .sessions import as_instant, as_json, as_text

if TYPE_CHECKING:
    from . import SQLiteStore

# A lane that a look has found: Type's key, collection, highest priority with a due Task, if known.
Found = tuple[int, str, int | None]

# The situation of a claim: all facts but the waiting Tasks, read by one statement.

_VERSION = "SELECT data_version FROM pragma_data_version"
# The index is named: with statistics from a time when the queue was empty, or full, the planner
# would choose another.
_IS_LATE = """
    SELECT 1 FROM atp_task INDEXED BY atp_task_missed
    WHERE daemon_id IS NULL AND start_before IS NOT NULL AND start_before <= %(now)s
    LIMIT 1
"""
# The columns of a Type: first its key, then its parameters.
_SITUATION = """
    SELECT 'version', data_version, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM pragma_data_version
  UNION ALL
    SELECT 'daemon', id, host || ':' || pid, CASE WHEN lock = '' THEN lease_until END,
        NULL, NULL, NULL, NULL, NULL
    FROM atp_daemon WHERE uuid = %(daemon)s
  UNION ALL
    SELECT * FROM (
        SELECT 'late', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
        FROM atp_task INDEXED BY atp_task_missed
        WHERE daemon_id IS NULL AND start_before IS NOT NULL AND start_before <= %(now)s
        LIMIT 1
    )
  UNION ALL
    SELECT 'gate', type_id, collection, NULL, NULL, NULL, NULL, NULL, NULL FROM atp_gate
    WHERE until IS NULL OR until > %(now)s
  UNION ALL
    SELECT
        CASE WHEN max_running IS NULL AND per_second IS NULL
            AND max_running_per_collection IS NULL THEN 'weight' ELSE 'limit' END,
        type_id, collection, weight, NULL, NULL, NULL, NULL, NULL
    FROM atp_limit
  UNION ALL
    SELECT 'limit', atp_type.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM json_each(%(types)s) CROSS JOIN atp_type ON identifier = value
    CROSS JOIN atp_downstream ON name = atp_type.downstream
    WHERE atp_type.downstream <> '' AND state <> 'closed'
  UNION ALL
    SELECT 'type', identifier, atp_type.id, timeout, max_retries, backoff, backoff_max,
        max_restarts, max_memory
    FROM json_each(%(types)s) CROSS JOIN atp_type ON identifier = value
"""


class Situation(NamedTuple):
    """The facts that a claim depends on, apart from the waiting Tasks.

    ``served`` are the columns of the Types by identifier, ``weights`` are by the Types' keys.
    ``holder`` is the key and the name of the daemon, and the end of its lease: None if a file lock
    is its lease. ``holder`` is None if the daemon has no row. ``version`` changes whenever another
    connection writes.
    """

    version: int
    holder: tuple[int, str, str | None] | None
    is_late: bool
    gates: Closed
    limits: Closed
    weights: dict[int, float]
    served: dict[str, list[Any]]

    def leased(self, now: datetime) -> tuple[int, str]:
        """Return the key and the name of the daemon. Raises LeaseLost if its lease is over."""
        if self.holder is None:
            raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
        key, name, until = self.holder
        if until is not None and until <= as_text(now):
            raise LeaseLost("The daemon's lease has run out.")
        return key, name

    def not_claimed(self) -> Closed:
        """Return the lanes that are shut or limited, as :class:`Closed`."""
        return Closed(self.gates.pairs | self.limits.pairs)


def situation_of(
    store: "SQLiteStore", types: Sequence[str], now: datetime, *, daemon: UUID | None = None
) -> Situation:
    """Read gates and limits of these Types, and whether the daemon may claim."""
    rows: dict[str, list[list[Any]]]
    found: list[list[Any]]
    rows = {"version": [], "daemon": [], "late": [], "gate": [], "limit": [], "weight": []}
    found = rows["type"] = []
    own = None if daemon is None else daemon.hex
    for kind, *row in store.select(_SITUATION, now=as_text(now), types=as_json(types), daemon=own):
        rows[kind].append(row)
    columns = {identifier: own for identifier, *own in found}
    lanes = rows["limit"] + rows["weight"]
    return Situation(
        version=rows["version"][0][0],
        holder=next((tuple(row[:3]) for row in rows["daemon"]), None),
        is_late=bool(rows["late"]),
        gates=_closed(rows["gate"]),
        limits=_closed(rows["limit"]),
        weights={row[0]: row[2] for row in lanes if row[1] is None and row[2] is not None},
        served={type: columns[type] for type in types if type in columns},
    )


def stands(store: "SQLiteStore", situation: Situation) -> bool:
    """Return whether no other connection has written since the situation was read."""
    return store.select(_VERSION) == [(situation.version,)]


def is_late(store: "SQLiteStore", now: datetime) -> bool:
    """Return whether a waiting Task has missed its ``start_before``."""
    return bool(store.select(_IS_LATE, now=as_text(now)))


def _closed(rows: Iterable[Sequence[Any]]) -> Closed:
    return Closed(frozenset(tuple(row[:2]) for row in rows))


# Waiting Tasks, seen through the first entries of indexes: ready lanes, and due times.

ALL = 2**31
# Tasks that are due at the same time may come in any order here.
_FIRST = in_sql(CLAIMING_ORDER[:-1])

# Indexes are named: with statistics from a time when the queue was empty, or full, the planner
# would choose others.

# The walk goes from lane to lane, all Types in turn: each Type from the lane behind "bound" on and
# round to it; in a lane from the highest priority down to the first with a due Task. A step is one
# look at the first entry of atp_task_claim (LANES_ORDER; waiting Tasks only). So a priority, or a
# lane, whose Tasks are all due later takes one step, however many they are. A row without a
# priority begins a Type. "ready" is the number of ready lanes found before.
_LEVELS = f"""
    WITH RECURSIVE level (
        type_id, turn, bound, collection, priority, due_at, steps, is_ready, ready
    ) AS (
        SELECT value ->> 0, key, value ->> 1, value ->> 1, NULL, NULL, 0, 0, 0
        FROM json_each(%(served)s)
      UNION ALL
        SELECT level.type_id, turn, bound, task.collection, task.priority, task.due_at, steps + 1,
            task.due_at <= %(now)s AND (task.type_id, task.collection) NOT IN (
                SELECT value ->> 0, value ->> 1 FROM json_each(%(closed)s)
            ),
            ready + is_ready
        FROM level CROSS JOIN atp_task task ON task.instance_id = coalesce(
            (
                SELECT instance_id FROM atp_task INDEXED BY atp_task_claim
                WHERE level.due_at > %(now)s
                  AND type_id = level.type_id AND daemon_id IS NULL
                  AND collection = level.collection AND priority < level.priority
                ORDER BY {_FIRST} LIMIT 1
            ),
            (
                SELECT instance_id FROM atp_task INDEXED BY atp_task_claim
                WHERE (level.priority IS NULL OR level.collection > bound)
                  AND type_id = level.type_id AND daemon_id IS NULL
                  AND collection > level.collection
                ORDER BY collection, {_FIRST} LIMIT 1
            ),
            (
                SELECT instance_id FROM atp_task INDEXED BY atp_task_claim
                WHERE (level.priority IS NULL OR level.collection > bound)
                  AND type_id = level.type_id AND daemon_id IS NULL
                  AND collection <= bound
                ORDER BY collection, {_FIRST} LIMIT 1
            ),
            (
                SELECT instance_id FROM atp_task INDEXED BY atp_task_claim
                WHERE level.priority IS NOT NULL AND level.collection <= bound
                  AND type_id = level.type_id AND daemon_id IS NULL
                  AND collection > level.collection AND collection <= bound
                ORDER BY collection, {_FIRST} LIMIT 1
            )
        )
        WHERE steps < %(most)s AND ready + is_ready < %(enough)s
    )
"""  # noqa: S608 (the claim order)
_READY = """
    SELECT type_id, collection, priority, is_ready, steps = %(most)s FROM level
    WHERE is_ready OR steps = %(most)s
    ORDER BY ready, turn
    LIMIT %(limit)s
"""
_DUE = """
    SELECT type_id, collection, min(due_at), max(steps) = %(most)s FROM level
    WHERE due_at NOT NULL GROUP BY 1, 2
"""


def ready_lanes(
    store: "SQLiteStore",
    served: Iterable[tuple[int, str]],
    now: str,
    closed: Closed,
    limit: int,
) -> tuple[list[Found], list[tuple[int, str]]]:
    """Return the lanes with due Tasks, and where the look was broken off; ``now`` is a text.

    ``served`` are pairs: the key of a Type, and the collection to begin behind. A lane is a
    triple: Type's key, collection, highest priority with a due Task. The second value is a list
    of pairs like ``served``.
    """
    served = [pair for pair in served if not closed.shuts(pair[0])]
    limit = ALL if limit < 0 else limit
    rows = store.select(
        _LEVELS + _READY,
        served=as_json(served),
        closed=as_json(closed.lanes),
        now=now,
        limit=limit + len(served),
        enough=enough_lanes(limit, len(served)),
        most=most_steps(len(served)),
    )
    found = [tuple(row[:3]) for row in rows if row[3]]
    return found[:limit], [tuple(row[:2]) for row in rows if row[4]]


def dues(store: "SQLiteStore", served: Collection[int], now: str) -> list[tuple[Any, ...]]:
    """Return for each lane the time when a Task is due: the first one, or one that is due now.

    Each row also says whether the look was broken off in that lane.
    """
    return store.select(
        _LEVELS + _DUE,
        served=as_json([(key, "") for key in served]),
        closed="[]",
        now=now,
        enough=ALL,
        most=most_steps(len(served)),
    )


class Gates(ORMGates):
    """Finds due lanes through the first entries of indexes."""

    store: "SQLiteStore"

    def due_lanes(
        self, types: Iterable[int], closed: Closed, time: datetime, limit: int
    ) -> list[tuple[int, str, int]]:
        found: Any  # each has a priority
        found, _ = ready_lanes(
            self.store, [(key, "") for key in types], as_text(time), closed, limit
        )
        return found


# Claiming on SQLite: a look without the lock first, then the claim in a transaction.

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


class Claims(ORMClaims):
    """Looks for Tasks without the lock, then claims them in a transaction."""

    store: "SQLiteStore"

    def _claim_unlimited(self, by: Claimant, types: Sequence[str], limit: int) -> list[Attempt]:
        # An idle daemon looks often, and must not keep writers waiting.
        look = self._look(by, types, limit) if limit > 0 else None
        if look is None:
            return []
        situation, found, cut = look
        rotation, shortcut = by.memory.rotation, by.memory.shortcut(Known)
        with self.store.atomic():
            now = self.store.now()
            if not stands(self.store, situation):
                situation = situation_of(self.store, types, now, daemon=by.daemon)
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

    def take_limited(self, by: Claimant, type: str, rooms: Rooms, wanted: int) -> list[Attempt]:
        now, rotation = self.store.now(), by.memory.rotation
        situation = situation_of(self.store, [type], now, daemon=by.daemon)
        situation.leased(now)
        key = situation.served[type][0]
        full = {(key, lane[1]) for lane, room in rooms.lanes.items() if not room}
        closed = Closed(situation.gates.pairs | full)
        caps = {lane: rooms.lanes[lane] for lane in rotation.turned(rooms.open_lanes)}
        # If only some lanes of a Type are limited, the others are not looked at here.
        found = None if rooms.whole else [(key, collection, None) for _, collection in caps]
        return self._pick(rotation, situation, closed, now, wanted, caps, found)

    def miss(self, *, who: str = "", limit: int = 500) -> int:
        # Called whenever a claim has brought nothing.
        return super().miss(who=who, limit=limit) if is_late(self.store, self.store.now()) else 0

    def _look(
        self, by: Claimant, types: Sequence[str], limit: int
    ) -> tuple[Situation, list[Found] | None, list[tuple[str, str]]] | None:
        """Return the situation, the lanes with due Tasks, and where the look was broken off.

        The lanes are None if those of the shortcut are to be used. Returns None if there is nothing
        to do.
        """
        now, rotation, shortcut = self.store.now(), by.memory.rotation, by.memory.shortcut(Known)
        situation = situation_of(self.store, types, now, daemon=by.daemon)
        situation.leased(now)
        keys = {columns[0]: type for type, columns in situation.served.items()}
        by.memory.limited = {keys[key] for key, _ in situation.limits.pairs if key in keys}
        if shortcut.lanes(limit):
            return situation, None, []
        # CPU time of this thread, without the waits of a busy machine.
        began = time.thread_time()
        begins = _begins(rotation, situation.served)
        found, cut = ready_lanes(self.store, begins, as_text(now), situation.not_claimed(), limit)
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

    def _pick(  # type: ignore[override]
        self,
        rotation: Rotation,
        situation: Situation,
        closed: Closed,
        now: datetime,
        limit: int,
        caps: Mapping[tuple[str, str], int] | None = None,
        found: Sequence[Found] | None = None,
        least: int = 1,
    ) -> list[Attempt]:
        """Claim an even share of each lane, then fill up from any lane; no lane exceeds its cap.

        Takes from the lanes in ``found``; without it, looks for lanes. Claims nothing if there are
        fewer than ``least`` Tasks.
        """
        apart, caps, served = caps is not None, caps or {}, situation.served
        cut: list[tuple[int, str]] = []

        def ready(most: int) -> list[Found]:
            begins = _begins(rotation, served, apart=apart)
            found, cut[:] = ready_lanes(self.store, begins, as_text(now), closed, most)
            return found

        names = {columns[0]: type for type, columns in served.items()}
        weights = {t: situation.weights.get(columns[0], 1.0) for t, columns in served.items()}

        def take(found: Iterable[Found]) -> dict[tuple[str, str], list[Attempt]]:
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

    def _lanes(
        self,
        found: Iterable[Found],
        closed: Closed,
        served: Mapping[str, Sequence[Any]],
        names: Mapping[int, str],
        now: datetime,
    ) -> dict[tuple[str, str], "Lane"]:
        """Return a :class:`Lane` for each found lane that is not shut by now, by name.

        A lane without a priority is left out if nothing is due in it.
        """
        parameters: dict[str, Parameters] = {}
        lanes: dict[tuple[str, str], Lane] = {}
        for type_id, collection, priority in found:
            # The Type may have been unregistered meanwhile.
            type = names.get(type_id)
            if type is not None and not closed.shuts(type_id, collection):
                if type not in parameters:
                    parameters[type] = parameters_of(type, *served[type][1:])
                lane = Lane(self.store.select, type_id, collection, priority, parameters[type], now)
                if priority is not None or lane.begin():
                    lanes[type, collection] = lane
        return lanes

    def _hold(self, keys: Sequence[int], daemon: int, name: str, now: datetime) -> None:
        keys, count, now = as_json(keys), len(keys), as_text(now)
        self.store.run(_HOLD, keys=keys, daemon=daemon)
        if self.store.run(_MOVE, keys=keys) != count:
            raise AssertionError("a waiting Task belongs to an Instance that is not ACCEPTED")
        self.store.run(_LOG, keys=keys, now=now, who=name)


def _begins(
    rotation: Rotation, served: Mapping[str, Sequence[Any]], *, apart: bool = False
) -> list[tuple[int, str]]:
    """Return the Types' keys in their order, each with the collection to begin behind."""
    order = rotation.order(served)
    return [(served[type][0], rotation.after(type, apart=apart)) for type in order]


# Limits on SQLite: one statement to look at them, and one writer at a time.

# The filter by daemon, of which there are few, lets atp_task_held (daemon, type, collection)
# serve. A time is made text, since the driver would convert a column of times.
_LIMITS = """
    SELECT own.id, identifier, own.collection, weight, max_running, per_second, burst,
        max_running_per_collection, tokens,
        refilled || '', (
            SELECT json_array(count(*), sum(daemon.uuid = %(daemon)s))
            FROM atp_daemon daemon CROSS JOIN atp_task task INDEXED BY atp_task_held
                ON daemon_id = daemon.id AND task.type_id = own.type_id
                AND (own.collection IS NULL OR task.collection = own.collection)
            WHERE own.max_running IS NOT NULL
        ), (SELECT count(*) FROM atp_daemon)
    FROM json_each(%(types)s) CROSS JOIN atp_type type ON identifier = value
    CROSS JOIN atp_limit own ON own.type_id = type.id
    WHERE max_running IS NOT NULL OR per_second IS NOT NULL
      OR max_running_per_collection IS NOT NULL
    ORDER BY own.id
"""


class Limits(ORMLimits):
    """Reads all limits by one statement. Their rows need no locks: there is one writer."""

    store: "SQLiteStore"

    def _lock_limits(self, type: str) -> bool:
        # A transaction that has begun to write is alone.
        return True

    def _open_lanes(
        self, type: str, full: Iterable[str], after: str, most: int
    ) -> tuple[list[str], list[str]]:
        now = self.store.now()
        key = self.rows(Type).filter(identifier=type).values_list("pk", flat=True).first()
        closed = self.store.gates.closed(now)
        closed = replace(closed, pairs=closed.pairs | {(key, collection) for collection in full})
        served = [] if key is None else [(key, after)]
        found, cut = ready_lanes(self.store, served, as_text(now), closed, most)
        return [lane[1] for lane in found], [collection for _, collection in cut]

    def _buckets(self, types: Collection[str], *, daemon: UUID | None = None) -> list[Bucket]:
        asking = None if daemon is None else daemon.hex
        rows = self.store.select(_LIMITS, types=as_json(list(types)), daemon=asking)
        now = self.store.now()
        return [
            Bucket.of(
                Row(  # type: ignore[call-arg]
                    *columns, None if refilled is None else as_instant(refilled)
                ),
                columns[1],
                now,
                held=held,
                own=own or 0,
                daemons=max(1, daemons),
            )
            for *columns, refilled, held, own, daemons in map(_counted, rows)
        ] + self.store.downstreams.guards(types)


def _counted(row: tuple[Any, ...]) -> tuple[Any, ...]:
    *columns, counts, daemons = row
    return *columns, *json.loads(counts), daemons


# The parameters of a Type, as a claim reads them.

COLUMNS = """
    type.identifier, timeout, max_retries, backoff, backoff_max, max_restarts, max_memory
"""


def parameters_of(
    type: str,
    timeout: int | None,
    max_retries: int,
    backoff: int,
    backoff_max: int,
    max_restarts: int,
    max_memory: int | None,
) -> Parameters:
    """Return :class:`Parameters` from the columns of a Type."""
    return Parameters(
        type=type,
        timeout=_duration(timeout),
        max_retries=max_retries,
        backoff=_duration(backoff),
        backoff_max=_duration(backoff_max),
        max_restarts=max_restarts,
        max_memory=max_memory,
    )


@overload
def _duration(microseconds: int) -> timedelta: ...
@overload
def _duration(microseconds: None) -> None: ...
def _duration(microseconds: int | None) -> timedelta | None:
    return None if microseconds is None else timedelta(microseconds=microseconds)


# A shortcut of claims: after a slow look, the next claims use the lanes that it has found.

# In seconds: a look takes more than SLOW if a thousand lanes have nothing due. The next claims use
# the lanes that it has found, for TIMES as long as it took, but no longer than AGAIN.
SLOW, TIMES, AGAIN = 0.001, 50, 1.0
# Asking more lanes than this one by one costs as much as a look.
MANY = 16


class Known:
    """The lanes that the last look has found, valid for a moment.

    A claim uses them if its limit is at least the number of lanes in ``last``; else it looks at
    all. ``cut`` says where the last look was broken off, as pairs of Type and collection: the next
    look goes on there, wherever the claims between them end.
    """

    def __init__(self) -> None:
        self.last: list[tuple[int, str]] = []
        self.cut: list[tuple[str, str]] = []
        self._until = 0.0

    def lanes(self, limit: int) -> list[tuple[int, str]]:
        """Return pairs of a Type's key and a collection; none if the claim has to look at all."""
        if time.monotonic() >= self._until or limit < len(self.last):
            return []
        return self.last

    def forget(self) -> None:
        self._until = 0.0

    def found(
        self, lanes: Sequence[Found], cut: list[tuple[str, str]], limit: int, seconds: float
    ) -> None:
        """Remember the lanes that a look for up to ``limit`` Tasks has found in ``seconds``."""
        self.cut = cut
        self.last = [(type, collection) for type, collection, _ in lanes[:MANY]]
        if seconds > SLOW and len(lanes) <= MANY and len(lanes) < limit:
            self._until = time.monotonic() + min(AGAIN, TIMES * seconds)


# The Tasks that wait in one lane, read only as far as they are needed.

# Walks atp_task_claim in its order, and no further than to the limit. It steps over Tasks that
# are too late to be started, until miss() fails them, and over Tasks that disagree with their
# Instances, until a scan mends them. The due time comes as a text: to convert it as Django does
# takes far longer.
_WAITING = f"""
    SELECT task.instance_id,
        substr(uuid, 1, 8) || '-' || substr(uuid, 9, 4) || '-' || substr(uuid, 13, 4)
            || '-' || substr(uuid, 17, 4) || '-' || substr(uuid, 21),
        task.attempt + 1, inputs.format, inputs.data, instance.identifier,
        task.collection, task.priority, instance.retries, instance.restarts, instance.lost,
        instance.own, task.due_at || ''
    FROM atp_task task INDEXED BY atp_task_claim
    CROSS JOIN atp_instance instance ON instance.id = task.instance_id
    CROSS JOIN atp_inputs inputs INDEXED BY sqlite_autoindex_atp_inputs_1
        ON inputs.instance_id = task.instance_id
    WHERE task.type_id = %(type)s AND task.daemon_id IS NULL
      AND task.collection = %(collection)s AND task.priority = %(priority)s
      AND task.due_at <= %(now)s
      AND (task.start_before IS NULL OR task.start_before > %(now)s)
      AND instance.state = 'ACCEPTED'
    ORDER BY {in_sql(CLAIMING_ORDER[1:], "task.")}
    LIMIT %(wanted)s OFFSET %(taken)s
"""  # noqa: S608 (the claim order)
# Higher than every priority.
ABOVE = MAX_PRIORITY + 1
_LOWER = f"""
    SELECT priority, due_at <= %(now)s FROM atp_task INDEXED BY atp_task_claim
    WHERE type_id = %(type)s AND daemon_id IS NULL AND collection = %(collection)s
      AND priority < %(priority)s
    ORDER BY {in_sql(CLAIMING_ORDER[:-1])} LIMIT 1
"""  # noqa: S608 (the claim order)


class Lane:
    """The due Tasks of a lane in claim order, priority by priority (G8).

    ``priority`` is the highest priority with a due Task; if it is None, call ``begin()`` first.
    ``select`` executes a statement. Write nothing between two calls of ``take()``.
    """

    def __init__(
        self,
        select: Callable[..., list[tuple[Any, ...]]],
        type_id: int,
        collection: str,
        priority: int | None,
        parameters: Parameters,
        time: datetime,
    ) -> None:
        self._query = select
        self._type = type_id
        self._collection = collection
        self._priority = priority
        self._parameters = parameters
        self._time, self._now = time, as_text(time)
        # The column has UTC without saying so.
        self._in_utc = time.astimezone(UTC).replace(tzinfo=None)
        # The number of Tasks taken of this priority.
        self._taken = 0

    def begin(self) -> bool:
        """Find the highest priority with a due Task; returns whether there is one."""
        self._priority = ABOVE
        self._descend()
        return self._priority is not None

    def take(self, wanted: int) -> list[Attempt]:
        """Return up to ``wanted`` further Tasks, as the :class:`Attempt` of the current claim."""
        rows: list[tuple[Any, ...]] = []
        while len(rows) < wanted and self._priority is not None:
            left = wanted - len(rows)
            found = self._select(_WAITING, wanted=left, taken=self._taken)
            self._taken += len(found)
            rows += found
            if len(found) < left:
                self._descend()
        parameters, time, now = self._parameters, self._time, self._in_utc
        read = datetime.fromisoformat
        return [
            Attempt(*row, parameters, time, False, (now - read(due)).total_seconds())  # type: ignore[call-arg]
            for *row, due in rows
        ]

    def _descend(self) -> None:
        """Go on with the next lower priority that has a due Task."""
        self._taken, is_due = 0, False
        while self._priority is not None and not is_due:
            lower = self._select(_LOWER)
            self._priority, is_due = lower[0] if lower else (None, False)

    def _select(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        parameters |= {"type": self._type, "collection": self._collection}
        parameters |= {"priority": self._priority, "now": self._now}
        return self._query(statement, **parameters)
