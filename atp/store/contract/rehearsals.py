"""Rehearsals: what the testing kit does with the queue, and no daemon."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from uuid import UUID

from ..values import Claimed


class Rehearsals(ABC):
    @abstractmethod
    def take(self, daemon: UUID, instance: int) -> Claimed | None:
        """Claim the Task of this Instance, due or not, whatever gates and limits say.

        Returns None if it does not wait. Raises LeaseLost.
        """

    @abstractmethod
    def let_pass(self, time: timedelta, *, instances: tuple[int, ...] | None = None) -> None:
        """Let what waits be due earlier by this time, as if that had passed.

        That is: due times, times before which something is to be started, sleeps, the ends of
        gates, and the refilling of rates; of all Tasks, or only of those Instances, and then
        nothing else.
        """

    @abstractmethod
    def plan_slots(self, schedule: str, since: datetime, until: datetime, *, who: str = "") -> int:
        """Plan the slots of a schedule that are due between these times, each in its time.

        Those before are passed over. Returns how many were decided. Raises UnknownSchedule.
        """

    @abstractmethod
    def as_guest(self) -> AbstractContextManager[None]:
        """Return a context for a daemon's calls on a connection that is somebody else's.

        Afterwards its session, and a transaction that is open, plan as before.
        """
