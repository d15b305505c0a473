"""Reading what the database sessions of attempts do, if somebody has asked for the stacks."""

from ..system.database import session_name
from .chore import Chore


class ReadSessions(Chore):
    """The chore that records the stacks that were taken, with the sessions of their workers.

    If it fails, they are recorded without the sessions.
    """

    name, doing = "sessions", "reading the sessions of attempts"

    def every(self):
        return 0.0

    def may(self):
        return bool(self.attempts.stacks.taken)

    def call(self):
        self._taken = self.attempts.stacks.take()
        names = [session_name(link.pid) for link, _, _, _ in self._taken]
        store = self.core.store
        return lambda: [store.sessions(name) for name in names]

    def done(self, result):
        for (link, key, at, stack), sessions in zip(self._taken, result.value, strict=True):
            holding = link.assigned.get(key)
            self.attempts.stacks.record(link, holding, stack, at=at, sessions=sessions)

    def failed(self, result):
        for link, key, at, stack in self._taken:
            self.attempts.stacks.record(link, link.assigned.get(key), stack, at=at)
