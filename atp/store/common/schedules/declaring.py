"""Setting schedules in the portable store: by code, and by operators."""

from django.db import IntegrityError

from .... import messages
from ....exceptions import IllegalSchedule, InvalidSchedule, ScheduleChanged, UnknownType
from ....models import Schedule, Slot, Type
from ....payload.binding import mask_json
from ...facts import timing_of
from ...values import read_hooks
from .backfilling import Backfilling
from .planning import PLANNED
from .slots import PAUSE, close, delay, follow_rules, keep_rules, move_on, resume

# The columns that decide the times of slots. When one changes, the schedule starts anew.
_TIMES = ("cron", "every", "timezone")


class Schedules(Backfilling):
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
                try:
                    with self._store.atomic():
                        self._declare(spec, now, who)
                except IntegrityError:  # somebody else has made it meanwhile
                    self._declare(spec, now, who)
        return {spec.type for spec in different} if is_locked else set()

    def _declare(self, spec, now, who):
        rows = self._store.rows(Schedule).select_for_update().filter(identifier=spec.identifier)
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
                # Its Type may be gone, too: nothing is run.
                self._keep_slots(close(row, now), now, who)
                row.retired, row.next_at, row.due_at = now, None, None
                self._save(row, now, who, "retire", messages.schedule_retired())
            return [row.identifier for row in gone]

    def follow_rules(self, *, who=""):
        rows = self._store.rows(Schedule).filter(next_at__isnull=False)
        # Each is judged without a lock first: rules change seldom.
        suspects = [row.pk for row in rows if _follows_others(row)]
        if not suspects:
            return []
        with self._store.atomic():
            now, moved = self._store.now(), []
            locked = self._store.rows(Schedule).select_for_update(skip_locked=True)
            rows = list(locked.filter(pk__in=suspects, next_at__isnull=False))
            for row in rows:
                before, timing = row.next_at, timing_of(row)
                if not self._is_current(row):
                    keep_rules(row, timing, now)
                elif follow_rules(row, timing):
                    moved.append(row.identifier)
                    message = messages.schedule_rules_changed(before, row.next_at)
                    self._log(row.identifier, now, who, "rules", message)
            self._keep_rows(rows, PLANNED)
            if moved:
                self._store.tell()
            return moved

    def _is_current(self, row):
        """Return whether ``planned_until`` is up to date; an older release does not write it."""
        if row.planned_until is None:
            return False
        behind = self._store.rows(Slot).filter(schedule=row, at__gt=row.planned_until)
        return not behind.exists()

    def set(self, spec, *, who="", expected=None):
        try:
            return self._set(spec, who, expected)
        except IntegrityError:  # somebody else has made it meanwhile
            return self._set(spec, who, expected)

    def _set(self, spec, who, expected):
        with self._store.atomic():
            rows = self._store.rows(Schedule).select_for_update()
            row = rows.filter(identifier=spec.identifier).first()
            _check_expected(row, expected, spec.identifier)
            row = row or Schedule(identifier=spec.identifier)
            row.is_set, row.retired = True, None
            is_new, now = row.pk is None, self._store.now()
            changes = self._take(row, spec, now, who)
            message = messages.schedule_changed(changes, is_new=is_new)
            return self._save(row, now, who, "set", message)

    def leave(self, identifier, *, who=""):
        with self._store.atomic():
            row = self._schedule(identifier)
            if row.declared is None:
                raise IllegalSchedule(f"No code declares {identifier!r}: it can be deleted.")
            row.is_set = False
            # At the next registration it differs from the code, and is written.
            row.declared = {}
            return self._save(
                row, self._store.now(), who, "leave", messages.schedule_left_to_code()
            )

    def pause(self, identifier, *, who="", reason="", until=None):
        with self._store.atomic():
            row, now = self._schedule(identifier), self._store.now()
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

    def resume(self, identifier, *, who=""):
        with self._store.atomic():
            row, now = self._schedule(identifier), self._store.now()
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

    def delete(self, identifier, *, who=""):
        with self._store.atomic():
            row = self._schedule(identifier)
            self._store.rows(Slot).filter(schedule=row).delete()
            row.delete(using=self._store.alias)
            self._log(identifier, self._store.now(), who, "delete", messages.schedule_deleted())

    def _take(self, row, spec, now, who):
        """Copy a spec to a schedule's row; returns the changes, for the log: (old, new) by column.

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
        starts_anew = row.next_at is None or changes.keys() & set(_TIMES)
        if starts_anew and row.next_at is not None and row.pk is not None:
            self._close(row, now, who)
        for name, value in columns.items():
            setattr(row, name, value)
        row.type = type
        for each in spec.hook_types:
            self._store.type_id(each)
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

    def _close(self, row, now, who):
        """Record the slots of a schedule that have passed; none of them is run if it is late."""
        if row.due_at <= now <= row.due_at + row.late_after:
            self._plan_one(row, now, who)
        if row.next_at <= now:
            self._keep_slots(close(row, now), now, who)

    def _plan_one(self, row, now, who):
        """Plan the due slots of one schedule, as a daemon does."""
        self.plan(who=who, now=now, only=row.identifier)
        row.refresh_from_db(using=self._store.alias, fields=[*PLANNED, *PAUSE])

    def _save(self, row, now, who, verb, message):
        if row.pk is not None:
            row.revision += 1
        row.who, row.since = who, now
        row.save(using=self._store.alias)
        self._log(row.identifier, now, who, verb, message)
        # A daemon may be sleeping until a later slot than this schedule's next one.
        self._store.tell()
        return row


def _hook_names(hooks):
    """Return stored hooks without their inputs, for the log."""
    return [f"{hook.on} {hook.type}" for hook in read_hooks(hooks)] or None


def _follows_others(row):
    """Return whether the next slot of a schedule may have been computed by other rules."""
    try:
        return row.planned_until is None or follow_rules(row, timing_of(row))
    except InvalidSchedule:  # it is in trouble, which planning records
        return False


def _check_declared(row, done):
    if row.retired is not None:
        raise IllegalSchedule(f"{row.identifier!r} cannot be {done}: no code declares it.")


def _check_expected(row, expected, identifier):
    revision = 0 if row is None else row.revision
    if expected is not None and expected != revision:
        said = (
            f"There is a schedule {identifier!r} already."
            if expected == 0
            else f"Somebody else has changed {identifier!r}: it is at revision {revision}."
        )
        raise ScheduleChanged(said, schedule=row)
