"""Write Submissions of one Type, if there is room for them."""

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
    """Enqueue Submissions of one Type, all or none.

    ``task_types`` is the Type with the options of each call, or a single one for all calls. Raises
    QueueFull, and what the store raises.
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
