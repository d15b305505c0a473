"""The portable store: its parts put together; rehearsals for the testing kit."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from ...exceptions import UnknownSchedule
from ...models import BLOCKED, Gate, Instance, Limit, Node, Schedule, Step, Task
from ..facts import timing_of
from ..values import Attempt
from .base import ORMBase, Part
from .claims import Claims
from .control import Control, Filling, Gates
from .daemons import Daemons
from .enqueueing import Enqueueing, Hooks
from .graph_ends import GraphEnds
from .graphs import Graphs
from .limits import Downstreams, Limits
from .records import Records
from .removal import Removal
from .scan import Upkeep
from .schedules import Schedules
from .slots import move_on
from .statistics import Errors, Statistics
from .steps import Steps, Tailers
from .types import Inputs, Types
from .unique import Unique

# Rehearsals: claim one Task, let time pass, plan a schedule's slots.

# The number of rows that one statement writes.
PORTION = 500


class Rehearsals(Part):
    """What the testing kit needs."""

    def take(self, daemon: UUID, instance: int) -> Attempt | None:
        with self.store.atomic():
            row, now = self.store.claims.locked_row(daemon)
            waiting = self.rows(Task).waiting().filter(pk=instance)
            tasks = list(waiting.select_for_update(of=("self",)))
            return self.store.claims.take_tasks(tasks, row, now)[0] if tasks else None

    def let_pass(self, time: timedelta, *, instances: Iterable[int] | None = None) -> None:
        with self.store.atomic():
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

    def plan_slots(self, schedule: str, since: datetime, until: datetime, *, who: str = "") -> int:
        decided = 0
        rows = self.rows(Schedule).filter(identifier=schedule)
        with self.store.atomic():
            row = rows.select_for_update().first()
            if row is None:
                raise UnknownSchedule(f"There is no schedule {schedule!r}.")
            if row.due_at is not None and row.due_at <= since:
                move_on(row, timing_of(row), since, since)
                fields = ["next_at", "due_at", "planned_until", "planned_offset"]
                row.save(using=self.store.alias, update_fields=fields)
            while (at := rows.values_list("due_at", flat=True).get()) and at <= until:
                decided += self.store.schedules.plan(who=who, now=at, only=schedule).decided
                if rows.values_list("due_at", flat=True).get() == at:
                    break
        return decided

    def as_guest(self) -> AbstractContextManager[None]:
        return self.store.vendor.as_guest(self.store.connection)

    def _backdate(self, rows: QuerySet[Any], time: timedelta, column: str) -> None:
        moved = list(rows.select_for_update(of=("self",)).order_by("pk"))
        for row in moved:
            setattr(row, column, getattr(row, column) - time)
        for first in range(0, len(moved), PORTION):
            rows.model.objects.using(self.store.alias).bulk_update(
                moved[first : first + PORTION], [column]
            )


# The portable store: Django's ORM, on any database that Django supports.


class ORMStore(ORMBase):
    """The store contract in portable Django ORM."""

    @cached_property
    def types(self) -> Types:
        return Types(self)

    @cached_property
    def claims(self) -> Claims:
        return Claims(self)

    @cached_property
    def limits(self) -> Limits:
        return Limits(self)

    @cached_property
    def gates(self) -> Gates:
        return Gates(self)

    @cached_property
    def daemons(self) -> Daemons:
        return Daemons(self)

    @cached_property
    def downstreams(self) -> Downstreams:
        return Downstreams(self)

    @cached_property
    def enqueueing(self) -> Enqueueing:
        return Enqueueing(self)

    @cached_property
    def unique(self) -> Unique:
        return Unique(self)

    @cached_property
    def records(self) -> Records:
        return Records(self)

    @cached_property
    def control(self) -> Control:
        return Control(self)

    @cached_property
    def filling(self) -> Filling:
        return Filling(self)

    @cached_property
    def upkeep(self) -> Upkeep:
        return Upkeep(self)

    @cached_property
    def removal(self) -> Removal:
        return Removal(self)

    @cached_property
    def rehearsals(self) -> Rehearsals:
        return Rehearsals(self)

    @cached_property
    def schedules(self) -> Schedules:
        return Schedules(self)

    @cached_property
    def steps(self) -> Steps:
        return Steps(self)

    @cached_property
    def graphs(self) -> Graphs:
        return Graphs(self)

    @cached_property
    def graph_ends(self) -> GraphEnds:
        return GraphEnds(self)

    @cached_property
    def errors(self) -> Errors:
        return Errors(self)

    @cached_property
    def inputs(self) -> Inputs:
        return Inputs(self)

    @cached_property
    def statistics(self) -> Statistics:
        return Statistics(self)

    @cached_property
    def tailers(self) -> Tailers:
        return Tailers(self)

    @cached_property
    def hooks(self) -> Hooks:
        return Hooks(self)
