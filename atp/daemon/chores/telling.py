"""The chores of the event loop: a sign of life, a summary for the log, the usage of the workers."""

import time

from ..shared import messages
from .chore import Chore

# The memory of the workers is measured this often, in seconds. A minute is a multiple of it.
MEASURE_EVERY = 10.0


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


class Measure(Chore):
    """The chore that measures the workers' memory, and ends a period of usage at each minute."""

    name = "usage"

    def every(self):
        clock = time.time() + self.core.identity.offset.total_seconds()
        return MEASURE_EVERY - clock % MEASURE_EVERY

    def run(self):
        usage = self.attempts.usage
        usage.weigh()
        if usage.is_over():
            self.core.statistics.add_usage(usage.close())
