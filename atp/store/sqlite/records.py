"""Recording on SQLite: changes that have most in common are written together."""

import logging
from collections import defaultdict

from ...states import Event
from ..orm.records import Records as ORMRecords
from .base import SQLiteBase, as_text
from .group import Group, Kind, Refused, is_plain

_RESPONSE = """
    INSERT INTO atp_response (instance_id, content_type, data, file, size, files)
    VALUES (%s, %s, %s, %s, %s, '[]')
    ON CONFLICT (instance_id) DO UPDATE
    SET content_type = excluded.content_type, data = excluded.data,
        file = excluded.file, size = excluded.size
"""
_PROGRESS = """
    UPDATE atp_instance SET progress = %s, progress_message = coalesce(%s, progress_message)
    WHERE id = %s
"""


class Records(SQLiteBase, ORMRecords):
    def record(self, changes, *, daemon=None):
        if daemon is None or not changes:
            return super().record(changes, daemon=daemon)
        plain, rest = _sorted_out(changes)
        try:
            with self.atomic():
                now = self.now()
                for kind, times in _grouped(plain, now).items():
                    Group(self, kind, times).write(daemon, now)
                self._respond(plain)
                return super().record(rest, daemon=daemon)
        except Refused:
            # Nothing of it was written; the portable store finds out what may be.
            return super().record(changes, daemon=daemon)

    def _respond(self, changes):
        responses = [
            (change.instance, answer.content_type, answer.data, answer.file, answer.size)
            for change in changes
            if (answer := change.response) is not None
        ]
        if responses:
            self.run_many(_RESPONSE, responses)

    def _write_progress(self, notes):
        said = [
            (note.progress, note.progress_message, note.instance)
            for note in notes
            if note.progress is not None or note.progress_message is not None
        ]
        if said:
            self.run_many(_PROGRESS, said)


def _sorted_out(changes):
    """Return one plain change for each Instance to which no more has happened; and the rest."""
    of_instance = defaultdict(list)
    for change in changes:
        of_instance[change.instance].append(change)
    single = [own[0] if len(own) == 1 else _merged(*own) for own in of_instance.values()]
    plain = [change for change in single if change is not None and is_plain(change)]
    if len(plain) == len(of_instance):
        return plain, []
    taken = {change.instance for change in plain}
    return plain, [change for change in changes if change.instance not in taken]


def _merged(first, second, *more):
    """Return the start of an attempt and what came after it as one change, or None."""
    start = second._replace(
        event=Event.START, time=first.time, reason="", delay=None, response=None,
        message="", level=logging.INFO,
    )  # fmt: skip
    if more or first.time is None or first != start or second.started is not None:
        return None
    return second._replace(started=first.time)


def _grouped(changes, now):
    """Return, by :class:`Kind` and Instance, when the attempt started and when the event was."""
    now = as_text(now)
    groups = defaultdict(dict)
    for change in changes:
        started, time = as_text(change.started), as_text(change.time) or now
        kind = Kind(
            change.event,
            started is not None,
            change.attempt,
            change.who,
            change.message,
            change.level,
            change.reason,
            change.delay,
        )
        is_start = change.event == Event.START
        groups[kind][change.instance] = (time if is_start else started), time
    return groups
