"""Planning in the portable store: each slot of a schedule is decided once (G16).

Three things keep a slot from running twice: the lock on the Schedule's row, the key of the
Slot, which outlives the Instance, and the identifier of the Instance.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import InterfaceError, OperationalError
from django.db.models import Count

from ....exceptions import InvalidSchedule
from ....models import Schedule, Slot, Type
from ....schedules.models import IN_LINE, Outcome
from ...facts import Planned, timing_of
from ...protocol import Schedules as Contract
from .overlap import Runs
from .slots import PAUSE, enqueued, plan_of, tell_missed

# A schedule that could not be planned is tried again after the first time; after a shorter one, no
# shorter than the second, if its slot would be late by then.
TRY_AGAIN, SOONEST = timedelta(seconds=60), timedelta(seconds=5)
# The columns that planning writes.
PLANNED = ("next_at", "due_at", "planned_until", "planned_offset", "last_id", "trouble")


class Planning(Contract):
    """Plans schedules; ``store`` gives access to the tables, and enqueues."""

    def __init__(self, store):
        self._store = store
        self._runs = Runs(store)

    def plan(self, *, who="", limit=200, now=None, only=None):
        decided = made = 0
        locked, left, has_met, is_whole = set(), set(), True, False
        with self._store.atomic():
            now = now or self._store.now()
            # If another session has locked a Type or a line, only the slots of that one wait.
            while has_met and not is_whole:
                of_type, is_whole = self._due(now, limit, locked, left, only)
                types, has_met = self._store.rows(Type).in_bulk(of_type), False
                for key, rows in of_type.items():
                    done = self._plan(types[key], rows, now, who)
                    if done is None:
                        locked.add(key)
                    else:
                        decided, made = decided + done.decided, made + done.enqueued
                        left |= done.left
                    has_met = has_met or done is None or bool(done.left)
        return Planned(decided=decided, enqueued=made, is_whole=is_whole)

    def _due(self, now, limit, locked, left, only):
        """Return the due schedules by the keys of their Types, and whether there are no others.

        Leaves out the ``locked`` Types, the schedules in ``left``, and locked schedules.
        """
        due = self._store.rows(Schedule).filter(due_at__lte=now)
        due = due.exclude(type__in=locked).exclude(pk__in=left)
        if only is not None:
            due = due.filter(identifier=only)
        rows = list(due.order_by("due_at").select_for_update(skip_locked=True)[:limit])
        of_type = defaultdict(list)
        for row in rows:
            of_type[row.type_id].append(row)
        return of_type, len(rows) < limit

    def _plan(self, type, rows, now, who):
        """Plan schedules of one Type; returns :class:`_Done`, or None if the Type is locked.

        If planning fails, each schedule is planned by itself, so that a broken one stops no other.
        """
        keys = [row.pk for row in rows]
        try:
            with self._store.unless_locked():
                return self._write(type, [plan_of(row, now) for row in rows], now, who)
            return None
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            found = self._store.rows(Schedule).filter(pk__in=keys)
            if len(keys) > 1:
                done = [self._plan(type, [row], now, who) or _Done() for row in found]
                return _Done(
                    sum(each.decided for each in done),
                    sum(each.enqueued for each in done),
                    set().union(*(each.left for each in done)),
                )
            named = "" if isinstance(error, InvalidSchedule) else f"{error.__class__.__name__}: "
            found.update(trouble=f"{named}{error}"[:1000], due_at=now + _pause(found.get(), now))
        return _Done()

    def _write(self, type, plans, now, who):
        """Write the plans of one Type; returns :class:`_Done`."""
        lines = self._runs.lock([plan.row for plan in plans if plan.runs], waits=False)
        left = {p.row.pk for p in plans if p.runs and p.row.overlap in IN_LINE} - lines.keys()
        plans = [plan for plan in plans if plan.row.pk not in left]
        runs = [(plan.row, at) for plan in plans for at in plan.runs]
        taken = self._decided(runs)
        runs = [(row, at) for row, at in runs if (row.pk, at) not in taken]
        run, slots = self._runs.allowed(runs, lines)
        run, more = self._runs.fitting(type, run)
        slots += more
        slots += [slot for plan in plans for slot in plan.slots]
        made = self._runs.enqueue(type, run, lines, who=who) if run else []
        for (row, at), (instance, message) in zip(run, made, strict=True):
            slots.append(enqueued(row, at, instance, message))
            row.last_id = instance.pk
        written = self._keep_slots(slots, now, who)
        self._keep_rows([plan.row for plan in plans if not plan.is_resumed], PLANNED)
        self._keep_rows([plan.row for plan in plans if plan.is_resumed], (*PLANNED, *PAUSE))
        return _Done(written, len(run), left)

    def _decided(self, runs):
        """Return the runs whose slots are decided already, as pairs (schedule's key, slot)."""
        if not runs:
            return set()
        slots = [at for _, at in runs]
        found = self._store.rows(Slot).filter(schedule__in={row.pk for row, _ in runs})
        found = found.filter(at__gte=min(slots), at__lte=max(slots))
        return set(found.values_list("schedule", "at"))

    def _keep_slots(self, slots, now, who):
        """Write new Slots, leaving out existing ones; returns the number of slots decided.

        Slots of a pause that has a row already are added to that row.
        """
        new, count = [], 0
        for slot in slots:
            slot.decided, slot.who = now, who
        self._begin_behind_decided([slot for slot in slots if slot.until is not None])
        for slot in slots:
            count += slot.count
            if slot.outcome != Outcome.PAUSED or not self._extended(slot):
                new.append(slot)
        self._store.rows(Slot).bulk_create(new, ignore_conflicts=True)
        return count

    def _begin_behind_decided(self, slots):
        """Let each of these Slots begin behind those of its slots that a backfill has decided."""
        ends = [(slot.schedule, at) for slot in slots for at in (slot.at, slot.until)]
        taken = self._decided(ends)
        for slot in slots:
            timing = timing_of(slot.schedule)
            while (slot.schedule.pk, slot.at) in taken and slot.at < slot.until:
                slot.at, slot.count = timing.after(slot.at), max(1, slot.count - 1)
                tell_missed(slot)
            if slot.at >= slot.until:
                slot.until = None

    def _extended(self, slot):
        """Add paused slots to the row of the same pause; returns whether there is such a row."""
        last = self._store.rows(Slot).filter(schedule=slot.schedule).order_by("-at").first()
        since = slot.schedule.paused_since
        if last is None or last.outcome != Outcome.PAUSED or since is None or last.at < since:
            return False
        if last.message != slot.message:  # somebody else has paused it again
            return False
        last.count, last.until = last.count + slot.count, slot.until or slot.at
        last.is_more |= slot.is_more
        last.decided, last.who = slot.decided, slot.who
        names = ["count", "until", "is_more", "decided", "who"]
        last.save(using=self._store.alias, update_fields=names)
        return True

    def _keep_rows(self, rows, names):
        """Write these columns of schedules, in far less time than bulk_update() takes."""
        if not rows:
            return
        connection, meta = self._store.connection, Schedule._meta
        fields = [meta.pk, *map(meta.get_field, names)]
        key, *own = [connection.ops.quote_name(field.column) for field in fields]
        table, marks = connection.ops.quote_name(meta.db_table), ["%s"] * len(fields)
        if connection.features.requires_casted_case_in_updates:
            marks = [f"%s::{field.db_type(connection)}" for field in fields]
        values = ", ".join([f"({', '.join(marks)})"] * len(rows))
        update = (  # of names and marks alone
            f"WITH new ({key}, {', '.join(own)}) AS (VALUES {values}) UPDATE {table} "  # noqa: S608
            f"SET {', '.join(f'{name} = new.{name}' for name in own)} "
            f"FROM new WHERE {table}.{key} = new.{key}"
        )
        with connection.cursor() as cursor:
            cursor.execute(
                update,
                [
                    field.get_db_prep_save(getattr(row, field.attname), connection)
                    for row in rows
                    for field in fields
                ],
            )

    def trim(self, *, keep=1000, limit=5_000):
        slots = self._store.rows(Slot).order_by()
        many = slots.values("schedule").annotate(count=Count("pk")).filter(count__gt=keep)
        removed = 0
        for key in list(many.values_list("schedule", flat=True)):
            own = slots.filter(schedule=key)
            for last in own.order_by("-at").values_list("at", flat=True)[keep : keep + 1]:
                old = own.filter(at__lte=last).order_by("at").values_list("pk", flat=True)
                removed += own.filter(pk__in=list(old[: limit - removed])).delete()[0]
            if removed >= limit:
                break
        return removed


def _pause(row, now):
    """Return the time until a schedule is tried again: its slot must not be late by that alone."""
    left = row.next_at + row.late_after - now
    return min(TRY_AGAIN, left / 2) if left > 2 * SOONEST else TRY_AGAIN


@dataclass(frozen=True)
class _Done:
    """The numbers of slots decided and Instances enqueued, and the schedules left for later."""

    decided: int = 0
    enqueued: int = 0
    left: set = field(default_factory=set)
