"""Mending: Instances and Tasks that disagree are made consistent.

No verb of the queue causes such a disagreement, but a manual change in the database, a restored
backup or a fault may. All functions here lock the rows, look again, and then repair them
according to the transition table, with a line in the log.
"""

import logging
from functools import partial

from ... import messages
from ...models import HOOKED, Instance, Kind, LogRecord, Task
from ...states import CLAIMED, Actor, Event
from ..values import Move
from .base import ORMBase
from .mover import Mover
from .unique import Keys

# So many locks are waited for in one transaction, each as long as the caller waits for any lock.
_MOST_LOCKED = 10


class Mending(ORMBase):
    """The repairs. They return words for what was done, by the key of the Instance.

    They leave alone all that agrees, all that another session has locked, and the Instances in
    ``spare``, which a daemon may still run.
    """

    def mend_tasks(self, keys, now, who, *, spare=frozenset()):
        """Mend the Tasks of these keys."""
        if not keys:
            return {}
        with self.atomic():
            locked = self.rows(Task).select_for_update(skip_locked=True)
            tasks = list(locked.filter(pk__in=keys).order_by("pk"))
            own = self.rows(Instance).filter(pk__in=[task.pk for task in tasks]).order_by("pk")
            there = set(own.values_list("pk", flat=True))
            free = own.select_for_update(skip_locked=True, no_key=True).in_bulk()
            remedy = _Remedy(self, now, who)
            pairs = [
                (task, free.get(task.pk))
                for task in tasks
                if task.pk in free or task.pk not in there
            ]
            of_task = [
                (task.pk, partial(remedy.of_task, task, instance, spare))
                for task, instance in pairs
            ]
            done = self._mended(of_task)
        return {key: words for key, words in done.items() if words}

    def mend_instances(self, keys, now, who, *, spare=frozenset()):
        """Give each live Instance without a Task a new Task."""
        if not keys:
            return {}
        with self.atomic():
            # Code that creates or deletes a Task without being its holder locks the Instance first.
            locked = self.rows(Instance).select_for_update(skip_locked=True)
            instances = list(locked.filter(pk__in=keys, finished__isnull=True).order_by("pk"))
            held = self.rows(Task).filter(pk__in=[instance.pk for instance in instances])
            apart = spare | set(held.values_list("pk", flat=True))
            remedy = _Remedy(self, now, who)
            lacking = [instance for instance in instances if instance.pk not in apart]
            return self._mended([(i.pk, partial(remedy.of_instance, i)) for i in lacking])

    def _mended(self, remedies):
        """Apply the remedies, pairs of a key and a call; returns their words, by key.

        Some need further rows, such as a node, and what waits for its end. If others have locked
        those, the remedy is left for another time, and after many such all the others too.
        """
        done, locked = {}, 0
        for key, remedy in remedies:
            with self.unless_locked() as errors:
                done[key] = remedy()
            locked += len(errors)
            if locked == _MOST_LOCKED:
                break
        return done


class _Remedy:
    """The repair of one locked Instance and its locked Task."""

    def __init__(self, store, now, who):
        self._store = store
        self._tasks, self._instances = store.rows(Task), store.rows(Instance)
        self._now = now
        self._who = who

    def of_task(self, task, instance, spare):
        """Mend a Task; returns words for what was done, or "" if it was all right."""
        if instance is None:
            return self._remove_orphan(task)
        if instance.is_terminal:
            self._tasks.filter(pk=task.pk).delete()
            return self._say(instance, messages.ended_with_task(), messages.task_removed())
        is_held, is_claimed = task.daemon_id is not None, instance.state in CLAIMED
        fits = is_held == is_claimed and (is_held or task.attempt == instance.attempt)
        if fits or task.pk in spare:
            return ""
        if is_held:
            return self._free(task, instance)
        if is_claimed:
            self._level(task, instance)
            return self._expire(task.pk, messages.task_not_held(instance.state))
        what = messages.attempts_differ(instance.attempt, task.attempt)
        self._level(task, instance)
        return self._say(instance, what, messages.attempt_aligned())

    def of_instance(self, instance):
        """Give a live Instance a Task; returns words for what was done."""
        upstreams = self._store.graphs.upstreams([instance.pk])
        waits = upstreams.waits(instance.pk)
        if waits is None and instance.is_hooked:
            waits = HOOKED
        keys = Keys(self._store, [instance])
        Task(
            instance=instance,
            unique_key=keys.take(instance) if keys.is_free(instance) else None,
            type_id=instance.type_id,
            collection=instance.collection,
            priority=instance.priority,
            due_at=upstreams.due(instance, self._now),
            waits=waits,
            start_before=instance.start_before if instance.started is None else None,
            attempt=instance.attempt,
        ).save(using=self._store.alias, force_insert=True)
        if instance.state in CLAIMED:
            return self._expire(instance.pk, messages.no_task(instance.state))
        self._store.tell()
        return self._say(instance, messages.no_task(), messages.task_created())

    def _remove_orphan(self, task):
        self._tasks.filter(pk=task.pk).delete()
        self._store.log(
            Kind.MENDED,
            messages.orphan_removed(task.pk),
            subject=f"type:{task.type.identifier}",
            time=self._now,
            who=self._who,
            level=logging.WARNING,
        )
        return messages.task_removed()

    def _free(self, task, instance):
        self._level(task, instance)
        self._tasks.filter(pk=task.pk).update(daemon=None, request="")
        self._store.tell()
        return self._say(instance, messages.task_held(instance.state), messages.task_freed())

    def _level(self, task, instance):
        """Set both attempts to the higher of the two: an attempt's number never goes down."""
        instance.attempt = max(task.attempt, instance.attempt)
        for rows in (self._tasks, self._instances):
            rows.filter(pk=task.pk).update(attempt=instance.attempt)

    def _expire(self, key, why):
        mover = Mover(self._store, self._now).load([key])
        move = Move(
            event=Event.EXPIRE, instance=key, who=self._who, message=why, level=logging.WARNING
        )
        if not mover.apply(move, actor=Actor.SWEEPER):
            raise AssertionError(f"an attempt that nobody holds could not be expired: {key}")
        mover.write()
        return messages.attempt_expired()

    def _say(self, instance, what, done):
        self._store.rows(LogRecord).create(
            instance_id=instance.pk,
            time=self._now,
            kind=Kind.MENDED,
            state=instance.state,
            attempt=instance.attempt,
            level=logging.WARNING,
            who=self._who,
            message=messages.repaired(what, done),
        )
        return done
