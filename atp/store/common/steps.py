"""The checkpoints of handlers, on any database, by the application's connection."""

import logging

from ... import messages
from ...conf import settings
from ...exceptions import InvalidStep, TaskGone, TooLarge
from ...models import Kind, LogRecord, Step, Task
from ...payload.codec import Payload
from ...states import State
from ..protocol import Steps as Contract
from ..values import Checkpoint


class Steps(Contract):
    def __init__(self, store):
        self._store = store

    def find(self, instance, name):
        row = self._rows(instance).filter(name=name).first()
        if row is None:
            return None
        if row.until is not None:
            raise InvalidStep(f"Step {name!r}: {_other_kind(row)} Give it another name.")
        return _checkpoint(row, None)

    def begin(self, instance, attempt, name, *, who="", delay=None):
        with self._store.atomic():
            if not self._holds(instance, attempt):
                return None
            now = self._store.now()
            row = self._rows(instance).filter(name=name).first()
            if row is None:
                until = None if delay is None else now + delay
                row = self._add(instance, name=name, attempt=attempt, started=now, until=until)
            elif (row.until is None) != (delay is None):
                raise InvalidStep(f"Step {name!r}: {_other_kind(row)} Give it another name.")
            elif row.finished is None and row.until is None:
                if row.attempt != attempt:
                    self._log_repetition(row, attempt, now, who)
                row.attempt, row.started = attempt, now
                row.save(using=self._store.alias, update_fields=["attempt", "started"])
            return _checkpoint(row, now)

    def hold(self, instance, attempt):
        return self._holds(instance, attempt)

    def keep(self, instance, attempt, name, payload, *, took=None):
        with self._store.atomic():
            if not self._holds(instance, attempt):
                return False
            now = self._store.now()
            facts = {"attempt": attempt, "finished": now, **payload._asdict()}
            if not self._rows(instance).filter(name=name).update(**facts):
                self._add(instance, name=name, started=now - took if took else now, **facts)
            return True

    def _rows(self, instance):
        return self._store.rows(Step).filter(instance=instance)

    def _holds(self, instance, attempt):
        return holds(self._store, instance, attempt)

    def _add(self, instance, **facts):
        if self._rows(instance).count() >= settings.MAX_STEPS:
            raise TooLarge(f"step(): one Instance may have {settings.MAX_STEPS} steps.")
        return self._store.rows(Step).create(instance_id=instance, **facts)

    def _log_repetition(self, row, attempt, now, who):
        self._store.rows(LogRecord).create(
            instance_id=row.instance_id,
            time=now,
            kind=Kind.STEP,
            state=State.RUNNING,
            attempt=attempt,
            level=logging.WARNING,
            who=who,
            message=messages.step_repeated(row.name, row.attempt),
            detail=row.name[: LogRecord._meta.get_field("detail").max_length],
        )


def holds(store, instance, attempt):
    """Lock the Task that this attempt holds; False if another session has locked it.

    It does not wait: the caller's open transaction would keep its own locks all the while. Raises
    TaskGone.
    """
    held = store.rows(Task).claimed().filter(pk=instance, attempt=attempt)
    if list(held.select_for_update(skip_locked=True, no_key=True).values_list("pk")):
        return True
    if not held.exists():
        raise TaskGone(f"The Task of attempt {attempt} was taken away.")
    return False


def _checkpoint(row, now):
    if row.until is not None:
        left = max(0.0, (row.until - now).total_seconds())
        return Checkpoint(is_done=not left, left=left)
    if row.finished is None:
        return Checkpoint(is_done=False)
    return Checkpoint(is_done=True, payload=Payload(row.format, row.data))


def _other_kind(row):
    return "an earlier attempt slept under it." if row.until else "it is no sleep."
