"""The store contract: every write to the queue, as verbs on batches.

Only a store writes Task, Instance.state and LogRecord. All stores pass the same contract tests.
Each verb is one transaction; inside a caller's transaction it is a part of that.

The arguments and results of the verbs are in :mod:`..values`.
"""

from abc import abstractmethod
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from ..values import OpenTransaction, Session
from .claims import Claims
from .control import Control
from .daemons import Daemons
from .downstreams import Downstreams
from .enqueueing import Enqueueing
from .errors import Errors
from .filling import Filling
from .graphs import Graphs
from .inputs import Inputs
from .keeping import Steps, Tailers
from .records import Records
from .rehearsals import Rehearsals
from .schedules import Schedules
from .statistics import Statistics
from .upkeep import Upkeep
from .wakeups import Wakeups


class Store(
    Enqueueing,
    Filling,
    Daemons,
    Claims,
    Control,
    Downstreams,
    Records,
    Upkeep,
    Wakeups,
    Rehearsals,
):
    """The verbs of a store; ``alias`` names the database that holds the queue."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @property
    @abstractmethod
    def lock_folder(self) -> Path | None:
        """The folder of the daemons' file locks; None if a lease is a time in the database.

        On SQLite a lease is a file lock. All daemons share a host there, and any open transaction
        keeps all writers waiting, so that a lease in a row could not be renewed in time.
        """

    @property
    @abstractmethod
    def schedules(self) -> Schedules:
        """The verbs of schedules."""

    @property
    @abstractmethod
    def steps(self) -> Steps:
        """The checkpoints of handlers."""

    @property
    @abstractmethod
    def graphs(self) -> Graphs:
        """The verbs of graphs."""

    @property
    @abstractmethod
    def errors(self) -> Errors:
        """The error groups of dead letters."""

    @property
    @abstractmethod
    def inputs(self) -> Inputs:
        """The verbs that look at the inputs of live Instances."""

    @property
    @abstractmethod
    def statistics(self) -> Statistics:
        """The counts per minute and Type."""

    @property
    @abstractmethod
    def tailers(self) -> Tailers:
        """The positions of the sources outside of the queue."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the time by the database's clock, which decides about leases and due times."""

    def clock_offset(self) -> timedelta:
        """Return how far the database's clock is ahead of this host's; 0 if under 0.1 s."""
        offset = self.now() - datetime.now(UTC)
        return timedelta() if abs(offset) < timedelta(seconds=0.1) else offset

    @abstractmethod
    def open_transactions(
        self, longer: float, *, locking: float | None = None, instance: UUID | None = None
    ) -> tuple[datetime, list[OpenTransaction]]:
        """Return the database's time, and other sessions' transactions open for ``longer`` seconds.

        With ``locking`` it also returns those open for that many seconds that have locked a table
        which daemons write to, or the Task of ``instance``, by its uuid. It is one statement. The
        list has a few transactions at most: those that have locked something, then the oldest. It
        is empty if the database does not tell. Of other users' sessions this user may see those
        alone that have locked something.
        """

    @abstractmethod
    def end_session(self, pid: int, *, who: str = "") -> OpenTransaction | None:
        """End a session that keeps others waiting, or has locked a table of the queue; log it.

        Its transaction is rolled back. Returns that transaction, or None if there is no such
        session. The database refuses if this user may not end it: raises DatabaseError.
        """

    @abstractmethod
    def sessions(self, application: str) -> list[Session]:
        """Return what the sessions of this application name do: a few :class:`Session` at most.

        The list is empty if the database does not tell.
        """
