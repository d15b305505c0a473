"""Reading the asks to the Tasks that this daemon holds: cancel, pause, resume, release, stack."""

from functools import partial

from ...commands import STACK
from ...conf import settings
from .chore import Chore

# The asks are read at least this often, in seconds: the end of a cancelled attempt should not
# come much later than its grace.
AT_LEAST_EVERY = 0.5


class ReadAsks(Chore):
    """The chore that reads the asks, as long as this daemon holds a Task."""

    name, doing = "asked", "reading requests"

    def every(self):
        return min(settings.POLL_EVERY, AT_LEAST_EVERY)

    def may(self):
        return self.attempts.any()

    def call(self):
        return partial(self.core.store.control.asked, self.core.identity.current)

    def done(self, result):
        stacks = []
        for asked in result.value:
            if asked.request == STACK:
                stacks.append((asked.instance, asked.attempt))
            else:
                self.attempts.asked(asked)
        self.attempts.stacks.asked(stacks)
