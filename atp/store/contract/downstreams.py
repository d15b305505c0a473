"""Downstreams: the reports of daemons about calls, and the settings of operators."""

from abc import ABC, abstractmethod
from datetime import datetime

from ...downstreams.protection import Report
from ...models import Downstream


class Downstreams(ABC):
    @abstractmethod
    def report(
        self, name: str, report: Report, *, who: str = "", spread: float = 0.0
    ) -> Downstream | None:
        """Add a daemon's report of calls to a Downstream; returns the new row.

        Returns None, and writes nothing, if another session has locked the row or there is none.
        ``spread`` is a random number from -1 to 1.
        """

    @abstractmethod
    def bound(
        self,
        name: str,
        *,
        who: str = "",
        expected: datetime | str | None = None,
        **changes: float | None,
    ) -> Downstream:
        """Set the ``ceiling`` and ``floor`` of a Downstream, in calls a second; returns its row.

        ``expected`` is the state that the caller expects, or the time since when it has been in
        that state. Raises UnknownDownstream, or DownstreamChanged if it is another.
        """

    @abstractmethod
    def reset(
        self, name: str, *, who: str = "", expected: datetime | str | None = None
    ) -> Downstream:
        """Treat a Downstream as healthy again. Raises the same as :meth:`bound`."""

    @abstractmethod
    def trip(
        self, name: str, *, who: str = "", expected: datetime | str | None = None
    ) -> Downstream:
        """Open the breaker of a Downstream. Raises the same as :meth:`bound`."""
