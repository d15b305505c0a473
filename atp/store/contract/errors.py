"""The error groups of dead letters."""

from abc import ABC, abstractmethod
from datetime import datetime

from ...deadletters.models import ErrorGroup


class Errors(ABC):
    @abstractmethod
    def count(self, *, limit: int = 2_000) -> int:
        """Add up to ``limit`` failures to their groups; returns how many.

        Any number of processes may do this at once: each failure is counted once. Failures and
        groups that another session has locked are left for the next call. A failure after
        ``muted_until`` ends the muting of its group.
        """

    @abstractmethod
    def trim(self, *, before: datetime, limit: int = 500) -> int:
        """Remove groups last seen ``before`` this time that have no dead letters and no note.

        Returns how many.
        """

    @abstractmethod
    def mute(self, group: ErrorGroup, *, by: str, until: datetime | None = None) -> None:
        """Mute a group; ``by`` is who mutes it, or "" to end the muting."""

    @abstractmethod
    def annotate(self, group: ErrorGroup, note: str) -> None:
        """Set the note of a group."""
