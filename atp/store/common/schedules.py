"""Declaring schedules, deciding each slot once, overlaps, backfills."""

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, InterfaceError, OperationalError
from django.db.models import Count, Q
from django.db.models.functions import Coalesce

from ... import messages, options
from ...exceptions import (
    IllegalSchedule,
    InvalidSchedule,
    ScheduleChanged,
    UnknownSchedule,
    UnknownType,
)
from ...graphs.models import Condition
from ...models import (
    BLOCKED,
    HOOKED,
    Edge,
    Instance,
    Kind,
    Node,
    Schedule,
    Slot,
    Task,
    Type,
    group_renamed_types,
)
from ...payload.binding import mask_json
from ...schedules.models import IN_LINE, LONGEST_LINE, Outcome, Overlap
from ...schedules.timing import Timing
from ...states import LIVE
from ...text import did_you_mean
from ..facts import Planned, ScheduleSpec, timing_of
from ..values import Registration, Submission, read_hooks
from .base import Part
from .slots import (
    PAUSE,
    Plan,
    close,
    delay,
    enqueued,
    follow_rules,
    full,
    inputs_of,
    instance_identifier,
    keep_rules,
    move_on,
    no_room,
    passed_over,
    plan_of,
    resume,
    skipped,
    tell_missed,
)

if TYPE_CHECKING:
    from .store import ORMStore

# Planning in the portable store: each slot of a schedule is decided once (G16).
#
# Three things keep a slot from running twice: the lock on the Schedule's row, the key of the
# Slot, which outlives the Instance, and the identifier of the Instance.

# A schedule that could not be planned is tried again after the first time; after a shorter one, no
# shorter than the second, if its slot would be late by then.
TRY_AGAIN, SOONEST = timedelta(seconds=60), timedelta(seconds=5)
# The columns that planning writes.
PLANNED = ("next_at", "due_at", "planned_until", "planned_offset", "last_id", "trouble")


def _pause(row: Schedule, now: datetime) -> timedelta:
    """Return the time until a schedule is tried again: its slot must not be late by that alone."""
    next_at: Any = row.next_at
    left = next_at + row.late_after - now
    return min(TRY_AGAIN, left / 2) if left > 2 * SOONEST else TRY_AGAIN


@dataclass(frozen=True)
class _Done:
    """The numbers of slots decided and Instances enqueued, and the schedules left for later."""

    decided: int = 0
    enqueued: int = 0
    left: set[int] = field(default_factory=set)


class _Stretch:
    """The slots that one row of Slot stands for, by the timing of its schedule."""

    def __init__(self, row: Slot, timing: Timing) -> None:
        self._row, self._timing = row, timing
        self._last = row.until or row.at

    @property
    def fits(self) -> bool:
        """Whether the row begins and ends with slots of this timing."""
        ends = (self._row.at, self._last)
        return all(self._timing.after(at - timedelta.resolution) == at for at in ends)

    def take_out(self, slots: Iterable[datetime], gone: Container[datetime]) -> bool:
        """Take slots out of the row; return whether others are left.

        ``gone`` are these slots, and those that were taken out before.
        """
        row, first, last = self._row, self._row.at, self._last
        row.count -= sum(first <= at <= last for at in slots)
        while first in gone and first <= last:
            first = self._timing.after(first)
        if first > last or (row.count <= 0 and not row.is_more):
            return False
        while last in gone:
            last = self._timing.before(last)
        row.count = max(row.count, 1)
        row.at, row.until = first, last if last != first else None
        return True


def _check_room(row: Schedule, lines: Mapping[int, "Line"], count: int) -> None:
    """Raise IllegalSchedule if ``count`` more Instances do not fit into a schedule's line."""
    line = lines.get(row.pk)
    if line is None or row.overlap != Overlap.QUEUE:
        return
    waiting = line.waiting + count - (0 if line.live else 1)
    if waiting > LONGEST_LINE:
        raise IllegalSchedule(
            f"Of {row.identifier!r} {waiting} Instances would wait for each other, and "
            f"{LONGEST_LINE} may: {line.waiting} wait already. Take fewer slots, or later."
        )


# Setting schedules in the portable store: by code, and by operators.

# The columns that decide the times of slots. When one changes, the schedule starts anew.
_TIMES = ("cron", "every", "timezone")


class Schedules(Part):
    """Schedules: their slots, their runs, and what operators set."""

    def __init__(self, store: "ORMStore") -> None:
        super().__init__(store)
        self._runs = Runs(store)

    def plan(
        self,
        *,
        who: str = "",
        limit: int = 200,
        now: datetime | None = None,
        only: str | None = None,
    ) -> Planned:
        decided = made = 0
        locked: set[int] = set()
        left: set[int] = set()
        has_met, is_whole = True, False
        with self.store.atomic():
            now = now or self.store.now()
            # If another session has locked a Type or a line, only the slots of that one wait.
            while has_met and not is_whole:
                of_type, is_whole = self._due(now, limit, locked, left, only)
                types, has_met = self.store.rows(Type).in_bulk(of_type), False
                for key, rows in of_type.items():
                    done = self._plan(types[key], rows, now, who)
                    if done is None:
                        locked.add(key)
                    else:
                        decided, made = decided + done.decided, made + done.enqueued
                        left |= done.left
                    has_met = has_met or done is None or bool(done.left)
        return Planned(decided=decided, enqueued=made, is_whole=is_whole)

    def _due(
        self,
        now: datetime,
        limit: int,
        locked: Collection[int],
        left: Collection[int],
        only: str | None,
    ) -> tuple[dict[int, list[Schedule]], bool]:
        """Return the due schedules by the keys of their Types, and whether there are no others.

        Leaves out the ``locked`` Types, the schedules in ``left``, and locked schedules.
        """
        due = self.store.rows(Schedule).filter(due_at__lte=now)
        due = due.exclude(type__in=locked).exclude(pk__in=left)
        if only is not None:
            due = due.filter(identifier=only)
        rows = list(due.order_by("due_at").select_for_update(skip_locked=True)[:limit])
        of_type: dict[int, list[Schedule]] = defaultdict(list)
        for row in rows:
            of_type[row.type_id].append(row)
        return of_type, len(rows) < limit

    def _plan(self, type: Type, rows: Sequence[Schedule], now: datetime, who: str) -> _Done | None:
        """Plan schedules of one Type; returns :class:`_Done`, or None if the Type is locked.

        If planning fails, each schedule is planned by itself, so that a broken one stops no other.
        """
        keys = [row.pk for row in rows]
        try:
            with self.store.unless_locked():
                return self._write(type, [plan_of(row, now) for row in rows], now, who)
            return None
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            found = self.store.rows(Schedule).filter(pk__in=keys)
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

    def _write(self, type: Type, plans: list[Plan], now: datetime, who: str) -> _Done:
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

    def _decided(self, runs: Sequence[tuple[Schedule, datetime]]) -> set[tuple[int, datetime]]:
        """Return the runs whose slots are decided already, as pairs (schedule's key, slot)."""
        if not runs:
            return set()
        slots = [at for _, at in runs]
        found = self.store.rows(Slot).filter(schedule__in={row.pk for row, _ in runs})
        found = found.filter(at__gte=min(slots), at__lte=max(slots))
        return set(found.values_list("schedule", "at"))

    def _keep_slots(self, slots: Sequence[Slot], now: datetime, who: str) -> int:
        """Write new Slots, leaving out existing ones; returns the number of slots decided.

        Slots of a pause that has a row already are added to that row.
        """
        new: list[Slot] = []
        count = 0
        for slot in slots:
            slot.decided, slot.who = now, who
        self._begin_behind_decided([slot for slot in slots if slot.until is not None])
        for slot in slots:
            count += slot.count
            if slot.outcome != Outcome.PAUSED or not self._extended(slot):
                new.append(slot)
        self.store.rows(Slot).bulk_create(new, ignore_conflicts=True)
        return count

    def _begin_behind_decided(self, slots: Sequence[Slot]) -> None:
        """Let each of these Slots begin behind those of its slots that a backfill has decided."""
        ends: list[Any] = [(slot.schedule, at) for slot in slots for at in (slot.at, slot.until)]
        taken = self._decided(ends)
        for slot in slots:
            timing = timing_of(slot.schedule)
            until: Any = slot.until
            while (slot.schedule.pk, slot.at) in taken and slot.at < until:
                slot.at, slot.count = timing.after(slot.at), max(1, slot.count - 1)
                tell_missed(slot)
            if slot.at >= until:
                slot.until = None

    def _extended(self, slot: Slot) -> bool:
        """Add paused slots to the row of the same pause; returns whether there is such a row."""
        last = self.store.rows(Slot).filter(schedule=slot.schedule).order_by("-at").first()
        since = slot.schedule.paused_since
        if last is None or last.outcome != Outcome.PAUSED or since is None or last.at < since:
            return False
        if last.message != slot.message:  # somebody else has paused it again
            return False
        last.count, last.until = last.count + slot.count, slot.until or slot.at
        last.is_more |= slot.is_more
        last.decided, last.who = slot.decided, slot.who
        names = ["count", "until", "is_more", "decided", "who"]
        last.save(using=self.store.alias, update_fields=names)
        return True

    def _keep_rows(self, rows: Collection[Schedule], names: Iterable[str]) -> None:
        """Write these columns of schedules, in far less time than bulk_update() takes."""
        if not rows:
            return
        connection, meta = self.store.connection, Schedule._meta
        fields: list[Any] = [meta.pk, *map(meta.get_field, names)]
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

    def trim(self, *, keep: int = 1000, limit: int = 5_000) -> int:
        slots = self.store.rows(Slot).order_by()
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

    # Instances that operators ask for beside the slots: run now, and backfills.

    def run(self, identifier: str, *, who: str = "") -> Instance:
        with self.store.atomic():
            row = self._schedule(identifier)
            if row.retired is not None:
                raise IllegalSchedule(f"{identifier!r} cannot be run: no code declares it.")
            lines = self._runs.lock([row])
            _check_room(row, lines, 1)
            now = self.store.now()
            [(instance, _)] = self._runs.enqueue(row.type, [(row, None)], lines, who=who, since=now)
            row.last_id = instance.pk
            row.save(using=self.store.alias, update_fields=["last_id"])
            message = messages.schedule_run(instance.uuid)
            self._log(identifier, now, who, "run", message)
            return instance

    def backfill(self, identifier: str, slots: Sequence[datetime], *, who: str = "") -> Planned:
        with self.store.atomic():
            row, now = self._schedule(identifier), self.store.now()
            if slots and row.next_at is not None and row.next_at <= slots[-1]:
                # Otherwise a backfilled slot would also be one that nobody has planned.
                self.plan(who=who, now=now, only=identifier)
                row.refresh_from_db()
            there = self.store.rows(Slot).filter(schedule=row)
            ran = set(
                there.filter(outcome=Outcome.ENQUEUED, at__in=slots).values_list("at", flat=True)
            )
            ran |= self._runs.there(row, [at for at in slots if at not in ran])
            runs = [(row, at) for at in slots if at not in ran]
            # With the overlap "cancel" each run would cancel the one before. So they run side by
            # side.
            lines = self._runs.lock([row] if row.overlap == Overlap.QUEUE else [])
            _check_room(row, lines, len(runs))
            # Of a slot that has passed, the time to start would be over.
            made = self._runs.enqueue(row.type, runs, lines, who=who, since=now) if runs else []
            self._take_out(row, [at for _, at in runs])
            new: list[Slot] = []
            for (_, at), (instance, message) in zip(runs, made, strict=True):
                said = messages.slot_backfilled(message)
                new.append(enqueued(row, at, instance, said))
                new[-1].decided, new[-1].who = now, who
            self.store.rows(Slot).bulk_create(new)
            self._log(identifier, now, who, "backfill", messages.schedule_backfilled(len(runs)))
            uuids = tuple(instance.uuid for instance, _ in made)
            return Planned(decided=len(runs), enqueued=len(runs), instances=uuids)

    def _take_out(self, row: Schedule, slots: Sequence[datetime]) -> None:
        """Remove slots that are backfilled from the rows that gave them another outcome."""
        if not slots:
            return
        timing, wanted = timing_of(row), set(slots)
        others = self.store.rows(Slot).filter(schedule=row).exclude(outcome=Outcome.ENQUEUED)
        ends = Coalesce("until", "at")
        own = self.store.rows(Slot).filter(schedule=row, outcome=Outcome.ENQUEUED)
        gone = wanted | set(own.values_list("at", flat=True))
        for other in others.annotate(last=ends).filter(at__lte=slots[-1], last__gte=slots[0]):
            found = _Stretch(other, timing)
            if not found.fits:  # it stands for slots of other times, before a change
                if other.at in wanted and other.until is not None:  # its key is needed
                    other.at, other.until = other.until, None
                    other.count = max(1, other.count - 1)
                    tell_missed(other)
                    other.save(using=self.store.alias)
                continue
            if found.take_out(slots, gone):
                tell_missed(other)
                other.save(using=self.store.alias)
            else:
                other.delete(using=self.store.alias)

    def _schedule(self, identifier: str) -> Schedule:
        """Return a schedule, locked. Raises UnknownSchedule."""
        rows = self.store.rows(Schedule).select_for_update()
        row = rows.filter(identifier=identifier).first()
        if row is None:
            names = self.store.rows(Schedule).values_list("identifier", flat=True)
            raise UnknownSchedule(
                f"There is no schedule {identifier!r}.{did_you_mean(identifier, names)}"
            )
        return row

    def _log(self, identifier: str, now: datetime, who: str, verb: str, message: str) -> None:
        self.store.log(
            Kind.SCHEDULE,
            message,
            subject=f"schedule:{identifier}",
            time=now,
            who=who,
            detail=verb,
        )

    def declare(self, specs: Sequence[ScheduleSpec], *, who: str = "") -> set[str]:
        wanted = {spec.identifier: spec for spec in specs}
        # If nothing differs, nothing is locked.
        rows = self.store.rows(Schedule).filter(identifier__in=list(wanted), retired__isnull=True)
        same = {row.identifier for row in rows if row.declared == wanted[row.identifier].document()}
        different = [spec for name, spec in wanted.items() if name not in same]
        if not different:
            return set()
        with self.store.atomic(), self.store.unless_locked() as is_locked:
            now = self.store.now()
            for spec in different:
                try:
                    with self.store.atomic():
                        self._declare(spec, now, who)
                except IntegrityError:  # somebody else has made it meanwhile
                    self._declare(spec, now, who)
        return {spec.type for spec in different} if is_locked else set()

    def _declare(self, spec: ScheduleSpec, now: datetime, who: str) -> None:
        rows = self.store.rows(Schedule).select_for_update().filter(identifier=spec.identifier)
        row = rows.first() or Schedule(identifier=spec.identifier)
        if row.pk is not None and row.retired is None and row.declared == spec.document():
            return  # somebody else was quicker
        is_new = row.declared is None
        row.declared, row.retired = spec.document(), None
        message = messages.schedule_declared(is_new=is_new, is_set=row.is_set)
        if not row.is_set:
            self._take(row, spec, now, who)
        elif row.next_at is None:  # it was retired meanwhile
            row.next_at = row.due_at = now
            row.planned_until = None
        self._save(row, now, who, "declare", message)

    def retire(self, declared: Collection[str], *, who: str = "") -> list[str]:
        with self.store.atomic():
            now = self.store.now()
            rows = (
                self.store.rows(Schedule)
                .select_for_update()
                .filter(declared__isnull=False, retired__isnull=True)
            )
            gone = [row for row in rows if row.identifier not in declared]
            for row in gone:
                # Its Type may be gone, too: nothing is run.
                self._keep_slots(close(row, now), now, who)
                row.retired, row.next_at, row.due_at = now, None, None
                self._save(row, now, who, "retire", messages.schedule_retired())
            return [row.identifier for row in gone]

    def follow_rules(self, *, who: str = "") -> list[str]:
        rows = self.store.rows(Schedule).filter(next_at__isnull=False)
        # Each is judged without a lock first: rules change seldom.
        suspects = [row.pk for row in rows if _follows_others(row)]
        if not suspects:
            return []
        with self.store.atomic():
            now = self.store.now()
            moved: list[str] = []
            locked = self.store.rows(Schedule).select_for_update(skip_locked=True)
            rows = list(locked.filter(pk__in=suspects, next_at__isnull=False))
            for row in rows:
                before: Any = row.next_at
                timing = timing_of(row)
                if not self._is_current(row):
                    keep_rules(row, timing, now)
                elif follow_rules(row, timing):
                    moved.append(row.identifier)
                    after: Any = row.next_at
                    message = messages.schedule_rules_changed(before, after)
                    self._log(row.identifier, now, who, "rules", message)
            self._keep_rows(rows, PLANNED)
            if moved:
                self.store.tell()
            return moved

    def _is_current(self, row: Schedule) -> bool:
        """Return whether ``planned_until`` is up to date; an older release does not write it."""
        if row.planned_until is None:
            return False
        behind = self.store.rows(Slot).filter(schedule=row, at__gt=row.planned_until)
        return not behind.exists()

    def set(self, spec: ScheduleSpec, *, who: str = "", expected: int | None = None) -> Schedule:
        try:
            return self._set(spec, who, expected)
        except IntegrityError:  # somebody else has made it meanwhile
            return self._set(spec, who, expected)

    def _set(self, spec: ScheduleSpec, who: str, expected: int | None) -> Schedule:
        with self.store.atomic():
            rows = self.store.rows(Schedule).select_for_update()
            row = rows.filter(identifier=spec.identifier).first()
            _check_expected(row, expected, spec.identifier)
            row = row or Schedule(identifier=spec.identifier)
            row.is_set, row.retired = True, None
            is_new, now = row.pk is None, self.store.now()
            changes = self._take(row, spec, now, who)
            message = messages.schedule_changed(changes, is_new=is_new)
            return self._save(row, now, who, "set", message)

    def leave(self, identifier: str, *, who: str = "") -> Schedule:
        with self.store.atomic():
            row = self._schedule(identifier)
            if row.declared is None:
                raise IllegalSchedule(f"No code declares {identifier!r}: it can be deleted.")
            row.is_set = False
            # At the next registration it differs from the code, and is written.
            row.declared = {}
            return self._save(row, self.store.now(), who, "leave", messages.schedule_left_to_code())

    def pause(
        self, identifier: str, *, who: str = "", reason: str = "", until: datetime | None = None
    ) -> Schedule:
        with self.store.atomic():
            row: Any = self._schedule(identifier)
            now = self.store.now()
            _check_declared(row, "paused")
            if row.is_paused(now):
                row.was_paused = row.paused_by, row.paused_reason
                if row.paused_since <= row.next_at <= now:
                    self._close(row, now, who)
            else:
                if row.paused_since is not None and row.next_at <= now:
                    self._plan_one(row, now, who)  # the slots since that pause
                # A slot of that pause may not be planned yet: then both pauses are one.
                if row.paused_since is None or row.next_at > now:
                    row.paused_since = now
            row.paused_until, row.paused_by, row.paused_reason = until, who, reason
            message = messages.schedule_paused(reason, until)
            return self._save(row, now, who, "pause", message)

    def resume(self, identifier: str, *, who: str = "") -> Schedule:
        with self.store.atomic():
            row: Any = self._schedule(identifier)
            now = self.store.now()
            if row.paused_since is None:
                raise IllegalSchedule(f"{identifier!r} cannot be resumed: it is not paused.")
            _check_declared(row, "resumed")
            if row.next_at < row.paused_since and row.next_at <= now < row.due_at:
                # The slot is run when its jitter is over; the plan then ends the pause.
                row.paused_until = min(now, row.paused_until or now)
            else:
                self._close(row, now, who)
                resume(row)
            return self._save(row, now, who, "resume", messages.schedule_resumed())

    def delete(self, identifier: str, *, who: str = "") -> None:
        with self.store.atomic():
            row = self._schedule(identifier)
            self.store.rows(Slot).filter(schedule=row).delete()
            row.delete(using=self.store.alias)
            self._log(identifier, self.store.now(), who, "delete", messages.schedule_deleted())

    def _take(
        self, row: Schedule, spec: ScheduleSpec, now: datetime, who: str
    ) -> dict[str, tuple[Any, ...]]:
        """Copy a spec to a schedule's row; returns the changes, for the log: (old, new) by column.

        If its times change, the schedule goes on with its first slot after now.
        """
        columns = spec.columns()
        type = self.store.rows(Type).filter(identifier=spec.type).first()
        if type is None:
            raise UnknownType(f"No Type {spec.type!r} is registered.")
        changes: dict[str, tuple[Any, ...]] = {
            name: (getattr(row, name), value)
            for name, value in columns.items()
            if row.pk is not None and getattr(row, name) != value
        }
        starts_anew = row.next_at is None or changes.keys() & set(_TIMES)
        if starts_anew and row.next_at is not None and row.pk is not None:
            self._close(row, now, who)
        for name, value in columns.items():
            setattr(row, name, value)
        row.type = type
        for each in spec.hook_types:
            self.store.enqueueing.type_id(each)
        if starts_anew:
            move_on(row, spec.timing, now, now)
        elif "jitter" in changes:
            delay(row)
        if changes:
            row.trouble = ""
        if "data" in changes:
            names = type.sensitive or ()
            changes["data"] = tuple(mask_json(text, names) for text in changes["data"])
        if "hooks" in changes:
            changes["hooks"] = tuple(map(_hook_names, changes["hooks"]))
        return changes

    def _close(self, row: Schedule, now: datetime, who: str) -> None:
        """Record the slots of a schedule that have passed; none of them is run if it is late."""
        due_at: Any = row.due_at
        if due_at <= now <= due_at + row.late_after:
            self._plan_one(row, now, who)
        next_at: Any = row.next_at
        if next_at <= now:
            self._keep_slots(close(row, now), now, who)

    def _plan_one(self, row: Schedule, now: datetime, who: str) -> None:
        """Plan the due slots of one schedule, as a daemon does."""
        self.plan(who=who, now=now, only=row.identifier)
        row.refresh_from_db(using=self.store.alias, fields=[*PLANNED, *PAUSE])

    def _save(self, row: Schedule, now: datetime, who: str, verb: str, message: str) -> Schedule:
        if row.pk is not None:
            row.revision += 1
        row.who, row.since = who, now
        row.save(using=self.store.alias)
        self._log(row.identifier, now, who, verb, message)
        # A daemon may be sleeping until a later slot than this schedule's next one.
        self.store.tell()
        return row


def _hook_names(hooks: Iterable[Mapping[str, Any]] | None) -> list[str] | None:
    """Return stored hooks without their inputs, for the log."""
    return [f"{hook.on} {hook.type}" for hook in read_hooks(hooks)] or None


def _follows_others(row: Schedule) -> bool:
    """Return whether the next slot of a schedule may have been computed by other rules."""
    try:
        return row.planned_until is None or follow_rules(row, timing_of(row))
    except InvalidSchedule:  # it is in trouble, which planning records
        return False


def _check_declared(row: Schedule, done: str) -> None:
    if row.retired is not None:
        raise IllegalSchedule(f"{row.identifier!r} cannot be {done}: no code declares it.")


def _check_expected(row: Schedule | None, expected: int | None, identifier: str) -> None:
    revision = 0 if row is None else row.revision
    if expected is not None and expected != revision:
        said = (
            f"There is a schedule {identifier!r} already."
            if expected == 0
            else f"Somebody else has changed {identifier!r}: it is at revision {revision}."
        )
        raise ScheduleChanged(said, schedule=row)


# The lines of schedules: live Instances of one schedule that wait for each other (G17).
#
# Each Instance has an edge from every Instance that was in the line before it; any end satisfies
# the edge. So no Instance starts too early if one in the middle is cancelled. An Instance's node
# and edges are deleted when it ends (`Settling.satisfy` in `graph_ends.py`): a line holds
# live Instances only.
#
# Code that adds to a line has locked its Schedule, so one session at a time adds to a line.
# Instances in the line may end meanwhile, unless their nodes are locked.


@dataclass
class Line:
    """The keys of the live Instances in a schedule's line, and how many of them wait."""

    live: list[int] = field(default_factory=list)
    waiting: int = 0


class Lines:
    def __init__(self, store: "ORMStore") -> None:
        self._store = store
        self.rows = store.rows

    def lock(self, schedules: Iterable[Schedule], *, waits: bool = True) -> dict[int, Line]:
        """Lock the lines of these schedules, so that none of their Instances ends.

        Returns each :class:`Line` by the schedule's key. With ``waits=False``, a line is left out
        if another session has locked a part of it.
        """
        schedules = {row.pk: row for row in schedules if row.overlap in IN_LINE}
        if not schedules:
            return {}
        met = self._adopt(schedules.values(), waits)
        members = dict(
            self.rows(Node)
            .filter(schedule__in=schedules.keys() - met, graph__isnull=True)
            .order_by("pk")
            .values_list("pk", "schedule_id")
        )
        # cancel() locks Tasks, so Instances that are to be cancelled are locked in the same way.
        ends = [k for k, of in members.items() if schedules[of].overlap == Overlap.CANCEL]
        locked = self._lock(Task, ends, waits) | (members.keys() - set(ends))
        locked &= self._lock(Node, members, waits)
        # Members that have ended meanwhile have no node any more.
        left = self.rows(Node).filter(pk__in=members.keys() - locked).values_list("pk", flat=True)
        met |= {members[key] for key in left}
        lines = {key: Line() for key in schedules if key not in met}
        tasks = self.rows(Task).filter(pk__in=locked).order_by("pk")
        for key, count in tasks.values_list("pk", "waits"):
            if members[key] in lines:
                line = lines[members[key]]
                line.live.append(key)
                line.waiting += bool(count)
        return lines

    def _lock(self, model: type[Task] | type[Node], keys: Collection[int], waits: bool) -> set[int]:
        rows = self.rows(model).filter(pk__in=keys).order_by("pk")
        return set(rows.select_for_update(skip_locked=not waits).values_list("pk", flat=True))

    def _adopt(self, schedules: Iterable[Schedule], waits: bool) -> set[int]:
        """Put each schedule's last Instance into its line, if it was enqueued without one.

        Returns the keys of the schedules whose last Instance another session has locked.
        """
        last = {row.last_id: row for row in schedules if row.last_id is not None}
        alone = Q(waits__isnull=True) | Q(waits=HOOKED)
        tasks = self.rows(Task).filter(alone, pk__in=last).order_by("pk")
        there = set(tasks.values_list("pk", flat=True))
        if not there:
            return set()
        free = set(tasks.select_for_update(skip_locked=not waits).values_list("pk", flat=True))
        self.rows(Task).filter(pk__in=free).update(waits=0)
        self._write_nodes((last[key], key, None) for key in sorted(free))
        still = there - free
        return {last[key].pk for key in tasks.filter(pk__in=still).values_list("pk", flat=True)}

    def enqueue(
        self,
        registration: Registration,
        runs: Sequence[tuple[Schedule, datetime | None, Submission]],
        lines: Mapping[int, Line],
        *,
        who: str = "",
    ) -> list[tuple[Instance, int]]:
        """Enqueue Instances at the ends of their lines, in this order.

        ``runs`` are triples: the locked Schedule, the slot or None, the Submission. The lines are
        locked; the new Instances are added to them. Returns pairs: the Instance, and the number of
        Instances that it waits for.
        """
        lengths = {key: len(line.live) for key, line in lines.items()}
        submissions = []
        for row, _, submission in runs:
            waits = lengths[row.pk]
            lengths[row.pk] += 1
            due = BLOCKED if waits else submission.due
            submissions.append(submission._replace(waits=waits, due=due))
        instances = list(self._store.enqueueing.enqueue(registration, submissions, who=who))
        if not all(instance.is_new for instance in instances):
            raise RuntimeError("Somebody has just enqueued under the identifier of a slot.")
        self._write_nodes(
            (row, instance.pk, at) for (row, at, _), instance in zip(runs, instances, strict=True)
        )
        edges: list[tuple[int, int]] = []
        made: list[tuple[Instance, int]] = []
        for (row, _, _), instance in zip(runs, instances, strict=True):
            line = lines[row.pk]
            edges += [(key, instance.pk) for key in line.live]
            made.append((instance, len(line.live)))
            line.waiting += bool(line.live)
            line.live.append(instance.pk)
        self._write_edges(edges)
        return made

    def _write_nodes(self, members: Iterable[tuple[Schedule, int, datetime | None]]) -> None:
        self.rows(Node).bulk_create(
            [
                Node(
                    instance_id=key,
                    schedule=row,
                    name=row.identifier if at is None else instance_identifier(row, at),
                )
                for row, key, at in members
            ]
        )

    def _write_edges(self, edges: Iterable[tuple[int, int]]) -> None:
        self.rows(Edge).bulk_create(
            [Edge(upstream_id=up, downstream_id=down, on=Condition.ENDED) for up, down in edges],
            batch_size=2000,
        )


# The runs of schedules: which of them ``overlap`` allows, and enqueueing those.


class Runs:
    """Enqueues runs. A run is a pair: a locked Schedule, and a slot, or None for no slot."""

    def __init__(self, store: "ORMStore") -> None:
        self._store = store
        self._lines = Lines(store)

    def lock(self, rows: Iterable[Schedule], *, waits: bool = True) -> dict[int, Line]:
        """Lock the lines of these schedules, which stay locked until the transaction ends."""
        return self._lines.lock([row for row in rows if row.overlap in IN_LINE], waits=waits)

    def allowed(
        self, runs: Sequence[tuple[Schedule, datetime]], lines: Mapping[int, Line]
    ) -> tuple[list[tuple[Schedule, datetime]], list[Slot]]:
        """Return the runs that ``overlap`` allows, and Slots for the skipped ones.

        Where it allows fewer runs of a schedule than are due, the newest of them run.
        """
        live = self._live([row for row, _ in runs if row.overlap == Overlap.SKIP])
        due = Counter(row.pk for row, _ in runs)
        allowed: list[tuple[Schedule, datetime]] = []
        slots: list[Slot] = []
        for row, at in runs:
            newer = due[row.pk] = due[row.pk] - 1
            if row.overlap == Overlap.SKIP and row.pk in live:
                slots.append(skipped(row, at, live[row.pk]))
            elif row.overlap in (Overlap.SKIP, Overlap.CANCEL) and newer:
                slots.append(passed_over(row, at))
            elif row.overlap == Overlap.QUEUE and newer >= _room(row, lines[row.pk]):
                slots.append(full(row, at, max(lines[row.pk].waiting, _longest(row))))
            else:
                allowed.append((row, at))
        return allowed, slots

    def fitting(
        self, type: Type, runs: Sequence[tuple[Schedule, datetime]]
    ) -> tuple[list[tuple[Schedule, datetime]], list[Slot]]:
        """Return the runs that fit into their Type and their lanes, and Slots for the others.

        The newest runs get the room that there is.
        """
        if not runs:
            return [], []
        lanes = {row.collection for row, _ in runs}
        fills = self._store.filling.fills(type.identifier, [None, *lanes], {})
        fit: list[tuple[Schedule, datetime]] = []
        slots: list[Slot] = []
        added: Counter[str | None] = Counter()
        for row, at in sorted(runs, key=lambda run: run[1], reverse=True):
            scopes = None, row.collection
            full = [fills[s] for s in scopes if fills[s].excess(added[s] + 1, row.priority)]
            if full:
                slots.append(no_room(row, at, full[0]))
            else:
                fit.append((row, at))
                added.update(scopes)
        return sorted(fit, key=lambda run: run[1]), slots

    def _live(self, rows: Iterable[Schedule]) -> dict[int, Instance]:
        """Return the last Instance of each schedule if it is live, by the schedule's key."""
        wanted = {row.last_id: row.pk for row in rows if row.last_id is not None}
        if not wanted:
            return {}
        found = self._store.rows(Instance).filter(pk__in=list(wanted), state__in=LIVE)
        return {wanted[instance.pk]: instance for instance in found.only("uuid", "state")}

    def enqueue(
        self,
        type: Type,
        runs: Sequence[tuple[Schedule, datetime | None]],
        lines: Mapping[int, Line],
        *,
        who: str = "",
        since: datetime | None = None,
    ) -> list[tuple[Instance, str]]:
        """Enqueue an Instance for each run; returns pairs of Instance and message for its Slot.

        If its schedule has a line, already locked, the Instance is appended to it. The time to
        start counts from ``since``, or from the slot.
        """
        submissions = [_submission(row, at, who, since or at) for row, at in runs]
        # If a slot's record was lost, its Instance exists already and is found here.
        there = self._there(type, submissions) if lines else set()
        plain: list[int] = []
        in_line: list[int] = []
        for number, ((row, _), submission) in enumerate(zip(runs, submissions, strict=True)):
            is_plain = row.pk not in lines or submission.identifier in there
            (plain if is_plain else in_line).append(number)
        registration = Registration.of(type)
        made: dict[int, tuple[Instance, str]] = {}
        if plain:
            given = [submissions[number] for number in plain]
            own = self._store.enqueueing.enqueue(registration, given, who=who)
            made |= {key: (one, "") for key, one in zip(plain, own, strict=True)}
        if in_line:
            given = [(*runs[number], submissions[number]) for number in in_line]
            cancelled = self._make_room({row.pk: row for row, _, _ in given}, lines)
            own = self._lines.enqueue(registration, given, lines, who=who)
            for number, (instance, behind) in zip(in_line, own, strict=True):
                ended = cancelled.get(runs[number][0].pk, 0)
                made[number] = instance, messages.slot_in_line(behind, ended)
        return [made[number] for number in range(len(runs))]

    def there(self, row: Schedule, slots: Iterable[datetime]) -> set[datetime]:
        """Return those of the slots whose Instances exist, even if their Slots are gone."""
        named = {instance_identifier(row, at): at for at in slots}
        found = self._store.rows(Instance).filter(
            type__in=self._names_of(row.type), identifier__in=list(named)
        )
        return {named[name] for name in found.values_list("identifier", flat=True)}

    def _there(self, type: Type, submissions: Iterable[Submission]) -> set[str | None]:
        """Return the identifiers, among those of the submissions, that Instances have already."""
        wanted = [each.identifier for each in submissions if each.identifier is not None]
        found = self._store.rows(Instance).filter(
            type__in=self._names_of(type), identifier__in=wanted
        )
        return set(found.values_list("identifier", flat=True))

    def _names_of(self, type: Type) -> AbstractSet[int]:
        """Return the keys of the rows that are names of one Type."""
        return group_renamed_types(self._store.rows(Type)).get(type.pk, {type.pk})

    def _make_room(self, rows: Mapping[int, Schedule], lines: Mapping[int, Line]) -> dict[int, int]:
        """Cancel live Instances where ``overlap`` is "cancel"; returns how many, by schedule.

        An Instance that a daemon holds ends later, and stays in the line until then.
        """
        done: dict[int, int] = {}
        for key, row in rows.items():
            line = lines[key]
            if row.overlap == Overlap.CANCEL and line.live:
                cancelled = self._store.control.cancel(line.live, who=_by(row))
                done[key] = len(cancelled.failed) + len(cancelled.asked)
                line.live = [one for one in line.live if one not in cancelled.failed]
                line.waiting = 0
        return done


def _longest(row: Schedule) -> int:
    """Return how many Instances of a schedule may wait in its line."""
    return min(row.most, LONGEST_LINE)


def _room(row: Schedule, line: Line) -> int:
    """Return how many more Instances a line takes; the first of an empty line does not wait."""
    return _longest(row) - line.waiting + (0 if line.live else 1)


def _submission(row: Schedule, at: datetime | None, who: str, since: Any) -> Submission:
    return Submission(
        inputs=inputs_of(row, at),
        identifier=None if at is None else instance_identifier(row, at),
        collection=row.collection,
        priority=row.priority,
        start_before=None if row.start_before is None else since + row.start_before,
        waits=HOOKED if row.hooks else None,
        own=options.own_options(timeout=row.timeout, hooks=row.hooks),
        created_by=_by(row) if at is not None else who,
        existing="return" if at is not None else "raise",
    )


def _by(row: Schedule) -> str:
    return f"schedule {row.identifier}"[:200]
