"""Finding the one move or note that cannot be written, so that the others are."""

import logging

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError

from ...exceptions import LeaseLost
from ...states import Event, Reason
from ...store.values import Move
from ...words import attempt_messages
from .. import journal
from .recording import RECORDING


class Unrecordable:
    """Gives up an entry that no database can take. Its event is written all the same."""

    def __init__(self, core):
        self._core = core
        self._unrecorded = core.unrecorded

    def can_isolate(self, result):
        """Whether a failure lies in what was to be written, not in the database.

        Then the entry is looked for: from now on they are written one by
        one, and the one that fails alone is given up.
        """
        if result.doing != RECORDING or not _is_of_the_data(result.error):
            return False
        self._unrecorded.give_back()
        if self._unrecorded.limit != 1:
            self._unrecorded.limit = 1
        else:
            self._give_up(self._unrecorded.drop_first(), result.error)
            self._unrecorded.limit = None
        return True

    def _give_up(self, entry, error):
        """Leave an entry out; the event itself is written all the same, in bare words."""
        bare = isinstance(entry, Move) and bare_of(entry, type(error).__name__)
        event = entry.event if isinstance(entry, Move) else "note"
        journal.unrecordable(event=event, instance=entry.instance, error=error)
        if bare and bare != entry:
            self._unrecorded.put_first(bare)
        elif bare:
            # Not even that: under the next identity the Task is expired.
            self._core.identity.lose()


def bare_of(move, error):
    """Return the move with nothing in it that a handler has said."""
    words = attempt_messages.not_stored(error)
    if move.event == Event.FINISH:
        return move._replace(
            event=Event.FAIL,
            reason=Reason.ERROR,
            level=logging.ERROR,
            message=words,
            response=None,
        )
    return move._replace(message=words, failed=None)


def _is_of_the_data(error):
    if isinstance(error, (DataError, IntegrityError)):
        return True
    return not isinstance(error, (DatabaseError, InterfaceError, LeaseLost, OSError))
