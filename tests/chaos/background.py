"""What the feed and the operators share: a thread that takes turns until it is told to stop."""

import random
import threading

from django.db import DatabaseError, InterfaceError, connection

# What a database that is away, or was just killed, says.
FAILURES = (DatabaseError, InterfaceError, OSError)


class Background(threading.Thread):
    """Takes one turn after another, as the seed says; ``error`` is what has ended it, if anything.

    ``waits_for`` says what may keep it from stopping.
    """

    waits_for = ""

    def __init__(self, name, seed):
        super().__init__(name=name, daemon=True)
        self._random = random.Random(f"{name} {seed}")
        self._enough = threading.Event()
        self.error = None

    def run(self):
        try:
            while not self._enough.wait(self._until_next()):
                self._turn()
        except BaseException as error:
            self.error = error
        finally:
            connection.close()

    def stop(self):
        """Begin no further turn, and wait until the last has ended."""
        self._enough.set()
        self.join(60)
        if self.is_alive():
            raise AssertionError(f"{self.waits_for} has not come back for a minute")

    def _until_next(self):
        """Until the next turn, in seconds."""
        raise NotImplementedError

    def _turn(self):
        raise NotImplementedError
