"""Claiming in the portable store."""

import logging

from django.db.models import Exists, F, OuterRef

from ...exceptions import LeaseLost
from ...models import Daemon, Instance, LogRecord, Task, Type
from ...states import Actor, Event, Reason, State
from ..values import Change, Claimed, Parameters
from .base import ORMBase
from .moves import Moves


class Claims(ORMBase):
    # Which Type the next claim starts with, so that none starves another.
    _turn = 0

    def claim(self, daemon, types, limit):
        with self.atomic():
            row = self._leased(daemon)
            now = self.now()
            if not row.lock and row.lease_until <= now:
                raise LeaseLost("The daemon's lease has run out.")
            tasks = self._due(types, now, limit)
            late = [task for task in tasks if task.start_before and task.start_before <= now]
            self._fail_missed([task.pk for task in late], now, str(row))
            in_time = [task for task in tasks if task not in late]
            return self._take(in_time, row, now) if in_time else []

    def miss(self, *, who="", limit=500):
        now = self.now()
        late = self.rows(Task).waiting().filter(start_before__lte=now)
        if not late.exists():
            return 0
        with self.atomic():
            locked = late.select_for_update(skip_locked=True).order_by("pk")[:limit]
            return self._fail_missed([task.pk for task in locked], now, who)

    def _fail_missed(self, keys, now, who):
        """Fail waiting Tasks that are too late to be started; returns how many. They are locked."""
        if not keys:
            return 0
        failed = 0
        moves = Moves(self, now).load(keys)
        for key in keys:
            missed = Change(
                event=Event.FAIL,
                instance=key,
                who=who,
                message="not started before its start_before",
                level=logging.WARNING,
                reason=Reason.MISSED,
            )
            failed += moves.apply(missed, actor=Actor.ANYONE)
        moves.write()
        return failed

    def _leased(self, daemon):
        """Lock the daemon's row, so that its identity cannot end meanwhile."""
        row = self.rows(Daemon).select_for_update(no_key=True).filter(uuid=daemon).first()
        if row is None:
            raise LeaseLost("The daemon's row is gone: its Tasks were taken away.")
        return row

    def _due(self, types, now, limit):
        """Lock due Tasks: an even share of each Type first, then whatever fits."""
        due = self.rows(Task).due(now)
        served = self.rows(Type).filter(identifier__in=types)
        ready = list(
            served.filter(Exists(due.filter(type=OuterRef("pk"))))
            .order_by("pk")
            .values_list("pk", flat=True)
        )
        if not ready:
            return []
        self._turn = (self._turn + 1) % len(ready)
        ready = ready[self._turn :] + ready[: self._turn]
        tasks = []
        for share in (-(-limit // len(ready)), limit):
            for type_id in ready:
                wanted = min(share, limit - len(tasks))
                if wanted <= 0:
                    return tasks
                # A Task that does not fit its Instance is for a scan to mend; it must
                # not lie in front of the others meanwhile.
                lane = due.filter(type=type_id, instance__state=State.ACCEPTED)
                lane = lane.exclude(pk__in=[task.pk for task in tasks])
                locked = lane.select_for_update(skip_locked=True, of=("self",))
                tasks.extend(locked.in_claiming_order()[:wanted])
        return tasks

    def _take(self, tasks, row, now):
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
                    event=Event.CLAIM,
                    state=State.SCHEDULED,
                    attempt=instances[key].attempt,
                    level=logging.INFO,
                    who=str(row),
                )
                for key in keys
            ]
        )
        parameters = {i.type_id: _parameters(i.type) for i in instances.values()}
        return [_claimed(instances[key], parameters, now) for key in keys]


def _parameters(type):
    return Parameters(
        type=type.identifier,
        timeout=type.timeout,
        max_retries=type.max_retries,
        backoff=type.backoff,
        backoff_max=type.backoff_max,
        max_restarts=type.max_restarts,
        max_memory=type.max_memory,
    )


def _claimed(instance, parameters, now):
    return Claimed(
        instance=instance.pk,
        name=str(instance.uuid),
        attempt=instance.attempt,
        format=instance.inputs.format,
        data=instance.inputs.data,
        identifier=instance.identifier,
        collection=instance.collection,
        priority=instance.priority,
        retries=instance.retries,
        restarts=instance.restarts,
        lost=instance.lost,
        parameters=parameters[instance.type_id],
        time=now,
    )
