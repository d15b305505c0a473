"""Recording on SQLite: moves with equal values are written together."""

import logging
from collections import defaultdict

from ...states import Event, Row
from ..common.records import Records as ORMRecords
from .base import SQLiteBase, as_json, as_text
from .grouped import PLAIN, Group, Kind, Refused, is_plain

_RESPONSE = """
    INSERT INTO atp_response (instance_id, content_type, data, file, size, files)
    VALUES (%s, %s, %s, %s, %s, '[]')
    ON CONFLICT (instance_id) DO UPDATE
    SET content_type = excluded.content_type, data = excluded.data,
        file = excluded.file, size = excluded.size
"""
_GRAPHS = "SELECT 1 FROM atp_graph WHERE ended IS NULL AND id > 0 LIMIT 1"
_LINES = "SELECT 1 FROM atp_node WHERE graph_id IS NULL LIMIT 1"
_SETTLED = """
    SELECT instance_id FROM atp_task
    WHERE instance_id IN (SELECT value FROM json_each(%(keys)s)) AND waits IS NOT NULL
"""
_PROGRESS = """
    UPDATE atp_instance SET progress = %s, progress_message = coalesce(%s, progress_message)
    WHERE id = %s
"""


class Records(SQLiteBase, ORMRecords):
    def record(self, moves, *, daemon=None):
        if daemon is None or not moves:
            return super().record(moves, daemon=daemon)
        plain, rest = _sorted_out(moves)
        # Instances with hooks are looked for if the last batch had some. If not, they are refused,
        # and a second try looks for them.
        for looks in (True,) if self._meets_hooks else (False, True):
            try:
                with self.atomic():
                    self._record_plain(plain, daemon, looks)
                    return super().record(rest, daemon=daemon)
            except Refused:
                continue
        # Nothing of it was written. The portable store finds out which moves are legal.
        return super().record(moves, daemon=daemon)

    # Whether the last batch had Instances with hooks.
    _meets_hooks = False

    def _record_plain(self, plain, daemon, looks):
        now = self.now()
        looks = looks or bool(self.select(_GRAPHS) or self.select(_LINES))
        settled = self._settled(plain) if looks else ()
        if settled:
            # A node is kept whole until its graph has ended, an Instance with hooks for some time.
            plain = [m._replace(kept=True) if m.instance in settled else m for m in plain]
        for kind, times in _grouped(plain, now).items():
            Group(self, kind, times).write(daemon, now, settles=looks)
        self._respond(plain)
        if settled:
            self._settle([move for move in plain if move.instance in settled])

    def _settled(self, moves):
        """Return the keys of Instances whose end has consequences: nodes, and those with hooks."""
        found = self.select(_SETTLED, keys=as_json([move.instance for move in moves]))
        self._meets_hooks = bool(found)
        return {key for (key,) in found}

    def _settle(self, moves):
        ended = {
            move.instance: transition.target
            for move in moves
            if (transition := PLAIN[move.event]).row is Row.DELETED
        }
        if ended:
            self.graphs.settle(ended, who=moves[0].who)

    def _respond(self, moves):
        responses = [
            (move.instance, answer.content_type, answer.data, answer.file, answer.size)
            for move in moves
            if move.kept and (answer := move.response) is not None
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


def _sorted_out(moves):
    """Return one plain move for each Instance that has a single one, and all other moves."""
    of_instance = defaultdict(list)
    for move in moves:
        of_instance[move.instance].append(move)
    single = [own[0] if len(own) == 1 else _merged(*own) for own in of_instance.values()]
    plain = [move for move in single if move is not None and is_plain(move)]
    if len(plain) == len(of_instance):
        return plain, []
    taken = {move.instance for move in plain}
    return plain, [move for move in moves if move.instance not in taken]


def _merged(first, second, *more):
    """Return the start of an attempt and the next move as one move; None if that is impossible."""
    start = second._replace(
        event=Event.START, time=first.time, reason="", delay=None, response=None,
        message="", level=logging.INFO, detail="", failed=None,
    )  # fmt: skip
    if more or first.time is None or first != start or second.started is not None:
        return None
    return second._replace(started=first.time)


def _grouped(moves, now):
    """Return the pairs (start, event) of times, by :class:`Kind` and Instance."""
    now = as_text(now)
    groups = defaultdict(dict)
    for move in moves:
        started, time = as_text(move.started), as_text(move.time) or now
        kind = Kind(
            move.event,
            started is not None,
            move.attempt,
            move.who,
            move.message,
            move.level,
            move.reason,
            move.delay,
            move.kept,
            move.detail,
            move.failed,
        )
        is_start = move.event == Event.START
        groups[kind][move.instance] = (time if is_start else started), time
    return groups
