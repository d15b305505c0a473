"""Changes to waiting Tasks, in the portable store."""

import logging
from datetime import UTC

from .... import messages
from ....exceptions import IllegalTransition, InvalidOption
from ....models import Instance, Kind, LogRecord, Task
from ....states import State
from ..base import ORMBase


class Changing(ORMBase):
    def change(self, instances, changes, *, who=""):
        with self.atomic():
            tasks = self.rows(Task).select_for_update().waiting().filter(pk__in=list(instances))
            tasks = list(tasks.order_by("pk"))
            now = self.now()
            if changes.due is not None or changes.postpone is not None:
                _refuse_blocked(tasks)
            steps = {task.pk: list(_alter(task, changes, now)) for task in tasks}
            changed = [task for task in tasks if steps[task.pk]]
            if changed:
                self._write_changed(changed, steps, now, who)
            return steps

    def _write_changed(self, tasks, steps, now, who):
        fields = ["priority", "collection"]
        self.rows(Task).bulk_update(tasks, [*fields, "due_at"], batch_size=200)
        # The Instance keeps the values too: its next Task copies them.
        copies = [
            Instance(pk=task.pk, **{name: getattr(task, name) for name in fields}) for task in tasks
        ]
        self.rows(Instance).bulk_update(copies, fields, batch_size=200)
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance_id=task.pk,
                    time=now,
                    kind=Kind.CHANGE,
                    state=State.ACCEPTED,
                    attempt=task.attempt,
                    level=logging.INFO,
                    who=who,
                    message=messages.task_changed(steps[task.pk], now),
                )
                for task in tasks
            ]
        )
        if any(task.due_at <= now for task in tasks):
            self.tell()


def _refuse_blocked(tasks):
    """Raise IllegalTransition if a Task waits for others: it becomes due when those end."""
    for task in tasks:
        if task.is_blocked:
            one, of = ("node", "graph") if task.instance.node.graph_id else ("Instance", "schedule")
            others = f"another {one}" if task.waits == 1 else f"{task.waits} other {one}s"
            raise IllegalTransition(
                f"{task.instance} cannot be made due: it waits for {others} of its {of}.",
                state=State.ACCEPTED,
            )


def _alter(task, changes, now):
    """Change a Task in memory; yields name, old value and new value of each changed column."""
    try:
        due = changes.due_at(task.due_at, now)
        due = due.astimezone(UTC)
    except OverflowError:
        raise InvalidOption("The due time is beyond what the calendar holds.") from None
    if due != task.due_at:
        if task.start_before is not None and due >= task.start_before:
            raise InvalidOption(
                f"The due time ({due}) must be earlier than start_before ({task.start_before})."
            )
        yield "due", task.due_at, due
        task.due_at = due
    for name in ("priority", "collection"):
        was, wanted = getattr(task, name), getattr(changes, name)
        if wanted is not None and wanted != was:
            yield name, was, wanted
            setattr(task, name, wanted)
