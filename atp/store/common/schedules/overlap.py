"""The runs of schedules: which of them ``overlap`` allows, and enqueueing those."""

from collections import Counter

from .... import messages, options
from ....models import HOOKED, Instance, Type, group_renamed_types
from ....schedules.models import IN_LINE, LONGEST_LINE, Overlap
from ....states import LIVE
from ...values import Registration, Submission
from .lines import Lines
from .slots import full, inputs_of, instance_identifier, no_room, passed_over, skipped


class Runs:
    """Enqueues runs. A run is a pair: a locked Schedule, and a slot, or None for no slot."""

    def __init__(self, store):
        self._store = store
        self._lines = Lines(store)

    def lock(self, rows, *, waits=True):
        """Lock the lines of these schedules; see :meth:`.lines.Lines.lock`."""
        return self._lines.lock([row for row in rows if row.overlap in IN_LINE], waits=waits)

    def allowed(self, runs, lines):
        """Return the runs that ``overlap`` allows, and Slots for the skipped ones.

        Where it allows fewer runs of a schedule than are due, the newest of them run.
        """
        live = self._live([row for row, _ in runs if row.overlap == Overlap.SKIP])
        due = Counter(row.pk for row, _ in runs)
        allowed, slots = [], []
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

    def fitting(self, type, runs):
        """Return the runs that fit into their Type and their lanes, and Slots for the others.

        The newest runs get the room that there is.
        """
        if not runs:
            return [], []
        lanes = {row.collection for row, _ in runs}
        fills = self._store.fills(type.identifier, [None, *lanes], {})
        fit, slots, added = [], [], Counter()
        for row, at in sorted(runs, key=lambda run: run[1], reverse=True):
            scopes = None, row.collection
            full = [fills[s] for s in scopes if fills[s].excess(added[s] + 1, row.priority)]
            if full:
                slots.append(no_room(row, at, full[0]))
            else:
                fit.append((row, at))
                added.update(scopes)
        return sorted(fit, key=lambda run: run[1]), slots

    def _live(self, rows):
        """Return the last Instance of each schedule if it is live, by the schedule's key."""
        wanted = {row.last_id: row.pk for row in rows if row.last_id is not None}
        if not wanted:
            return {}
        found = self._store.rows(Instance).filter(pk__in=list(wanted), state__in=LIVE)
        return {wanted[instance.pk]: instance for instance in found.only("uuid", "state")}

    def enqueue(self, type, runs, lines, *, who="", since=None):
        """Enqueue an Instance for each run; returns pairs of Instance and message for its Slot.

        If its schedule has a line, already locked, the Instance is appended to it. The time to
        start counts from ``since``, or from the slot.
        """
        submissions = [_submission(row, at, who, since or at) for row, at in runs]
        # If a slot's record was lost, its Instance exists already and is found here.
        there = self._there(type, submissions) if lines else set()
        plain, in_line = [], []
        for number, ((row, _), submission) in enumerate(zip(runs, submissions, strict=True)):
            is_plain = row.pk not in lines or submission.identifier in there
            (plain if is_plain else in_line).append(number)
        registration, made = Registration.of(type), {}
        if plain:
            given = [submissions[number] for number in plain]
            own = self._store.enqueue(registration, given, who=who)
            made |= {key: (one, "") for key, one in zip(plain, own, strict=True)}
        if in_line:
            given = [(*runs[number], submissions[number]) for number in in_line]
            cancelled = self._make_room({row.pk: row for row, _, _ in given}, lines)
            own = self._lines.enqueue(registration, given, lines, who=who)
            for number, (instance, behind) in zip(in_line, own, strict=True):
                ended = cancelled.get(runs[number][0].pk, 0)
                made[number] = instance, messages.slot_in_line(behind, ended)
        return [made[number] for number in range(len(runs))]

    def there(self, row, slots):
        """Return those of the slots whose Instances exist, even if their Slots are gone."""
        named = {instance_identifier(row, at): at for at in slots}
        found = self._store.rows(Instance).filter(
            type__in=self._names_of(row.type), identifier__in=list(named)
        )
        return {named[name] for name in found.values_list("identifier", flat=True)}

    def _there(self, type, submissions):
        """Return the identifiers, among those of the submissions, that Instances have already."""
        wanted = [each.identifier for each in submissions if each.identifier is not None]
        found = self._store.rows(Instance).filter(
            type__in=self._names_of(type), identifier__in=wanted
        )
        return set(found.values_list("identifier", flat=True))

    def _names_of(self, type):
        """Return the keys of the rows that are names of one Type."""
        return group_renamed_types(self._store.rows(Type)).get(type.pk, {type.pk})

    def _make_room(self, rows, lines):
        """Cancel live Instances where ``overlap`` is "cancel"; returns how many, by schedule.

        An Instance that a daemon holds ends later, and stays in the line until then.
        """
        done = {}
        for key, row in rows.items():
            line = lines[key]
            if row.overlap == Overlap.CANCEL and line.live:
                cancelled = self._store.cancel(line.live, who=_by(row))
                done[key] = len(cancelled.failed) + len(cancelled.asked)
                line.live = [one for one in line.live if one not in cancelled.failed]
                line.waiting = 0
        return done


def _longest(row):
    """Return how many Instances of a schedule may wait in its line."""
    return min(row.most, LONGEST_LINE)


def _room(row, line):
    """Return how many more Instances a line takes; the first of an empty line does not wait."""
    return _longest(row) - line.waiting + (0 if line.live else 1)


def _submission(row, at, who, since):
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


def _by(row):
    return f"schedule {row.identifier}"[:200]
