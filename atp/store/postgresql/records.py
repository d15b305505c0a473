"""Recording on PostgreSQL: what a batch amounts to, in one statement."""

from collections import defaultdict
from dataclasses import replace

from ... import states
from ...states import Actor, Event, State
from ..orm.records import Records as ORMRecords
from .statements import statement

# What a batch is mostly made of. An expiry may end in FAILED, which the
# portable store decides.
_PLAIN = frozenset(
    {Event.START, Event.PAUSE, Event.RESUME, Event.FINISH, Event.RETRY, Event.DEFER}
    | {Event.RELEASE, Event.FAIL}
)


class Records(ORMRecords):
    def record(self, changes, *, daemon=None):
        if daemon is None:
            return super().record(changes)
        of_instance = defaultdict(list)
        for change in changes:
            of_instance[change.instance].append(change)
        plain = {key: own for key, own in of_instance.items() if _is_plain(own)}
        if len(plain) == len(of_instance):
            return self._record_all(changes, plain, daemon)
        with self.atomic():
            return self._record_all(changes, plain, daemon)

    def _record_all(self, changes, plain, daemon):
        moved = self._record_plain(plain, daemon) if plain else set()
        # What was refused as a whole may still be right in part.
        rest = [change for change in changes if change.instance not in moved]
        return super().record(rest, daemon=daemon) if rest else []

    def _record_plain(self, plain, daemon):
        if any(change.time is None for own in plain.values() for change in own):
            now = self.now()
            plain = {key: [_timed(change, now) for change in own] for key, own in plain.items()}
        with self.connection.cursor() as cursor:
            cursor.execute(statement("record"), _parameters(plain, daemon))
            return {key for (key,) in cursor.fetchall()}


def _timed(change, now):
    return change if change.time is not None else replace(change, time=now)


def _is_plain(changes):
    """Whether the changes of one Instance are of one attempt and lead on from each other."""
    if len({change.attempt for change in changes}) > 1:
        return False
    state = None
    for change in changes:
        if change.event not in _PLAIN:
            return False
        if state is not None and change.event not in _HOLDERS.get(state, ()):
            return False
        state = _TARGETS[change.event]
    return True


_ROWS = [row for row in states.TRANSITIONS if Actor.HOLDER in row.actors and row.event in _PLAIN]
_TARGETS = {row.event: row.target for row in _ROWS}
_EFFECTS = {row.event: row.row for row in _ROWS}
_SOURCES = {row.event: "{" + ",".join(sorted(row.sources)) + "}" for row in _ROWS}
_HOLDERS = {state: {row.event for row in _ROWS if state in row.sources} for state in State}


def _parameters(plain, daemon):
    columns = defaultdict(list)
    for key, changes in plain.items():
        _add_instance(columns, key, changes)
        for change in changes:
            _add_log(columns, change)
            if change.response is not None:
                _add_response(columns, key, change.response)
    return {name: columns[name] for name in _COLUMNS} | {"daemon": str(daemon)}


def _add_instance(columns, key, changes):
    last = changes[-1]
    is_terminal = _TARGETS[last.event] in states.TERMINAL
    started = [change.time for change in changes if change.event == Event.START]
    columns["instances"].append(key)
    columns["attempts"].append(last.attempt)
    columns["sources"].append(_SOURCES[changes[0].event])
    columns["targets"].append(str(_TARGETS[last.event]))
    columns["effects"].append(_EFFECTS[last.event].value)
    columns["started"].append(_epoch(started[-1]) if started else None)
    columns["finished"].append(_epoch(last.time) if is_terminal else None)
    columns["reasons"].append(str(last.reason) if is_terminal else "")
    columns["retries"].append(sum(change.event == Event.RETRY for change in changes))
    columns["delays"].append(None if last.delay is None else last.delay.total_seconds())


def _add_log(columns, change):
    columns["logged"].append(change.instance)
    columns["times"].append(_epoch(change.time))
    columns["events"].append(str(change.event))
    columns["states"].append(str(_TARGETS[change.event]))
    columns["log_attempts"].append(change.attempt)
    columns["levels"].append(change.level)
    columns["whos"].append(change.who)
    columns["messages"].append(change.message)


def _add_response(columns, key, response):
    columns["responding"].append(key)
    columns["content_types"].append(response.content_type)
    columns["data"].append(response.data)
    columns["files"].append(response.file)
    columns["sizes"].append(response.size)


def _epoch(time):
    return time.timestamp()


_COLUMNS = (
    *("instances", "attempts", "sources", "targets", "effects", "started", "finished"),
    *("reasons", "retries", "delays", "logged", "times", "events", "states", "log_attempts"),
    *("levels", "whos", "messages", "responding", "content_types", "data", "files", "sizes"),
)
