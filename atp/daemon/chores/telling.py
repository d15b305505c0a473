"""Telling the supervisor that the dispatcher is alive, and the log what was done lately."""

from ..shared import messages
from .chore import Chore


class SignOfLife(Chore):
    """The chore that sends a sign of life to the supervisor, which kills a silent dispatcher."""

    name = "alive"
    # If the dispatcher is awake anyway, the sign is sent up to this many seconds early; that
    # is less than the time between two turns.
    early = 0.49

    def every(self):
        return 1.0

    def run(self):
        self.core.tell(messages.Alive())


class Summarize(Chore):
    """The chore that logs how many tasks finished and failed."""

    name = "summary"

    def every(self):
        return 60.0

    def run(self):
        self.core.counters.summarize(self.every())
