"""Setting schedules in the portable store: by code, and by operators."""

from django.db.models.functions import Coalesce

from ....exceptions import IllegalSchedule, ScheduleChanged, UnknownSchedule, UnknownType
from ....models import Schedule, Slot, Type
from ....rows.log import Kind
from ....rows.schedule import LONGEST_LINE, Outcome, Overlap
from ....words import schedule_messages
from ....words.hints import did_you_mean
from ...values import Planned
from ...values.schedules import timing_of
from .planning import Planning
from .slots import enqueued, move_on, resume

# The columns that decide the times of slots. When one changes, the schedule starts anew.
_TIMES = ("cron", "every", "timezone", "jitter")


class Schedules(Planning):
    def declare(self, specs, *, who=""):
        wanted = {spec.identifier: spec for spec in specs}
        # If nothing differs, nothing is locked.
        rows = self._store.rows(Schedule).filter(identifier__in=list(wanted), retired__isnull=True)
        same = {row.identifier for row in rows if row.declared == wanted[row.identifier].document()}
        different = [spec for name, spec in wanted.items() if name not in same]
        if not different:
            return set()
        with self._store.atomic(), self._store.unless_locked() as is_locked:
            now = self._store.now()
            for spec in different:
                self._declare(spec, now, who)
        return {spec.type for spec in different} if is_locked else set()

    def _declare(self, spec, now, who):
        rows = self._store.rows(Schedule).select_for_update().filter(identifier=spec.identifier)
        row = rows.first() or Schedule(identifier=spec.identifier)
        if row.pk is not None and row.retired is None and row.declared == spec.document():
            return  # somebody else was quicker
        is_new = row.declared is None
        row.declared, row.retired = spec.document(), None
        message = schedule_messages.declared(is_new=is_new, is_set=row.is_set)
        if not row.is_set:
            self._take(row, spec, now)
        self._save(row, now, who, "declare", message)

    def retire(self, declared, *, who=""):
        with self._store.atomic():
            now = self._store.now()
            rows = (
                self._store.rows(Schedule)
                .select_for_update()
                .filter(declared__isnull=False, retired__isnull=True)
            )
            gone = [row for row in rows if row.identifier not in declared]
            for row in gone:
                row.retired, row.next_at, row.due_at = now, None, None
                self._save(row, now, who, "retire", schedule_messages.retired())
            return [row.identifier for row in gone]

    def set(self, spec, *, who="", expected=None):
        with self._store.atomic():
            rows = self._store.rows(Schedule).select_for_update()
            row = rows.filter(identifier=spec.identifier).first()
            _check_expected(row, expected, spec.identifier)
            row = row or Schedule(identifier=spec.identifier)
            row.is_set, row.retired = True, None
            is_new, now = row.pk is None, self._store.now()
            message = schedule_messages.changed(self._take(row, spec, now), is_new=is_new)
            return self._save(row, now, who, "set", message)

    def leave(self, identifier, *, who=""):
        with self._store.atomic():
            row = self._schedule(identifier)
            if row.declared is None:
                raise IllegalSchedule(f"No code declares {identifier!r}: it can be deleted.")
            row.is_set = False
            # At the next registration it differs from the code, and is written.
            row.declared = {}
            return self._save(row, self._store.now(), who, "leave", schedule_messages.left())

    def pause(self, identifier, *, who="", reason="", until=None):
        with self._store.atomic():
            row, now = self._schedule(identifier), self._store.now()
            if row.paused_since is None:
                row.paused_since = now
            else:
                row.was_paused = row.paused_by, row.paused_reason
            row.paused_until, row.paused_by, row.paused_reason = until, who, reason
            message = schedule_messages.paused(reason, until)
            return self._save(row, now, who, "pause", message)

    def resume(self, identifier, *, who=""):
        with self._store.atomic():
            row, now = self._schedule(identifier), self._store.now()
            if row.paused_since is None:
                raise IllegalSchedule(f"{identifier!r} cannot be resumed: it is not paused.")
            resume(row)
            self._move_on(row, now)
            return self._save(row, now, who, "resume", schedule_messages.resumed())

    def run(self, identifier, *, who=""):
        with self._store.atomic():
            row = self._schedule(identifier)
            if row.retired is not None:
                raise IllegalSchedule(f"{identifier!r} cannot be run: no code declares it.")
            lines = self._runs.lock([row])
            _check_room(row, lines, 1)
            [(instance, _)] = self._runs.enqueue(row.type, [(row, None)], lines, who=who)
            row.last_id = instance.pk
            row.save(using=self._store.alias, update_fields=["last_id"])
            message = schedule_messages.run(instance.uuid)
            self._log(identifier, self._store.now(), who, "run", message)
            return instance

    def backfill(self, identifier, slots, *, who=""):
        with self._store.atomic():
            row, now = self._schedule(identifier), self._store.now()
            there = self._store.rows(Slot).filter(schedule=row)
            ran = set(
                there.filter(outcome=Outcome.ENQUEUED, at__in=slots).values_list("at", flat=True)
            )
            runs = [(row, at) for at in slots if at not in ran]
            # With the overlap "cancel" each run would cancel the one before. So they run side by
            # side.
            lines = self._runs.lock([row] if row.overlap == Overlap.QUEUE else [])
            _check_room(row, lines, len(runs))
            made = self._runs.enqueue(row.type, runs, lines, who=who) if runs else []
            self._take_out(row, [at for _, at in runs])
            slots = []
            for (_, at), (instance, message) in zip(runs, made, strict=True):
                said = schedule_messages.slot_backfilled(message)
                slots.append(enqueued(row, at, instance, said))
                slots[-1].decided, slots[-1].who = now, who
            self._store.rows(Slot).bulk_create(slots)
            self._log(identifier, now, who, "backfill", schedule_messages.backfilled(len(runs)))
            uuids = tuple(instance.uuid for instance, _ in made)
            return Planned(decided=len(runs), enqueued=len(runs), instances=uuids)

    def _take_out(self, row, slots):
        """Remove slots that are backfilled from the rows that gave them another outcome."""
        if not slots:
            return
        timing = timing_of(row)
        others = self._store.rows(Slot).filter(schedule=row).exclude(outcome=Outcome.ENQUEUED)
        ends = Coalesce("until", "at")
        for other in others.annotate(last=ends).filter(at__lte=slots[-1], last__gte=slots[0]):
            left = [at for at in _of(other, timing) if at not in set(slots)]
            if not left:
                other.delete(using=self._store.alias)
                continue
            other.at, other.count = left[0], len(left)
            other.until = left[-1] if len(left) > 1 else None
            other.save(using=self._store.alias)

    def delete(self, identifier, *, who=""):
        with self._store.atomic():
            row = self._schedule(identifier)
            self._store.rows(Slot).filter(schedule=row).delete()
            row.delete(using=self._store.alias)
            self._log(identifier, self._store.now(), who, "delete", schedule_messages.deleted())

    def _schedule(self, identifier):
        """Return a schedule, locked. Raises UnknownSchedule."""
        rows = self._store.rows(Schedule).select_for_update()
        row = rows.filter(identifier=identifier).first()
        if row is None:
            names = self._store.rows(Schedule).values_list("identifier", flat=True)
            raise UnknownSchedule(
                f"There is no schedule {identifier!r}.{did_you_mean(identifier, names)}"
            )
        return row

    def _take(self, row, spec, now):
        """Copy a spec to a schedule's row; returns the changes: (old, new) by column.

        If its times change, the schedule goes on with its first slot after now.
        """
        columns = spec.columns()
        type = self._store.rows(Type).filter(identifier=spec.type).first()
        if type is None:
            raise UnknownType(f"No Type {spec.type!r} is registered.")
        changes = {
            name: (getattr(row, name), value)
            for name, value in columns.items()
            if row.pk is not None and getattr(row, name) != value
        }
        for name, value in columns.items():
            setattr(row, name, value)
        row.type = type
        if row.next_at is None or changes.keys() & set(_TIMES):
            self._move_on(row, now, spec.timing)
        return changes

    @staticmethod
    def _move_on(row, now, timing=None):
        timing = timing or timing_of(row)
        move_on(row, timing, now)

    def _save(self, row, now, who, verb, message):
        if row.pk is not None:
            row.revision += 1
        row.who, row.since = who, now
        row.save(using=self._store.alias)
        self._log(row.identifier, now, who, verb, message)
        # A daemon may be sleeping until a later slot than this schedule's next one.
        self._store.tell()
        return row

    def _log(self, identifier, now, who, verb, message):
        self._store.log(
            Kind.SCHEDULE,
            message,
            subject=f"schedule:{identifier}",
            time=now,
            who=who,
            detail=verb,
        )


def _of(slot, timing):
    """Yield the slots that one row of Slot stands for."""
    at, last = slot.at, slot.until or slot.at
    while at is not None and at <= last:
        yield at
        at = timing.after(at)


def _check_room(row, lines, count):
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


def _check_expected(row, expected, identifier):
    revision = 0 if row is None else row.revision
    if expected is not None and expected != revision:
        said = (
            f"There is a schedule {identifier!r} already."
            if expected == 0
            else f"Somebody else has changed {identifier!r}: it is at revision {revision}."
        )
        raise ScheduleChanged(said, schedule=row)
