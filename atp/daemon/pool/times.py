"""Converting times of this host's clocks to the database's clock."""

import time

from ..system.processes import uptime


class Times:
    """The converter of host times to database times. No time is before the Task's claim."""

    def __init__(self, identity):
        self._identity = identity
        self.set()

    def set(self):
        """Measure the difference between this host's clock and its uptime clock."""
        self.clock = time.time() - uptime()

    def at_uptime(self, holding, at):
        """Convert a time of the uptime clock."""
        return self.at(holding, at + self.clock)

    def at(self, holding, host_time):
        """Convert a time of this host's clock."""
        time, claimed = self._identity.time(host_time), holding.claimed.time
        return time if time > claimed else claimed

    def now(self, holding):
        return self.at(holding, time.time())
