"""Participants of which a figure is taken, and what became of them."""

import random
import sqlite3

from django.db import DatabaseError

from .failure import Failure

# What a participant may fail with; anything else is a mistake of the benchmark.
FAILURES = (Failure, DatabaseError, sqlite3.Error, OSError)


class Group:
    """Those that take part; who fails does so no more, and is in ``failed`` by its key."""

    def __init__(self, participants):
        self._sound = list(participants)
        self.failed = {}

    def fail(self, error):
        """None takes part any more; those that did fail with this."""
        self.failed |= {participant.key: error for participant in self._sound}
        self._sound.clear()

    def shuffle(self):
        """Have the next turn in another order, so that none always comes behind the same."""
        random.shuffle(self._sound)

    def each(self, do):
        """Do something for each in turn; return what came of it, by their keys."""
        found = {}
        for participant in list(self._sound):
            try:
                found[participant.key] = do(participant)
            except FAILURES as error:
                self._sound.remove(participant)
                self.failed[participant.key] = error
        return found
