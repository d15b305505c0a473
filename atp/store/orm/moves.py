"""A batch of transitions on its way into the database: the guard and the fence."""

import logging

from ... import states
from ...models import Instance, LogRecord, Response, Task
from ...states import Actor, Event, Reason, Row, State
from ..values import CANCEL, Change, cancelled_by

CANCEL_REQUESTED = f"{CANCEL} requested"


class Moves:
    """Loads what the changes touch, applies the transition table, writes once.

    To be used inside one transaction. ``now`` is the database's time. Task
    rows are locked in the order of their keys, so that batches which overlap
    never wait for each other in a circle.
    """

    def __init__(self, store, now):
        self._store = store
        self._now = now
        self.instances = {}
        self.tasks = {}
        self._changed_fields = set()
        self._touched = {}
        self._created = {}
        self._freed = {}
        self._deleted = set()
        self._logs = []
        self._responses = {}

    def load(self, keys, *, waits=True):
        """Lock and read the Instances of these keys, and their Tasks.

        If it does not wait, what somebody else has locked is left out.
        """
        tasks = self._store.rows(Task).select_for_update(skip_locked=not waits)
        self.tasks.update((task.pk, task) for task in tasks.filter(pk__in=keys).order_by("pk"))
        # A live Instance is guarded by its Task row; a terminal one has none.
        without = [key for key in keys if key not in self.tasks]
        instances = self._store.rows(Instance).select_related("type")
        self.instances.update(instances.in_bulk([k for k in keys if k in self.tasks]))
        if without and waits:
            locked = instances.select_for_update(of=("self",)).filter(pk__in=without)
            self.instances.update((i.pk, i) for i in locked.order_by("pk"))
        return self

    def apply(self, change, *, actor, holder=None):
        """Apply one change in memory; returns False if it is refused.

        ``holder`` is the key of the daemon's row where the actor is a HOLDER,
        or where a SWEEPER acts on what that daemon holds. A SWEEPER without one
        acts on what nobody holds, although its Instance says so.
        """
        if change.started is not None:
            return self._apply_start(change, actor, holder)
        instance = self.instances.get(change.instance)
        if instance is None:
            return False
        transition = states.transition(change.event, State(instance.state))
        if transition is None or actor not in transition.actors:
            return False
        task = self.tasks.get(instance.pk)
        if not self._may(change, transition, actor, holder, task):
            return False
        time = change.time or self._now
        self._count(instance, transition)
        self._set(instance, state=transition.target)
        self._date(instance, change, time)
        self._row(instance, task, transition.row, change)
        self._write_log(instance, change, time)
        if change.response is not None:
            self._responses[instance.pk] = change.response
        if transition.row is Row.FREED and task.request == CANCEL:
            self._cancel(instance, change)
        elif change.event == Event.EXPIRE:
            self._give_up_if_stale(instance, change)
        return True

    def _apply_start(self, change, actor, holder):
        """Apply the start of an attempt and then what is recorded together with it."""
        if states.transition(change.event, State.RUNNING) is None:
            return False
        start = Change(
            event=Event.START,
            instance=change.instance,
            attempt=change.attempt,
            time=change.started,
            who=change.who,
        )
        return self.apply(start, actor=actor, holder=holder) and self.apply(
            change._replace(started=None), actor=actor, holder=holder
        )

    @staticmethod
    def _may(change, transition, actor, holder, task):
        """The fence: who holds the Task under this attempt, and nobody else."""
        if actor is Actor.ANYONE and task is None:
            # Where a Task should be and was not found, a redrive has just made it.
            return transition.row is Row.CREATED
        if task is None:
            return False
        if actor is Actor.ANYONE or (actor is Actor.SWEEPER and holder is None):
            return task.daemon_id is None
        if task.daemon_id is None or task.daemon_id != holder:
            return False
        return change.attempt == task.attempt

    def _set(self, instance, **values):
        for name, value in values.items():
            setattr(instance, name, value)
            self._changed_fields.add(name)
        self._touched[instance.pk] = instance

    def _count(self, instance, transition):
        for counter in transition.counts:
            self._set(instance, **{counter: getattr(instance, counter) + 1})
        for counter in transition.resets:
            self._set(instance, **{counter: 0})

    def _date(self, instance, change, time):
        if change.event == Event.START:
            self._set(instance, started=time, progress=None, progress_message="")
        elif instance.is_terminal:
            self._set(instance, finished=time, reason=change.reason)
            if change.event == Event.FINISH:
                self._set(instance, progress=1.0)
        elif instance.finished is not None:
            self._set(instance, finished=None, reason="")

    def _row(self, instance, task, effect, change):
        if effect is Row.DELETED:
            self._deleted.add(instance.pk)
            self._freed.pop(instance.pk, None)
            self._created.pop(instance.pk, None)
            self.tasks.pop(instance.pk, None)
        elif effect is Row.FREED:
            if change.delay is not None:
                task.due_at = self._now + change.delay
            # The move back honours a request to release (house plan, section 2), and a wish to
            # pause was about this attempt.
            if task.request != CANCEL:
                task.request = ""
            if instance.started is not None:
                task.start_before = None  # it was started in time: it cannot be missed any more
            task.daemon = None
            self._freed[instance.pk] = task
        elif effect is Row.CREATED:
            task = Task(
                instance=instance,
                type_id=instance.type_id,
                collection=instance.collection,
                priority=instance.priority,
                due_at=self._now,
                attempt=instance.attempt,
            )
            self._created[instance.pk] = self.tasks[instance.pk] = task

    def _write_log(self, instance, change, time):
        self._logs.append(
            LogRecord(
                instance=instance,
                time=time,
                event=change.event,
                state=instance.state,
                attempt=instance.attempt,
                level=change.level,
                who=change.who,
                message=change.message,
            )
        )

    def _give_up_if_stale(self, instance, change):
        budget = instance.type.max_restarts
        if not states.is_stale(restarts=instance.restarts, lost=instance.lost, max_restarts=budget):
            return
        if instance.restarts > budget:
            told = f"attempts lost while running: {instance.restarts}, restarts allowed: {budget}"
        else:
            told = f"attempts lost before they were seen running: {instance.lost}"
        fail = Change(
            event=Event.FAIL,
            instance=instance.pk,
            who=change.who,
            message=f"given up: {told}; the last one: {change.message or 'not known why'}",
            level=logging.ERROR,
            reason=Reason.STALE,
        )
        self._fail(fail)

    def _cancel(self, instance, change):
        """The move back honours what was asked of the holder (house plan, section 2)."""
        asked = cancel_requests(self._store, [instance.pk]).get(instance.pk)
        fail = Change(
            event=Event.FAIL,
            instance=instance.pk,
            who=change.who,
            message=cancelled_by(asked.who if asked else ""),
            level=logging.WARNING,
            reason=Reason.CANCELLED,
        )
        self._fail(fail)

    def _fail(self, change):
        """Fail what has just been freed."""
        if not self.apply(change, actor=Actor.ANYONE):
            raise AssertionError(f"a freed Instance could not be failed: {change.instance}")

    def write(self):
        """Write all that was applied."""
        store = self._store
        if self._touched:
            store.rows(Instance).bulk_update(
                self._touched.values(), sorted(self._changed_fields), batch_size=200
            )
        if self._freed:
            store.rows(Task).bulk_update(
                self._freed.values(),
                ["daemon", "due_at", "request", "start_before"],
                batch_size=200,
            )
        if self._deleted:
            store.rows(Task).filter(pk__in=self._deleted).delete()
        if self._created:
            store.rows(Task).bulk_create(self._created.values())
        if self._responses:
            self._write_responses()
        store.rows(LogRecord).bulk_create(self._logs)
        if self._freed or self._created:
            store.tell()

    def _write_responses(self):
        fields = ["content_type", "data", "file", "size"]
        self._store.rows(Response).bulk_create(
            [
                Response(
                    instance_id=key,
                    **{name: getattr(response, name) for name in fields},
                )
                for key, response in self._responses.items()
            ],
            update_conflicts=True,
            unique_fields=["instance"],
            update_fields=fields,
        )


def cancel_requests(store, keys):
    """Return by Instance the LogRecord of who asked last for it to be cancelled."""
    asked = store.rows(LogRecord).filter(instance__in=keys, event="", message=CANCEL_REQUESTED)
    return {record.instance_id: record for record in asked.in_order()} if keys else {}
