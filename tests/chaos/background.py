"""A thread that takes turns until it is stopped; the base of feeds and operators."""

import random
import threading
from collections import Counter

from django.db import DatabaseError, InterfaceError, connection

from atp.exceptions import ATPError

# What a database that is away, or was just killed, says.
FAILURES = (DatabaseError, InterfaceError, OSError)
WHO = "operator via chaos"


class Background(threading.Thread):
    """Takes random turns that follow from the seed; ``error`` is the exception that ended it.

    A turn ends if the database does not answer. ``pause`` is the shortest and the longest time
    between two turns, in seconds.
    """

    pause = 0.05, 0.05
    forgiven = FAILURES

    def __init__(self, name, seed):
        super().__init__(name=name, daemon=True)
        self._random = random.Random(f"{name} {seed}")
        self._enough = threading.Event()
        self.error = None

    def run(self):
        try:
            while not self._enough.wait(self._random.uniform(*self.pause)):
                try:
                    self._turn()
                except self.forgiven:
                    connection.close()
        except BaseException as error:
            self.error = error
        finally:
            connection.close()

    def stop(self):
        """Start no further turn, and wait until the current one has ended."""
        self._enough.set()
        self.join(60)
        if self.is_alive():
            raise AssertionError(f"a turn of the {self.name} has not come back for a minute")

    def _turn(self):
        raise NotImplementedError


class NothingThere(Exception):
    """No object exists that the operation could be applied to."""


class Calling(Background):
    """Calls its ``verbs`` at random by weight; ``counts`` has the number of calls of each."""

    pause = 0.0, 0.5
    verbs: dict[str, int] = {}
    refusals: tuple[type[Exception], ...] = (ATPError,)

    def __init__(self, seed):
        super().__init__("operators", seed)
        self.counts = Counter()

    def _turn(self):
        [verb] = self._random.choices([*self.verbs], [*self.verbs.values()])
        self._do(verb, getattr(self, f"_{verb}"))

    def _do(self, verb, operation):
        """Call an operation and count the outcome."""
        try:
            operation()
        except (NothingThere, *self.refusals) as refusal:
            verb = "nothing was there" if isinstance(refusal, NothingThere) else "refused"
        self.counts[f"by operators: {verb}"] += 1

    def _one_of(self, rows):
        """Return a random one of the first rows. Raises NothingThere."""
        if not (found := list(rows[:200])):
            raise NothingThere
        return self._random.choice(found)
