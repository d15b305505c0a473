"""Kills of workers, dispatchers, whole daemons and the server, drawn one at a time."""

import signal
import time
from collections import Counter

from tests.helpers import wait_for

from . import server as servers
from .fleet import _send

# What is killed, and how often: of 20.
TARGETS = ("worker",) * 14 + ("dispatcher",) * 4 + ("daemon", "server")


class Kills:
    """Kills what it draws by ``drawing``; ``counts`` has how often each target was killed."""

    def __init__(self, drawing, fleet, server):
        self._random, self._fleet, self._server = drawing, fleet, server
        self.counts = Counter()

    @property
    def total(self):
        return sum(self.counts.values())

    def draw(self):
        """Kill one target. If there is none of that kind just now, nothing happens."""
        target = self._random.choice(TARGETS)
        member = self._random.choice(self._fleet.there())
        if target == "server":
            if self._server is None:
                return
            self._server.restart("immediate", 0.5)
            wait_for(servers.is_back, what="the database")
        elif target == "daemon":
            member.look()
            member.killed = time.monotonic()
            for pid, _ in member.atpd.family():
                _send(pid, signal.SIGKILL)
            self._fleet.join()
        else:
            found = getattr(member.atpd, f"{target}s")()
            if not found or not _send(self._random.choice(found), signal.SIGKILL):
                return
        self.counts[target] += 1
