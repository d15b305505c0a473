"""Statistic and Usage: adding the counts of daemons, counting from the log, folding."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from ...models import LogRecord
from ..counts import Counts


class Statistics(ABC):
    """Counts of the events in the log, each event once.

    A daemon counts the moves of its attempts itself, and adds the counts about once a second.
    Every other event is counted by the transaction that writes it; its LogRecord says so. When a
    daemon's identity ends, the counts that it has not added are owed: they are counted from the
    log. Its usage is nowhere else: the daemon keeps it, and adds it under its next identity.
    """

    @abstractmethod
    def position(self) -> int:
        """Return a key that is lower than the keys of all LogRecords written later."""

    @abstractmethod
    def add(self, daemon: UUID, counts: Counts) -> bool:
        """Add a daemon's counts of everything that it has recorded so far, and its usage.

        The thread that records calls it. Returns False if nothing was added: another session holds
        a lock, the identity has ended, or the database had no room.
        """

    @abstractmethod
    def owe(self, daemon: UUID, who: str, counted: int | None, until: int | None) -> None:
        """Note, in the caller's transaction, the counts that a daemon owes as its identity ends.

        They are those of the LogRecords signed by ``who`` after the position ``counted``, up to the
        position ``until``, or to the last one if that is None. A ``counted`` of None is for a
        daemon that does not count. The debt of an identity is noted once.
        """

    @abstractmethod
    def pay(self, limit: int = 20_000) -> int:
        """Count owed events from up to ``limit`` LogRecords; returns the number of LogRecords.

        Returns at least 1 if something was owed, and 0 if nothing is.
        """

    @abstractmethod
    def fold(self, now: datetime, limit: int = 1000) -> int:
        """Replace several rows by one that adds them up; returns how many rows were replaced.

        Rows of the same minute become one. Minutes become hours after 2 days; hours become part of
        the totals after 90 days. It is one transaction, and waits for no lock.
        """

    @abstractmethod
    def fold_usage(self, now: datetime, limit: int = 1000) -> int:
        """Replace the minutes of Usage by hours after 2 days, and remove the hours after 90 days.

        Returns how many rows were replaced or removed, at most ``limit`` of each. It is one
        transaction, and waits for no lock.
        """

    @abstractmethod
    def counted(self, records: Iterable[LogRecord]) -> Counts:
        """Count LogRecords of Instances anew: all records of the counted kinds."""
