"""Keys that only one live Instance of a Type may have: ``using(unique="customer-7")``.

The key is a column of the Task, under a unique index of Type and key. An Instance that has ended
has no Task: whoever ends it deletes the Task in the same transaction. So the key is free as soon as
the Instance ends, however it ends.

Every enqueue with a key, on both databases, goes through ``enqueue`` in common/enqueueing.py:
in one transaction (a savepoint, if the caller has begun one) it looks for the key, and inserts if
nobody has it. If a second session enqueues the same key before the first has committed:

- On PostgreSQL both find nothing, and the second one's INSERT waits at the unique index. If the
  first rolls back, that INSERT goes on. If the first commits, it raises IntegrityError: the second
  rolls back and begins again. Now it finds the Instance of the first; or nothing, if that has ended
  meanwhile, and inserts.
- On SQLite a transaction writes alone from its beginning (checks.py warns if the project's do not).
  So the second waits before it looks, as long as the database's timeout says.

An enqueue is tried ATTEMPTS times in all; then the caller gets the last error. In a transaction of
the caller at REPEATABLE READ a try sees nothing new, so there the first error is the last.

What an enqueue does with the Instance that it finds, ``existing`` says: return it, raise
UniqueTaken, replace its inputs, or debounce it, which puts it off. The first two lock nothing, so
the Instance may end just after. The last two lock its Task; if it has ended before that
(HolderEnded), the enqueue begins again as above. They raise UniqueTaken if a daemon has claimed the
Task, and replace does if the Instance has begun steps (:meth:`Unique.meet`).

No index spans the names of a renamed Type. There, who enqueues with a key locks one row of the
names first, until the commit (:func:`take_turns`), and so does who redrives Instances with keys
(:class:`Keys`).
"""

import logging
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from django.db.models import F

from ... import messages
from ...exceptions import UniqueTaken
from ...models import Inputs, Instance, Kind, LogRecord, Step, Task, Type, group_renamed_types
from ...options import UNIQUE
from ...payload.codec import Payload
from ...states import State
from ..facts import Changes
from ..values import Submission
from .base import Part

if TYPE_CHECKING:
    from .store import ORMStore


class HolderEnded(Exception):
    """The Instance that had the key has ended meanwhile."""


class Unique(Part):
    """Unique keys: who has one, and what an enqueue of a taken one does."""

    def live(
        self, family: Collection[int], submissions: Iterable[Submission]
    ) -> dict[str | None, Instance]:
        """Return the live Instances that have unique keys of these submissions, by key.

        ``family`` has the keys of the names of their Type.
        """
        keys = {each.unique for each in submissions if each.unique is not None}
        if not keys:
            return {}
        tasks = self.rows(Task).filter(type__in=family, unique_key__in=keys)
        return {task.unique_key: task.instance for task in tasks.select_related("instance__type")}

    def meet(
        self, submission: Submission, taken: Instance, type: str, now: datetime, who: str
    ) -> None:
        """Apply a submission to the live Instance that has its unique key.

        Raises UniqueTaken. With ``replace`` and ``debounce``, raises HolderEnded if that Instance
        is not live any more.
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
            raise HolderEnded
        if task.daemon_id is not None:
            taken.refresh_from_db(using=self.store.alias)
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
            self.store.control.change([taken.pk], Changes(due=submission.due), who=who)
        else:
            self._replace(task, submission.inputs, now, who)
        # The caller gets the Instance and its Task as they are now.
        self.rows(Instance).reload([taken])

    def _replace(self, task: Task, inputs: Payload, now: datetime, who: str) -> None:
        """Give a waiting Task, already locked, other inputs."""
        # A claim that began before this commits would read the old inputs. This update makes such a
        # claim leave the Task alone: a claim does not take rows that were written since it began.
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
            message=messages.inputs_replaced(),
        )


class Keys:
    """The unique keys of Instances that are to be live again, and which of them are free."""

    def __init__(self, store: "ORMStore", instances: Iterable[Instance]) -> None:
        wanted = {(each.type_id, key_of(each)) for each in instances if key_of(each) is not None}
        self._taken: set[tuple[int, str | None]] = set()
        self._families: dict[int, frozenset[int]] = {}
        if wanted:
            self._families = group_renamed_types(store.rows(Type))
            asked = {self._families.get(type_id, frozenset()) for type_id, _ in wanted}
            for family in sorted((each for each in asked if len(each) > 1), key=min):
                take_turns(store, family)
            found = store.rows(Task).filter(unique_key__in={key for _, key in wanted})
            taken = found.values_list("type_id", "unique_key")
            self._taken = {(self._name(type_id), key) for type_id, key in taken}

    def is_free(self, instance: Instance) -> bool:
        key = key_of(instance)
        return key is None or (self._name(instance.type_id), key) not in self._taken

    def take(self, instance: Instance) -> str | None:
        """Mark the key of an Instance as taken, and return it."""
        self._taken.add((self._name(instance.type_id), key_of(instance)))
        return key_of(instance)

    def _name(self, type_id: int) -> int:
        """Return what stands for all names of a Type."""
        return min(self._families.get(type_id, (type_id,)))


def key_of(instance: Instance) -> str | None:
    """Return the unique key of an Instance; None if it has none."""
    return (instance.own or {}).get(UNIQUE)


def take_turns(store: "ORMStore", family: Iterable[int]) -> None:
    """Until the commit, let nobody else enqueue with a unique key or an identifier in this family.

    ``family`` has the primary keys of all names of a renamed Type; the row of the lowest is locked.
    Enqueues without either do not wait for this: they share that row (KEY SHARE), so that nobody
    unregisters the Type.
    """
    rows = store.rows(Type).filter(pk=min(family)).select_for_update(no_key=True)
    list(rows.values_list("pk"))
