"""The portable store: its parts put together; rehearsals for the testing kit."""

from functools import cached_property

from ...exceptions import UnknownSchedule
from ...models import BLOCKED, Gate, Instance, Limit, Node, Schedule, Step, Task
from ..facts import timing_of
from .claims import Claims
from .control import Asks, Changing, Filling, Orders, Setting
from .daemons import Daemons
from .enqueueing import Enqueueing, Hooks
from .graphs import Graphs
from .records import Records
from .removal import Removal
from .scan import Scanning
from .schedules import Schedules
from .slots import move_on
from .statistics import Errors, Statistics
from .steps import Steps, Tailers
from .types import Inputs, Types

# Rehearsals in the portable store: claim one Task, let time pass, plan a schedule's slots.

# The number of rows that one statement writes.
PORTION = 500


class Rehearsals(Claims):
    def take(self, daemon, instance):
        with self.atomic():
            row, now = self._locked_row(daemon)
            waiting = self.rows(Task).waiting().filter(pk=instance)
            tasks = list(waiting.select_for_update(of=("self",)))
            return self._take_tasks(tasks, row, now)[0] if tasks else None

    def let_pass(self, time, *, instances=None):
        with self.atomic():
            waiting = self.rows(Task).waiting().exclude(due_at=BLOCKED)
            if instances is not None:
                self._backdate(waiting.filter(pk__in=instances), time, "due_at")
                return
            self._backdate(waiting, time, "due_at")
            dated = self.rows(Node).filter(not_before__isnull=False)
            self._backdate(dated, time, "not_before")
            for model in (Task, Instance):
                limited = self.rows(model).filter(start_before__isnull=False)
                self._backdate(limited, time, "start_before")
            self._backdate(self.rows(Step).filter(until__isnull=False), time, "until")
            self._backdate(self.rows(Gate).filter(until__isnull=False), time, "until")
            self._backdate(self.rows(Limit).filter(refilled__isnull=False), time, "refilled")

    def plan_slots(self, schedule, since, until, *, who=""):
        decided = 0
        rows = self.rows(Schedule).filter(identifier=schedule)
        with self.atomic():
            row = rows.select_for_update().first()
            if row is None:
                raise UnknownSchedule(f"There is no schedule {schedule!r}.")
            if row.due_at is not None and row.due_at <= since:
                move_on(row, timing_of(row), since, since)
                fields = ["next_at", "due_at", "planned_until", "planned_offset"]
                row.save(using=self.alias, update_fields=fields)
            while (at := rows.values_list("due_at", flat=True).get()) and at <= until:
                decided += self.schedules.plan(who=who, now=at, only=schedule).decided
                if rows.values_list("due_at", flat=True).get() == at:
                    break
        return decided

    def as_guest(self):
        return self.vendor.as_guest(self.connection)

    def _backdate(self, rows, time, column):
        moved = list(rows.select_for_update(of=("self",)).order_by("pk"))
        for row in moved:
            setattr(row, column, getattr(row, column) - time)
        for first in range(0, len(moved), PORTION):
            rows.model.objects.using(self.alias).bulk_update(
                moved[first : first + PORTION], [column]
            )


# The portable store: Django's ORM, on any database that Django supports.


class ORMStore(
    *(Types, Enqueueing, Daemons, Rehearsals, Claims, Records, Removal, Scanning),
    *(Setting, Filling, Orders, Asks, Changing),
):
    """The store contract in portable Django ORM."""

    @cached_property
    def schedules(self):
        return Schedules(self)

    @cached_property
    def steps(self):
        return Steps(self)

    @cached_property
    def graphs(self):
        return Graphs(self)

    @cached_property
    def hooks(self):
        return Hooks(self)

    @cached_property
    def errors(self):
        return Errors(self)

    @cached_property
    def inputs(self):
        return Inputs(self)

    @cached_property
    def statistics(self):
        return Statistics(self)

    @cached_property
    def tailers(self):
        return Tailers(self)
