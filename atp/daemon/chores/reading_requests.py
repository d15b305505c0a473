"""Reading what is asked of the Tasks that this daemon holds: cancel, pause, resume, release."""

from functools import partial

from ...conf import settings
from .chore import Chore

# It is read at least this often, in seconds: whoever cancels a task should not wait much
# longer than its grace.
AT_LEAST_EVERY = 0.5


class ReadRequests(Chore):
    """Done as long as this daemon holds anything."""

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
