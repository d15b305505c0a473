"""Keys that only one live Instance of a Type may have: ``using(unique="customer-7")``.

The key is a column of the Task, under a unique index. So it is free as soon as the Instance
ends, however it ends. If two sessions enqueue the same key at once, the second waits for the
first.
"""

import logging

from django.db.models import F

from ...exceptions import UniqueTaken
from ...models import Inputs, LogRecord, Step, Task
from ...payload.own import UNIQUE
from ...rows.log import Kind
from ...states import State
from ...words import log_messages
from ..values import Changes
from .base import ORMBase


class Ended(Exception):
    """The Instance that had the key has ended meanwhile."""


class Unique(ORMBase):
    def live(self, type_id, submissions):
        """Return the live Instances that have unique keys of these submissions, by key."""
        keys = {each.unique for each in submissions if each.unique is not None}
        if not keys:
            return {}
        tasks = self.rows(Task).filter(type=type_id, unique_key__in=keys)
        return {task.unique_key: task.instance for task in tasks.select_related("instance__type")}

    def meet(self, submission, taken, type, now, who):
        """Apply a submission to the live Instance that has its unique key.

        Raises UniqueTaken, or Ended if that Instance is not live any more.
        """
        if submission.existing == "return":
            return
        told = f"The unique key {submission.unique!r} of {type!r}"
        if taken.pk is None:
            raise UniqueTaken(f"{told} is given twice in one call.")
        if submission.existing == "raise":
            raise UniqueTaken(
                f"{told} is taken: {taken.uuid} is {taken.state}. Enqueue with existing='return' "
                "to get it, 'replace' to give it these inputs, or 'debounce' to put it off.",
                taken,
            )
        task = self.rows(Task).select_for_update().filter(pk=taken.pk).first()
        if task is None:
            raise Ended
        if task.daemon_id is not None:
            taken.refresh_from_db(using=self.alias)
            done = "replaced" if submission.existing == "replace" else "put off"
            raise UniqueTaken(
                f"{told} is taken: {taken.uuid} is {taken.state}, so it cannot be {done} any more.",
                taken,
            )
        if submission.existing == "replace" and self.rows(Step).filter(instance=task.pk).exists():
            raise UniqueTaken(
                f"{told} is taken: {taken.uuid} has begun steps with its inputs, so they "
                "cannot be replaced any more.",
                taken,
            )
        who = submission.created_by or who
        if submission.existing == "debounce":
            self.change([taken.pk], Changes(due=submission.due), who=who)
        else:
            self._replace(task, submission.inputs, now, who)

    def _replace(self, task, inputs, now, who):
        """Give a waiting Task, already locked, other inputs."""
        # A claim that began before this commits would read the old inputs. This update makes such a
        # claim leave the Task alone: a claim skips rows that were written since it began.
        self.rows(Task).filter(pk=task.pk).update(due_at=F("due_at"))
        self.rows(Inputs).filter(pk=task.pk).update(format=inputs.format, data=inputs.data)
        self.rows(LogRecord).create(
            instance_id=task.pk,
            time=now,
            kind=Kind.CHANGE,
            state=State.ACCEPTED,
            attempt=task.attempt,
            level=logging.INFO,
            who=who,
            message=log_messages.inputs_replaced(),
        )


class Keys:
    """The unique keys of Instances that are to be live again, and which of them are free."""

    def __init__(self, rows, instances):
        wanted = {_lane(each) for each in instances if key_of(each) is not None}
        self._taken = set()
        if wanted:
            found = rows(Task).filter(unique_key__in={key for _, key in wanted})
            self._taken = set(found.values_list("type_id", "unique_key"))

    def is_free(self, instance):
        return key_of(instance) is None or _lane(instance) not in self._taken

    def take(self, instance):
        """Mark the key of an Instance as taken, and return it."""
        self._taken.add(_lane(instance))
        return key_of(instance)


def key_of(instance):
    """Return the unique key of an Instance; None if it has none."""
    return (instance.own or {}).get(UNIQUE)


def _lane(instance):
    return instance.type_id, key_of(instance)
