"""Instances that operators ask for beside the slots: run now, and backfills."""

from datetime import timedelta

from django.db.models.functions import Coalesce

from .... import messages
from ....exceptions import IllegalSchedule, UnknownSchedule
from ....models import Kind, Schedule, Slot
from ....schedules.models import LONGEST_LINE, Outcome, Overlap
from ....text import did_you_mean
from ...facts import Planned, timing_of
from .planning import Planning
from .slots import enqueued, tell_missed


class Backfilling(Planning):
    def run(self, identifier, *, who=""):
        with self._store.atomic():
            row = self._schedule(identifier)
            if row.retired is not None:
                raise IllegalSchedule(f"{identifier!r} cannot be run: no code declares it.")
            lines = self._runs.lock([row])
            _check_room(row, lines, 1)
            now = self._store.now()
            [(instance, _)] = self._runs.enqueue(row.type, [(row, None)], lines, who=who, since=now)
            row.last_id = instance.pk
            row.save(using=self._store.alias, update_fields=["last_id"])
            message = messages.schedule_run(instance.uuid)
            self._log(identifier, now, who, "run", message)
            return instance

    def backfill(self, identifier, slots, *, who=""):
        with self._store.atomic():
            row, now = self._schedule(identifier), self._store.now()
            if slots and row.next_at is not None and row.next_at <= slots[-1]:
                # Otherwise a backfilled slot would also be one that nobody has planned.
                self.plan(who=who, now=now, only=identifier)
                row.refresh_from_db()
            there = self._store.rows(Slot).filter(schedule=row)
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
            slots = []
            for (_, at), (instance, message) in zip(runs, made, strict=True):
                said = messages.slot_backfilled(message)
                slots.append(enqueued(row, at, instance, said))
                slots[-1].decided, slots[-1].who = now, who
            self._store.rows(Slot).bulk_create(slots)
            self._log(identifier, now, who, "backfill", messages.schedule_backfilled(len(runs)))
            uuids = tuple(instance.uuid for instance, _ in made)
            return Planned(decided=len(runs), enqueued=len(runs), instances=uuids)

    def _take_out(self, row, slots):
        """Remove slots that are backfilled from the rows that gave them another outcome."""
        if not slots:
            return
        timing, wanted = timing_of(row), set(slots)
        others = self._store.rows(Slot).filter(schedule=row).exclude(outcome=Outcome.ENQUEUED)
        ends = Coalesce("until", "at")
        own = self._store.rows(Slot).filter(schedule=row, outcome=Outcome.ENQUEUED)
        gone = wanted | set(own.values_list("at", flat=True))
        for other in others.annotate(last=ends).filter(at__lte=slots[-1], last__gte=slots[0]):
            found = _Stretch(other, timing)
            if not found.fits:  # it stands for slots of other times, before a change
                if other.at in wanted and other.until is not None:  # its key is needed
                    other.at, other.until = other.until, None
                    other.count = max(1, other.count - 1)
                    tell_missed(other)
                    other.save(using=self._store.alias)
                continue
            if found.take_out(slots, gone):
                tell_missed(other)
                other.save(using=self._store.alias)
            else:
                other.delete(using=self._store.alias)

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

    def _log(self, identifier, now, who, verb, message):
        self._store.log(
            Kind.SCHEDULE,
            message,
            subject=f"schedule:{identifier}",
            time=now,
            who=who,
            detail=verb,
        )


class _Stretch:
    """The slots that one row of Slot stands for, by the timing of its schedule."""

    def __init__(self, row, timing):
        self._row, self._timing = row, timing
        self._last = row.until or row.at

    @property
    def fits(self):
        """Whether the row begins and ends with slots of this timing."""
        ends = (self._row.at, self._last)
        return all(self._timing.after(at - timedelta.resolution) == at for at in ends)

    def take_out(self, slots, gone):
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
