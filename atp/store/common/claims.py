"""Claiming in the portable store."""

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from uuid import UUID

from django.db.models import F

from ... import messages
from ...exceptions import LeaseLost
from ...models import Daemon, Instance, Limit, LogRecord, Task, Type
from ...querysets import TaskQuerySet
from ...states import Actor, Event, Reason, State
from ..values import Attempt, Move, Parameters
from .base import Part
from .control import Closed
from .limits import LIMITING, Rooms
from .transitions import Mover
from .turns import Claimant, ClaimMemory, Rotation, taken


class Claims(Part):
    """Claiming due Tasks, and failing those that are too late."""

    def claim(
        self,
        daemon: UUID,
        types: Sequence[str],
        limit: int,
        *,
        free: int | None = None,
        careful: bool = False,
        memory: ClaimMemory | None = None,
    ) -> list[Attempt]:
        memory = memory or ClaimMemory()
        rotation, full = memory.rotation, memory.full
        by = Claimant(daemon, memory, careful)
        types, free = list(types), limit if free is None else min(free, limit)
        limited = [type for type in types if type in memory.limited]
        parts = rotation.parts(full.not_lately(rotation.behind(limited)), limit)
        early = list(parts)
        claimed = self.store.limits.claim(by, early, limit, free, parts)
        gave = Counter(task.type for task in claimed)
        free = max(0, free - len(claimed))
        if len(claimed) < limit or not limit:
            wanted = limit - len(claimed)
            self.store.limits.add(claimed, lambda: self._claim_unlimited(by, types, wanted))
        left = limit - len(claimed)
        if left > 0:
            # Types that were not looked at yet, and Types that gave their whole part: these may
            # have more.
            done = {type for type in early if gave[type] < parts[type]}
            late = [type for type in types if type in memory.limited and type not in done]
            order = rotation.order(full.not_blocked_lately(late))
            most = min(free, left)
            self.store.limits.add(claimed, lambda: self.store.limits.claim(by, order, left, most))
        return claimed

    def _claim_unlimited(self, by: Claimant, types: Sequence[str], limit: int) -> list[Attempt]:
        """Claim Tasks that no limit covers, and remember which Types are limited."""
        rotation = by.memory.rotation
        with self.store.atomic():
            row, now = self.locked_row(by.daemon)
            known = dict(
                self.rows(Type).filter(identifier__in=types).values_list("identifier", "pk")
            )
            by.memory.limited = self._limited_types(known)
            closed = self.store.gates.closed(now)
            shut = closed.with_limits(self.rows(Limit).filter(LIMITING)).with_types(
                self.store.downstreams.guarded(known).values()
            )
            lanes = self._due_lanes(rotation, types, known, now, shut)
            return self._pick(rotation, lanes, known, row, now, limit)

    def take_limited(self, by: Claimant, type: str, rooms: Rooms, wanted: int) -> list[Attempt]:
        rotation = by.memory.rotation
        row, now = self.locked_row(by.daemon)
        known = dict(self.rows(Type).filter(identifier=type).values_list("identifier", "pk"))
        lanes = self._due_lanes(
            rotation, [type], known, now, self.store.gates.closed(now), apart=True
        )
        lanes = [lane for lane in lanes if rooms.lanes.get(lane, rooms.whole)]
        return self._pick(rotation, lanes, known, row, now, wanted, rooms.lanes)

    def locked_row(self, daemon: UUID) -> tuple[Daemon, datetime]:
        """Return the daemon's row, locked, and the database's time. Raises LeaseLost."""
        row = self._leased(daemon)
        now = self.store.now()
        if not row.lock and row.lease_until <= now:
            raise LeaseLost("The daemon's lease has run out.")
        return row, now

    def _limited_types(self, known: Mapping[str, int]) -> set[str]:
        limited = self.rows(Limit).filter(LIMITING, type__in=known.values())
        return (
            set(limited.values_list("type__identifier", flat=True))
            | self.store.downstreams.guarded(known).keys()
        )

    def _due_lanes(
        self,
        rotation: Rotation,
        types: Iterable[str],
        known: Mapping[str, int],
        now: datetime,
        closed: Closed,
        *,
        apart: bool = False,
    ) -> list[tuple[str, str]]:
        """Return the lanes with due Tasks: the first lane of each Type, then the second ones, …"""
        due = self.sound(now)
        rows = []
        for type in rotation.order(types):
            if type in known and not closed.shuts(known[type]):
                own = due.filter(type=known[type])
                names = own.order_by("collection").values_list("collection", flat=True).distinct()
                behind = rotation.after(type, apart=apart)
                rows.append(
                    [
                        (type, name)
                        for part in (
                            names.filter(collection__gt=behind),
                            names.filter(collection__lte=behind),
                        )
                        for name in part
                        if not closed.shuts(known[type], name)
                    ]
                )
        return [lane for step in zip_longest(*rows) for lane in step if lane is not None]

    def _pick(
        self,
        rotation: Rotation,
        lanes: Sequence[tuple[str, str]],
        known: Mapping[str, int],
        row: Daemon,
        now: datetime,
        limit: int,
        caps: Mapping[tuple[str, str], int] | None = None,
    ) -> list[Attempt]:
        """Claim an even share of each lane, then fill up from any lane; no lane exceeds its cap."""
        lanes = lanes[: max(limit, 0)]
        weights = self._weights(known)
        locked: set[int] = set()

        def lock(lane: tuple[str, str], wanted: int) -> list[Task]:
            tasks = self._lock(known[lane[0]], lane[1], now, wanted, locked) if wanted else []
            locked.update(task.pk for task in tasks)
            return tasks

        picked = taken(limit, weights, lanes, caps or {}, lock)
        tasks = [task for lane in picked.values() for task in lane]
        late = [task for task in tasks if task.start_before and task.start_before <= now]
        self._fail_missed([task.pk for task in late], now, str(row))
        in_time = [task for task in tasks if task not in late]
        claimed = self.take_tasks(in_time, row, now) if in_time else []
        by_lane: dict[tuple[str, str], list[Attempt]] = {lane: [] for lane in lanes}
        for each in claimed:
            by_lane[each.type, each.collection].append(each)
        by_lane = {lane: own for lane, own in by_lane.items() if own}
        counts = {lane: len(own) for lane, own in by_lane.items()}
        rotation.took(counts, weights, apart=caps is not None)
        return rotation.dealt(by_lane) if by_lane else []

    def _lock(
        self, type_id: int, collection: str, now: datetime, wanted: int, locked: Collection[int]
    ) -> list[Task]:
        """Lock up to ``wanted`` due Tasks of a lane in claim order, except those in ``locked``."""
        due = self.sound(now).filter(type=type_id, collection=collection)
        due = due.exclude(pk__in=locked)
        due = due.select_for_update(skip_locked=True, of=("self",))
        return list(due.in_claiming_order()[:wanted])

    def sound(self, now: datetime) -> TaskQuerySet:
        """Return the due Tasks that agree with their Instances.

        A scan mends the others. Until then they must not block the Tasks behind them.
        """
        return self.rows(Task).due(now).filter(instance__state=State.ACCEPTED)

    def _weights(self, known: Mapping[str, int]) -> dict[str, float]:
        rows = self.rows(Limit).filter(type__in=known.values(), collection=None)
        weights = dict(rows.values_list("type__identifier", "weight"))
        return {type: weights.get(type, 1.0) for type in known}

    def miss(self, *, who: str = "", limit: int = 500) -> int:
        now = self.store.now()
        late = self.rows(Task).waiting().filter(start_before__lte=now)
        if not late.exists():
            return 0
        with self.store.atomic():
            locked = late.select_for_update(skip_locked=True).order_by("pk")[:limit]
            return self._fail_missed([task.pk for task in locked], now, who)

    def _fail_missed(self, keys: Collection[int], now: datetime, who: str) -> int:
        """Fail locked, waiting Tasks whose ``start_before`` has passed; returns how many."""
        if not keys:
            return 0
        failed = 0
        mover = Mover(self.store, now).load(keys, waits=False)
        for key in keys:
            missed = Move(
                event=Event.FAIL,
                instance=key,
                who=who,
                message=messages.missed(),
                level=logging.WARNING,
                reason=Reason.MISSED,
            )
            failed += mover.apply(missed, actor=Actor.ANYONE)
        mover.write()
        return failed

    def _leased(self, daemon: UUID) -> Daemon:
        """Lock and return the daemon's row, so that its identity cannot end meanwhile."""
        row = self.rows(Daemon).select_for_update(no_key=True).filter(uuid=daemon).first()
        if row is None:
            raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
        return row

    def take_tasks(self, tasks: Sequence[Task], row: Daemon, now: datetime) -> list[Attempt]:
        keys = [task.pk for task in tasks]
        self.rows(Task).filter(pk__in=keys, daemon__isnull=True).update(
            daemon=row, attempt=F("attempt") + 1, request=""
        )
        moved = self.rows(Instance).filter(pk__in=keys, state=State.ACCEPTED)
        if moved.update(state=State.SCHEDULED, attempt=F("attempt") + 1) != len(keys):
            raise AssertionError("a waiting Task belongs to an Instance that is not ACCEPTED")
        instances = self.rows(Instance).select_related("type", "inputs").in_bulk(keys)
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance_id=key,
                    time=now,
                    kind=Event.CLAIM,
                    state=State.SCHEDULED,
                    attempt=instances[key].attempt,
                    level=logging.INFO,
                    who=str(row),
                )
                for key in keys
            ]
        )
        parameters = {i.type_id: _parameters(i.type) for i in instances.values()}
        return [
            _claimed(instances[task.pk], parameters, now, (now - task.due_at).total_seconds())
            for task in tasks
        ]


def _parameters(type: Type) -> Parameters:
    return Parameters(
        type=type.identifier,
        timeout=type.timeout,
        max_retries=type.max_retries,
        backoff=type.backoff,
        backoff_max=type.backoff_max,
        max_restarts=type.max_restarts,
        max_memory=type.max_memory,
    )


def _claimed(
    instance: Instance, parameters: Mapping[int, Parameters], now: datetime, waited: float
) -> Attempt:
    return Attempt(
        instance=instance.pk,
        uuid_text=str(instance.uuid),
        number=instance.attempt,
        format=instance.inputs.format,
        data=instance.inputs.data,
        identifier=instance.identifier,
        collection=instance.collection,
        priority=instance.priority,
        retries=instance.retries,
        restarts=instance.restarts,
        lost=instance.lost,
        own=None if instance.own is None else json.dumps(instance.own),
        parameters=parameters[instance.type_id],
        time=now,
        waited=waited,
    )
