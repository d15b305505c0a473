"""Times of this host, as the database would tell them."""

import time

from ..system.processes import uptime


class Times:
    """Turns times of this host's clocks into the database's. Nothing is before its claim."""

    def __init__(self, identity):
        self._identity = identity
        self.set()

    def set(self):
        """Look how far this host's clock is ahead of its uptime clock now."""
        self.clock = time.time() - uptime()

    def at_uptime(self, holding, at):
        """Return a time on the uptime clock."""
        return self.at(holding, at + self.clock)

    def at(self, holding, host_time):
        """Return a time on this host's clock."""
        time, claimed = self._identity.time(host_time), holding.claimed.time
        return time if time > claimed else claimed

    def now(self, holding):
        return self.at(holding, time.time())
