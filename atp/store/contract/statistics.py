"""Statistic: adding what was counted, counting what nobody has, folding."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from ...models import LogRecord
from ..counts import Counts


class Statistics(ABC):
    """The counts are those of the log, each event once.

    A daemon counts what it records of its attempts itself, and adds it here about once a second.
    Everything else is counted by the transaction that writes it; its LogRecord says so.
    What a daemon has not added when its identity ends is owed: it is counted from the log.
    """

    @abstractmethod
    def position(self) -> int:
        """Return a key: LogRecords that are written later have higher ones."""

    @abstractmethod
    def add(self, daemon: UUID, counts: Counts) -> bool:
        """Add what a daemon has counted, of all that it has recorded so far.

        To be called by the thread that records. Returns False if nothing was added, since
        somebody holds a lock, the identity has ended, or the database had no room.
        """

    @abstractmethod
    def owe(self, daemon: UUID, who: str, counted: int | None) -> None:
        """Note, in the caller's transaction, what a daemon has not added whose identity ends.

        That is what ``who`` has signed since the position ``counted``; None of a daemon
        that does not count. What is owed of an identity is noted once.
        """

    @abstractmethod
    def pay(self, limit: int = 20_000) -> int:
        """Count from the log what is owed, of up to so many LogRecords; returns their number.

        It is one at least as long as something was owed, and 0 if nothing is.
        """

    @abstractmethod
    def fold(self, now: datetime, limit: int = 1000) -> int:
        """Put rows that are added up in the place of others; returns how many were replaced.

        Several of one minute become one; minutes become hours after 2 days, hours become
        part of the totals after 90 days. It is one transaction, and waits for nobody.
        """

    @abstractmethod
    def counted(self, records: Iterable[LogRecord]) -> Counts:
        """Count LogRecords of Instances anew: all of those kinds that are counted."""
