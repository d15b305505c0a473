"""Writing what is to be enqueued of one Type, if there is room for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...store.values import Registration
from .admission import admitted
from .known import looks_at

if TYPE_CHECKING:
    from ...authoring.task_type import TaskType
    from ...models import Instance
    from ...store.contract import Store
    from ...store.values import Submission


def write(
    store: Store, task_types: Sequence[TaskType], submissions: Sequence[Submission]
) -> Sequence[Instance]:
    """Enqueue calls of one Type, which each has with options of its own, all or none.

    One alone is given for all. Raises QueueFull, and what the store does.
    """
    first, *others = task_types
    registration = first.registration()
    if others:
        registration = Registration.of_all(each.registration() for each in task_types)
    if not submissions or not looks_at(store, first):
        return store.enqueue(registration, submissions)
    options = [each.options for each in task_types]
    if not others:
        options *= len(submissions)
    with admitted(store, first, submissions, options) as let_in:
        return store.enqueue(registration, let_in)
