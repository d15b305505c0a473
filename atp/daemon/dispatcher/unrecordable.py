"""Finding the one Move or Note that cannot be written, so that the others can be."""

import logging

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError

from ... import messages
from ...exceptions import LeaseLost
from ...states import Event, Reason
from ...store.values import Move
from .. import journal
from .recording import RECORDING


class Unrecordable:
    """The treatment of entries that cannot be written: drop their texts, but keep their events."""

    def __init__(self, core):
        self._core = core
        self._unrecorded = core.unrecorded

    def can_isolate(self, result):
        """Tell whether the data of a batch caused the failure, and not the database.

        If so, look for the entry at fault: write the entries one by one from now on, and give
        up the one that fails alone.
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
        """Replace an entry by its bare event, without the handler's texts; drop a Note."""
        bare = isinstance(entry, Move) and bare_of(entry, type(error).__name__)
        event = entry.event if isinstance(entry, Move) else "note"
        journal.unrecordable(event=event, instance=entry.instance, error=error)
        if bare and bare != entry:
            self._unrecorded.put_first(bare)
        elif bare:
            # Even the bare event failed: the join of the next identity expires the Task.
            self._core.identity.lose()


def bare_of(move, error):
    """Return the Move without the texts and values of its handler; a FINISH becomes a FAIL."""
    words = messages.not_stored(error)
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
