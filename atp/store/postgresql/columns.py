"""The parameters of the recording statements: a batch of moves as columns."""

from collections import defaultdict

from ... import states
from ...states import Event
from ..values import Failed
from .driver.arrays import array, texts
from .plain import EFFECTS, RETRIES, SOURCES, TARGETS, events_of

_NUMBERS = (
    *("instances", "attempts", "started", "finished", "retries", "delays"),
    *("logged", "times", "log_attempts", "levels"),
)

_TEXTS = ("sources", "targets", "effects", "reasons", "events", "states", "whos", "messages")

# Texts that few moves have. If no move of a batch has one, the statement has no such column.
_SELDOM = ("details",)

_NOT_FAILED = Failed(None, "", b"", 0, "", "")  # type: ignore[arg-type]


def finish_parameters(finished, daemon):
    """Return the parameters of finished attempts, in the order in which Tasks are locked."""
    keys = sorted(finished)
    moves = [finished[key] for key in keys]
    return {
        "daemon": str(daemon),
        "given": len(finished),
        "instances": array(keys),
        "attempts": array([move.attempt for move in moves]),
        "began": array([_microseconds(move.started) for move in moves]),
        "ended": array([_microseconds(move.time) for move in moves]),
        "whos": texts([move.who for move in moves]),
        **_response_parameters([move.response for move in moves]),
    }


def _response_parameters(responses):
    """Return the columns of the Responses, with None for moves without one.

    If no move has a Response, the columns are empty.
    """
    if not any(responses):
        return {"content_types": [], "data": [], "files": [], "sizes": []}
    return {
        "content_types": [response and response.content_type for response in responses],
        "data": texts([response and _bytes(response.data) for response in responses]),
        "files": [response and response.file for response in responses],
        "sizes": [response and response.size for response in responses],
    }


def record_parameters(plain, daemon):
    columns = defaultdict(list)
    responses = {}
    for key, moves in plain.items():
        events = list(events_of(moves))
        _add_instance(columns, key, events)
        for move in events:
            _add_log(columns, move)
            if move.response is not None:
                responses[key] = move.response
    return {
        "daemon": str(daemon),
        **{name: array(columns[name]) for name in _NUMBERS},
        **{name: texts(columns[name]) for name in (*_TEXTS, *_SELDOM)},
        "responding": list(responses),
        **_response_parameters(list(responses.values())),
    }


def failed_parameters(plain):
    """Return the columns of the dead letters; a move that is none has empty facts."""
    failed = [moves[-1].failed or _NOT_FAILED for moves in plain.values()]
    return {
        "groups": array([each.group for each in failed]),
        "types": texts([each.type for each in failed]),
        "fingerprints": texts([each.fingerprint.hex() for each in failed]),
        "versions": array([each.version for each in failed]),
        "exceptions": texts([each.exception for each in failed]),
        "titles": texts([each.title for each in failed]),
    }


def _add_instance(columns, key, moves):
    last = moves[-1]
    is_terminal = TARGETS[last.event] in states.TERMINAL
    started = [move.time for move in moves if move.event == Event.START]
    columns["instances"].append(key)
    columns["attempts"].append(last.attempt)
    columns["sources"].append(SOURCES[moves[0].event])
    columns["targets"].append(str(TARGETS[last.event]))
    columns["effects"].append(EFFECTS[last.event].value)
    columns["started"].append(_epoch(started[-1]) if started else None)
    columns["finished"].append(_epoch(last.time) if is_terminal else None)
    columns["reasons"].append(str(last.reason) if is_terminal else "")
    columns["retries"].append(sum(RETRIES[move.event] for move in moves))
    columns["delays"].append(None if last.delay is None else last.delay.total_seconds())


def _add_log(columns, move):
    columns["logged"].append(move.instance)
    columns["times"].append(_epoch(move.time))
    columns["events"].append(str(move.event))
    columns["states"].append(str(TARGETS[move.event]))
    columns["log_attempts"].append(move.attempt)
    columns["levels"].append(move.level)
    columns["whos"].append(move.who)
    columns["messages"].append(move.message)
    columns["details"].append(move.detail)


def _bytes(data):
    """Return bytes as hexadecimal text, which the server reads whatever the session sets."""
    return None if data is None else f"\\x{data.hex()}"


def _epoch(time):
    return None if time is None else time.timestamp()


def _microseconds(time):
    """Return microseconds since the epoch as an integer: quickest to write and to read."""
    return None if time is None else round(1e6 * time.timestamp())
