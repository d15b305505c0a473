"""The plain events of a holder, which one statement can record: see :mod:`.records`."""

from ... import states
from ...states import DEAD_LETTER, Event, State
from ..misfits import is_misfit
from ..values import Move

# Most moves of a batch are plain. An expiry is not, since it may end in FAILED, which the portable
# store decides. The same holds for a deferral of a misfit.
PLAIN = states.plain_transitions()
TARGETS = {event: row.target for event, row in PLAIN.items()}
EFFECTS = {event: row.row for event, row in PLAIN.items()}
SOURCES = {event: "{" + ",".join(sorted(row.sources)) + "}" for event, row in PLAIN.items()}
RETRIES = {event: row.counts.count("retries") for event, row in PLAIN.items()}
_HOLDERS = {
    state: {event for event, row in PLAIN.items() if state in row.sources} for state in State
}


def is_plain(moves):
    """Return whether the moves of an Instance are plain, of one attempt, and in legal order."""
    if len({move.attempt for move in moves}) > 1:
        return False
    state = None
    for move in events_of(moves):
        if move.event not in PLAIN or is_misfit(move):
            return False
        if move.reason in DEAD_LETTER and move.failed is None:
            return False
        if state is not None and move.event not in _HOLDERS.get(state, ()):
            return False
        state = TARGETS[move.event]
    return True


def events_of(moves):
    """Yield one move for each event: a move with ``started`` is two events."""
    for move in moves:
        if move.started is not None:
            yield Move(
                event=Event.START,
                instance=move.instance,
                attempt=move.attempt,
                time=move.started,
                who=move.who,
            )
        yield move
