"""Reading the asks to the Tasks that this daemon holds: cancel, pause, resume, release."""

from functools import partial

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
        return partial(self.core.store.asked, self.core.identity.current)

    def done(self, result):
        for asked in result.value:
            self.attempts.asked(asked)
