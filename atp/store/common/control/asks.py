"""Asks to the holders of claimed Tasks; and cancelling, which fails unclaimed Tasks at once."""

import logging

from .... import messages
from ....commands import (
    CANCEL,
    PAUSE,
    RESUME,
    STACK,
    AttemptCommand,
    Cancelled,
    join_request,
    split_request,
)
from ....models import Instance, Kind, LogRecord, Task
from ....states import Actor, Event, Reason, State
from ...values import Move
from ..base import ORMBase
from ..mover import Mover, cancel_requests


class Asks(ORMBase):
    def request(self, instance, request, *, who, message=""):
        with self.atomic():
            tasks = self.rows(Task).select_for_update().filter(pk=instance)
            task = tasks.filter(daemon__isnull=False).exclude(request=CANCEL).first()
            if task is None:
                return False
            states = dict(self.rows(Instance).values_list("pk", "state").filter(pk=instance))
            before, has_stack = split_request(task.request)
            if request == STACK:
                if has_stack or states[instance] not in (State.RUNNING, State.PAUSED):
                    return False
                tasks.update(request=join_request(before, with_stack=True))
            elif not _makes_sense(request, before, states[instance]):
                return False
            else:
                tasks.update(request=join_request(request, with_stack=has_stack))
            self._log_requests([task], states, request, who, message)
            return True

    def cancel(self, instances, *, who=""):
        keys = sorted(set(instances))
        failed, asked, before = [], [], []
        with self.atomic():
            mover = Mover(self, self.now()).load(keys)
            for task in [mover.tasks[key] for key in keys if key in mover.tasks]:
                if task.daemon_id is None:
                    self._fail(mover, task.pk, who)
                    failed.append(task.pk)
                else:
                    (before if task.request == CANCEL else asked).append(task)
            mover.write()
            if asked:
                self.rows(Task).filter(pk__in=[task.pk for task in asked]).update(request=CANCEL)
                states = {task.pk: mover.instances[task.pk].state for task in asked}
                self._log_requests(asked, states, CANCEL, who)
        return Cancelled(
            failed=tuple(failed),
            asked=tuple(task.pk for task in asked),
            before=tuple(task.pk for task in before),
        )

    @staticmethod
    def _fail(mover, key, who):
        move = Move(
            event=Event.FAIL,
            instance=key,
            who=who,
            message=messages.cancelled(),
            level=logging.WARNING,
            reason=Reason.CANCELLED,
        )
        if not mover.apply(move, actor=Actor.ANYONE):
            raise AssertionError(f"a waiting Task belongs to an Instance that does not: {key}")

    def _log_requests(self, tasks, states, request, who, message=""):
        now = self.now()
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance_id=task.pk,
                    time=now,
                    kind=Kind.ASK,
                    state=states[task.pk],
                    attempt=task.attempt,
                    level=logging.INFO,
                    who=who,
                    message=message or messages.command_sent(request),
                    detail=request,
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
            AttemptCommand(
                instance=key, attempt=attempt, request=command, **_by(cancels.get(key), now)
            )
            for key, attempt, request in asked
            for command in _commands(request)
        ]


def _commands(request):
    """Yield the commands in the request of a Task's row."""
    command, has_stack = split_request(request)
    if command:
        yield command
    if has_stack:
        yield STACK


def _makes_sense(request, before, state):
    """Return whether a request to pause or resume makes sense in this state, after ``before``."""
    if request == PAUSE:
        return state == State.RUNNING and before != PAUSE
    if request == RESUME:
        return before == PAUSE or (state == State.PAUSED and before != RESUME)
    return True


def _by(record, now):
    """Return who asked (``who``) and how long ago (``age``), from the LogRecord of the request."""
    if record is None:
        return {}
    return {"who": record.who, "age": max(0.0, (now - record.time).total_seconds())}
