"""What is asked of the holders of claimed Tasks; cancelling, which waits for none if it can."""

import logging

from ...models import Instance, LogRecord, Task
from ...states import Actor, Event, Reason, State
from ..values import CANCEL, PAUSE, RESUME, Asked, Cancelled, Change
from .base import ORMBase
from .moves import CANCEL_REQUESTED, Moves, cancel_requests


class Requests(ORMBase):
    def request(self, instance, request, *, who, message=""):
        with self.atomic():
            tasks = self.rows(Task).select_for_update().filter(pk=instance)
            task = tasks.filter(daemon__isnull=False).exclude(request=CANCEL).first()
            if task is None:
                return False
            states = dict(self.rows(Instance).values_list("pk", "state").filter(pk=instance))
            if not _makes_sense(request, task.request, states[instance]):
                return False
            tasks.update(request=request)
            self._log_requests([task], states, who, message or f"{request} requested")
            return True

    def cancel(self, instances, *, who=""):
        keys = sorted(set(instances))
        failed, asked, before = [], [], []
        with self.atomic():
            moves = Moves(self, self.now()).load(keys)
            for task in [moves.tasks[key] for key in keys if key in moves.tasks]:
                if task.daemon_id is None:
                    self._fail(moves, task.pk, who)
                    failed.append(task.pk)
                else:
                    (before if task.request == CANCEL else asked).append(task)
            moves.write()
            if asked:
                self.rows(Task).filter(pk__in=[task.pk for task in asked]).update(request=CANCEL)
                states = {task.pk: moves.instances[task.pk].state for task in asked}
                self._log_requests(asked, states, who, CANCEL_REQUESTED)
        return Cancelled(
            failed=tuple(failed),
            asked=tuple(task.pk for task in asked),
            before=tuple(task.pk for task in before),
        )

    @staticmethod
    def _fail(moves, key, who):
        change = Change(
            event=Event.FAIL,
            instance=key,
            who=who,
            message="cancelled",
            level=logging.WARNING,
            reason=Reason.CANCELLED,
        )
        if not moves.apply(change, actor=Actor.ANYONE):
            raise AssertionError(f"a waiting Task belongs to an Instance that does not: {key}")

    def _log_requests(self, tasks, states, who, message):
        now = self.now()
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance_id=task.pk,
                    time=now,
                    state=states[task.pk],
                    attempt=task.attempt,
                    level=logging.INFO,
                    who=who,
                    message=message,
                )
                for task in tasks
            ]
        )

    def asked(self, daemon):
        held = self.rows(Task).held_by(daemon).exclude(request="")
        asked = list(held.values_list("pk", "attempt", "request"))
        cancels = cancel_requests(self, [key for key, _, request in asked if request == CANCEL])
        now = self.now() if cancels else None
        return [
            Asked(instance=key, attempt=attempt, request=request, **_by(cancels.get(key), now))
            for key, attempt, request in asked
        ]


def _makes_sense(request, before, state):
    """Whether an attempt that runs is to pause, or one that pauses, or is to, to go on."""
    if request == PAUSE:
        return state == State.RUNNING and before != PAUSE
    if request == RESUME:
        return before == PAUSE or (state == State.PAUSED and before != RESUME)
    return True


def _by(record, now):
    """Who asked and how long ago, by the record that tells of it."""
    if record is None:
        return {}
    return {"who": record.who, "age": max(0.0, (now - record.time).total_seconds())}
