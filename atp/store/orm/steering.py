"""Steering in the portable store: what daemons are told, and changes to what waits."""

import logging
from datetime import UTC

from ... import modes
from ...exceptions import IllegalOrder, InvalidOption, UnknownDaemon
from ...models import Daemon, Instance, LogRecord, Task
from ...states import State
from .base import ORMBase


class Steering(ORMBase):
    def command(self, daemon, order, *, who=""):
        with self.atomic():
            rows = self.rows(Daemon)
            row = rows.select_for_update(no_key=True).filter(uuid=daemon).first()
            if row is None:
                raise UnknownDaemon(f"There is no daemon {daemon}: it has left, or never was.")
            now = self.now()
            if self.is_over(row, now):
                raise _illegal(row, order, "is lost")
            if order not in modes.allowed(row.aim):
                raise _illegal(row, order, _doing(row))
            row.request = modes.REQUESTS[order]
            rows.filter(pk=row.pk).update(request=row.request)
            self.log(subject=f"daemon:{row}", time=now, who=who, message=f"told to {order.label}")
            return row

    def change(self, instances, alteration, *, who=""):
        with self.atomic():
            tasks = self.rows(Task).select_for_update().waiting().filter(pk__in=list(instances))
            tasks = list(tasks.order_by("pk"))
            now = self.now()
            said = {task.pk: "; ".join(_alter(task, alteration, now)) for task in tasks}
            changed = [task for task in tasks if said[task.pk]]
            if changed:
                self._write_changed(changed, said, now, who)
            return said

    def _write_changed(self, tasks, said, now, who):
        fields = ["priority", "collection"]
        self.rows(Task).bulk_update(tasks, [*fields, "due_at"], batch_size=200)
        # As the Instances are, the next Task of each will be.
        copies = [
            Instance(pk=task.pk, **{name: getattr(task, name) for name in fields}) for task in tasks
        ]
        self.rows(Instance).bulk_update(copies, fields, batch_size=200)
        self.rows(LogRecord).bulk_create(
            [
                LogRecord(
                    instance_id=task.pk,
                    time=now,
                    state=State.ACCEPTED,
                    attempt=task.attempt,
                    level=logging.INFO,
                    who=who,
                    message=said[task.pk],
                )
                for task in tasks
            ]
        )
        if any(task.due_at <= now for task in tasks):
            self.tell()


def _illegal(row, order, doing):
    told = f"Daemon {row} cannot be told to {order.label}: it {doing}."
    return IllegalOrder(told, order=order, mode=row.aim)


def _doing(row):
    """What a daemon is doing, or is about to."""
    if row.mode == row.aim:
        return f"is {row.mode}"
    [told] = [order for order, (_, aim) in modes.ORDERS.items() if aim == row.aim]
    return f"has been told to {told.label}"


def _alter(task, alteration, now):
    """Change a Task in memory; returns what is different, in words. Raises InvalidOption."""
    try:
        due = alteration.due_at(task.due_at, now)
        due = due.astimezone(UTC)
    except OverflowError:
        raise InvalidOption("The due time is beyond what the calendar holds.") from None
    if due != task.due_at:
        if task.start_before is not None and due >= task.start_before:
            raise InvalidOption(
                f"The due time ({due}) must be earlier than start_before ({task.start_before})."
            )
        yield f"due {_time(task.due_at, now)} → {_time(due, now)}"
        task.due_at = due
    for name in ("priority", "collection"):
        was, wanted = getattr(task, name), getattr(alteration, name)
        if wanted is not None and wanted != was:
            yield f"{name} {_shown(was)} → {_shown(wanted)}"
            setattr(task, name, wanted)


def _time(time, now):
    return "now" if time == now else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _shown(value):
    return "none" if value == "" else value
