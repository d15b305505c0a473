"""Telling that the dispatcher is alive, and what was done lately."""

from ..shared import messages
from .chore import Chore


class SignOfLife(Chore):
    """Tells the supervisor, which kills a dispatcher that is silent for too long."""

    name = "alive"
    # If the dispatcher turns anyway, it is done so much sooner, in seconds: less than from
    # one turn to the next.
    early = 0.49

    def every(self):
        return 1.0

    def run(self):
        self.core.tell(messages.Alive())


class Summarize(Chore):
    """Tells the log how many tasks finished and failed."""

    name = "summary"

    def every(self):
        return 60.0

    def run(self):
        self.core.counters.summarize(self.every())
