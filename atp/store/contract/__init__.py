"""The store contract: every write to the queue, as verbs on batches.

A store is the only code that writes Task, Instance.state or LogRecord. All
stores pass the same contract tests. Each verb is one transaction; inside a
caller's transaction it is part of that.

Its parameters and answers are in :mod:`..values`.
"""

from abc import abstractmethod
from datetime import datetime
from pathlib import Path

from ..values import OpenTransaction
from .claims import Claims
from .control import Control
from .daemons import Daemons
from .downstreams import Downstreams
from .enqueueing import Enqueueing
from .errors import Errors
from .filling import Filling
from .graphs import Graphs
from .inputs import Inputs
from .records import Records
from .rehearsals import Rehearsals
from .schedules import Schedules
from .statistics import Statistics
from .steps import Steps
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
    """The verbs. ``alias`` is the database that holds the queue."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @property
    @abstractmethod
    def lock_folder(self) -> Path | None:
        """The Path of the folder of daemons' file locks; None where their leases are times.

        On SQLite a lease is a file lock: its daemons share a host, and any open transaction
        keeps all writers waiting, so that a row could not be renewed in time.
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
        """Looks at the inputs of live Instances."""

    @property
    @abstractmethod
    def statistics(self) -> Statistics:
        """The counts per minute and Type."""

    @abstractmethod
    def now(self) -> datetime:
        """The database's clock, which leases and due times are compared with."""

    @abstractmethod
    def open_transactions(self, longer: float) -> tuple[datetime, list[OpenTransaction]]:
        """Return the database's time, and others' transactions open for ``longer``, in seconds.

        The oldest come first, a few at most. It is one statement. Where the database does not
        tell, or this user may not see them, there are none.
        """
