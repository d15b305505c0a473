"""Rehearsals: verbs for the testing kit. Daemons do not use them."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from uuid import UUID

from ..values import Claimed


class Rehearsals(ABC):
    @abstractmethod
    def take(self, daemon: UUID, instance: int) -> Claimed | None:
        """Claim the Task of this Instance, due or not, in spite of gates and limits.

        Returns None if the Task does not wait. Raises LeaseLost.
        """

    @abstractmethod
    def let_pass(self, time: timedelta, *, instances: tuple[int, ...] | None = None) -> None:
        """Make waiting Tasks due earlier, as if this time had passed.

        It moves due times, ``start_before``, sleeps, the ends of gates and the refilling of rates.
        With ``instances`` it moves only the due times of those Instances.
        """

    @abstractmethod
    def plan_slots(self, schedule: str, since: datetime, until: datetime, *, who: str = "") -> int:
        """Plan the slots of a schedule that are due between these times, one after the other.

        Earlier slots are passed over. Returns how many were decided. Raises UnknownSchedule.
        """

    @abstractmethod
    def as_guest(self) -> AbstractContextManager[None]:
        """Return a context in which a daemon may use a connection of an application.

        Afterwards the session, and its open transaction, plan statements as before.
        """
