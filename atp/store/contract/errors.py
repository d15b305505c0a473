"""The error groups of dead letters."""

from abc import ABC, abstractmethod
from datetime import datetime

from ...rows.error import ErrorGroup


class Errors(ABC):
    @abstractmethod
    def count(self, *, limit: int = 2_000) -> int:
        """Add up to ``limit`` failures to their groups; returns how many.

        Any number may do this at once: each failure is counted once. It waits for nobody; what
        somebody has locked is left to the next time. A muted group of which something has
        failed after ``muted_until`` is not muted any more.
        """

    @abstractmethod
    def trim(self, *, before: datetime, limit: int = 500) -> int:
        """Remove groups that were last seen ``before`` then, without dead letters and note.

        Returns how many.
        """

    @abstractmethod
    def mute(self, group: ErrorGroup, *, by: str, until: datetime | None = None) -> None:
        """Mute a group; without ``by`` it is muted no longer."""

    @abstractmethod
    def annotate(self, group: ErrorGroup, note: str) -> None:
        """Set the note of a group."""
