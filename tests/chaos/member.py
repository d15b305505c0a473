"""One daemon of the fleet, and what is done to it."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.daemon.harness import Atpd

from .way import Way


@dataclass(frozen=True, kw_only=True)
class Hit:
    """What was done to a process: of the daemon whose supervisor has the pid ``daemon``.

    ``since`` and ``until`` are on the uptime clock. ``pid`` is the process itself, and
    ``instance`` the uuid of the Instance that was behind a lock.
    """

    name: str
    daemon: int = 0
    pid: int = 0
    instance: str = ""
    since: float
    until: float


@dataclass
class Member:
    """One daemon, its way to the database, and what has been done to it as a whole."""

    atpd: Atpd
    way: Way | None = None
    # The file that tells its log handlers how to be bad.
    logging: Path | None = None
    asked_to_leave: float | None = None
    left: float | None = None
    killed: float | None = None
    resumed: float = 0.0
    family: set = field(default_factory=set)

    @property
    def pid(self):
        return self.atpd.pid

    @property
    def is_there(self):
        """Whether it is to go on."""
        return self.killed is None and self.asked_to_leave is None

    @property
    def status(self):
        """Its exit status, None while it runs."""
        return self.atpd.process.poll()

    def look(self):
        """Remember all its processes, so that none is overlooked when it is gone."""
        self.family.update(self.atpd.family())
