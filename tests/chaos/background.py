"""What feeds and operators share: a thread that takes turns until it is told to stop."""

import random
import threading
from collections import Counter

from django.db import DatabaseError, InterfaceError, connection

from atp.exceptions import ATPError

# What a database that is away, or was just killed, says.
FAILURES = (DatabaseError, InterfaceError, OSError)
WHO = "operator via chaos"


class Background(threading.Thread):
    """Takes one turn after another, as the seed says; ``error`` is what has ended it, if anything.

    A turn that the database did not answer is over. ``pause`` are the least and the most seconds
    until the next.
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
        """Begin no further turn, and wait until the last has ended."""
        self._enough.set()
        self.join(60)
        if self.is_alive():
            raise AssertionError(f"a turn of the {self.name} has not come back for a minute")

    def _turn(self):
        raise NotImplementedError


class NothingThere(Exception):
    """There is nothing that a verb could be called for."""


class Calling(Background):
    """Calls its ``verbs``, each as often as its weight says; ``counts`` says how often."""

    pause = 0.0, 0.5
    verbs: dict[str, int] = {}
    refusals: tuple[type[Exception], ...] = (ATPError,)

    def __init__(self, seed):
        super().__init__("operators", seed)
        self.counts = Counter()

    def _turn(self):
        self._do(*self._random.choices([*self.verbs], [*self.verbs.values()]))

    def _do(self, verb, *target):
        """Call a verb, and count how that went."""
        try:
            getattr(self, f"_{verb}")(*target)
        except (NothingThere, *self.refusals) as refusal:
            verb = "nothing was there" if isinstance(refusal, NothingThere) else "refused"
        self.counts[f"by operators: {verb}"] += 1

    def _one_of(self, rows):
        """Choose one of the first rows. Raises NothingThere."""
        if not (found := list(rows[:200])):
            raise NothingThere
        return self._random.choice(found)
