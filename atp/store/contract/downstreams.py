"""Downstreams: what daemons tell of calls, and what operators set."""

from abc import ABC, abstractmethod
from datetime import datetime

from ...models import Downstream
from ...protection.values import Report


class Downstreams(ABC):
    @abstractmethod
    def report(
        self, name: str, report: Report, *, who: str = "", spread: float = 0.0
    ) -> Downstream | None:
        """Add up what a daemon tells of the calls of a Downstream; returns the row then.

        None, with nothing written, if somebody else has locked the row, or there is none.
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
        """Set the ``ceiling`` and the ``floor`` of a Downstream, in calls a second; returns it.

        ``expected`` is its state, or since when it has been in it. Raises UnknownDownstream or
        DownstreamChanged.
        """

    @abstractmethod
    def reset(
        self, name: str, *, who: str = "", expected: datetime | str | None = None
    ) -> Downstream:
        """Take a Downstream as healthy, whatever was found of it; raised: as :meth:`bound`."""

    @abstractmethod
    def trip(
        self, name: str, *, who: str = "", expected: datetime | str | None = None
    ) -> Downstream:
        """Open the breaker of a Downstream; raised: as :meth:`bound`."""
