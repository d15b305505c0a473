"""Recording on PostgreSQL: what a batch amounts to, in one statement or two."""

import logging
from collections import defaultdict
from contextlib import nullcontext

from django.db import DataError

from ... import states
from ...states import Actor, Event, Row, State
from ..orm.records import Records as ORMRecords
from ..values import Change
from .arrays import array, texts
from .cursors import cursor_of
from .statements import FEW, execute

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
        finished, plain = {}, {}
        for key, own in of_instance.items():
            if _is_finish(own):
                finished[key] = own[0]
            elif _is_plain(own):
                plain[key] = own
        steps = bool(finished) + bool(plain) + (len(finished) + len(plain) < len(of_instance))
        with self.atomic() if steps > 1 else nullcontext():
            written = self._finish(finished, daemon) if finished else set()
            if plain:
                written |= self._record_plain(plain, daemon)
                if any(_EFFECTS[own[-1].event] is Row.FREED for own in plain.values()):
                    self.tell()
            if len(written) == len(of_instance):
                return []
            # What was refused as a whole may still be right in part.
            rest = [change for change in changes if change.instance not in written]
            return super().record(rest, daemon=daemon)

    def _finish(self, finished, daemon):
        """Write that attempts finished; returns the keys of those that were not refused."""
        savepoint = self.atomic() if self.connection.in_atomic_block else nullcontext()
        try:
            with savepoint, cursor_of(self.connection) as cursor:
                execute(
                    cursor,
                    "finish",
                    _finish_parameters(finished, daemon),
                    fixed=_responds(finished),
                )
                written, is_all, _ = cursor.fetchone()
        except DataError:
            # Something in it is not as it should be: one by one it is seen what.
            return set()
        return set(finished) if is_all else set(written or ())

    def _record_plain(self, plain, daemon):
        if any(change.time is None for own in plain.values() for change in own):
            now = self.now()
            plain = {key: [_timed(change, now) for change in own] for key, own in plain.items()}
        with cursor_of(self.connection) as cursor:
            execute(cursor, "record", _parameters(plain, daemon), prepared=len(plain) <= FEW)
            return {key for (key,) in cursor.fetchall()}


def _is_finish(changes):
    """Whether all that happened to an Instance is that it finished, with nothing more to say."""
    if len(changes) > 1:
        return False
    [change] = changes
    return (
        change.event == Event.FINISH
        and change.time is not None
        and change.level == logging.INFO
        and not change.message
    )


_SILENT = frozenset({(name, None) for name in ("content_types", "data", "files", "sizes")})


def _responds(finished):
    """Return what the statement says itself: without any Response it has no columns for them."""
    some = any(change.response is not None for change in finished.values())
    return frozenset() if some else _SILENT


def _finish_parameters(finished, daemon):
    changes = finished.values()
    return {
        "daemon": str(daemon),
        "given": len(finished),
        "instances": array(list(finished)),
        "attempts": array([change.attempt for change in changes]),
        "began": array([_microseconds(change.started) for change in changes]),
        "ended": array([_microseconds(change.time) for change in changes]),
        "whos": texts([change.who for change in changes]),
        **_response_parameters([change.response for change in changes]),
    }


def _response_parameters(responses):
    """Columns of the Responses, None where there is none; short ones if there is none at all."""
    if not any(responses):
        return {"content_types": [], "data": [], "files": [], "sizes": []}
    return {
        "content_types": [response and response.content_type for response in responses],
        "data": [response and response.data for response in responses],
        "files": [response and response.file for response in responses],
        "sizes": [response and response.size for response in responses],
    }


def _timed(change, now):
    return change if change.time is not None else change._replace(time=now)


def _is_plain(changes):
    """Whether the changes of one Instance are of one attempt and lead on from each other."""
    if len({change.attempt for change in changes}) > 1:
        return False
    state = None
    for change in _events(changes):
        if change.event not in _PLAIN:
            return False
        if state is not None and change.event not in _HOLDERS.get(state, ()):
            return False
        state = _TARGETS[change.event]
    return True


def _events(changes):
    """Yield one change for each event."""
    for change in changes:
        if change.started is not None:
            yield Change(
                event=Event.START,
                instance=change.instance,
                attempt=change.attempt,
                time=change.started,
                who=change.who,
            )
        yield change


_ROWS = [row for row in states.TRANSITIONS if Actor.HOLDER in row.actors and row.event in _PLAIN]
_TARGETS = {row.event: row.target for row in _ROWS}
_EFFECTS = {row.event: row.row for row in _ROWS}
_SOURCES = {row.event: "{" + ",".join(sorted(row.sources)) + "}" for row in _ROWS}
_HOLDERS = {state: {row.event for row in _ROWS if state in row.sources} for state in State}


def _parameters(plain, daemon):
    columns = defaultdict(list)
    responses = {}
    for key, changes in plain.items():
        events = list(_events(changes))
        _add_instance(columns, key, events)
        for change in events:
            _add_log(columns, change)
            if change.response is not None:
                responses[key] = change.response
    return {
        "daemon": str(daemon),
        **{name: array(columns[name]) for name in _NUMBERS},
        **{name: texts(columns[name]) for name in _TEXTS},
        "responding": list(responses),
        **_response_parameters(list(responses.values())),
    }


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


def _epoch(time):
    return None if time is None else time.timestamp()


def _microseconds(time):
    """Since the epoch, as a whole number: both sides write and read that far more quickly."""
    return None if time is None else round(1e6 * time.timestamp())


_NUMBERS = (
    *("instances", "attempts", "started", "finished", "retries", "delays"),
    *("logged", "times", "log_attempts", "levels"),
)
_TEXTS = ("sources", "targets", "effects", "reasons", "events", "states", "whos", "messages")
