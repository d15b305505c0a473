"""Schedules: setting them, and planning their slots."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime

from ...models import Instance, Schedule
from ..values import Planned, ScheduleSpec


class Schedules(ABC):
    @abstractmethod
    def declare(self, specs: Sequence[ScheduleSpec], *, who: str = "") -> set[str]:
        """Write the schedules that code declares; settings of an operator stay.

        A schedule whose times have changed goes on with its first slot after now. Returns the Types
        of the schedules that were not written, since another session had locked them for too long.
        """

    @abstractmethod
    def retire(self, declared: Collection[str], *, who: str = "") -> list[str]:
        """Retire schedules that code declares no more: no slots are planned. Returns them."""

    @abstractmethod
    def follow_rules(self, *, who: str = "") -> list[str]:
        """Compute the next slots anew where the rules of time zones have changed (G16).

        Returns the schedules whose next slot is another one. A slot that has passed by the new
        rules, and was not decided, is due. Schedules that another session has locked are left out.
        """

    @abstractmethod
    def set(self, spec: ScheduleSpec, *, who: str = "", expected: int | None = None) -> Schedule:
        """Write a schedule as an operator sets it; ``expected`` is 0 for a new one.

        Raises ScheduleChanged if ``expected`` is not its revision.
        """

    @abstractmethod
    def leave(self, identifier: str, *, who: str = "") -> Schedule:
        """Return a schedule to what code declares. Raises IllegalSchedule if no code does."""

    @abstractmethod
    def pause(
        self, identifier: str, *, who: str = "", reason: str = "", until: datetime | None = None
    ) -> Schedule:
        """Pause a schedule: its slots are decided as PAUSED from now on.

        Pausing again replaces reason and end; ``was_paused`` of the row has who paused it before,
        and why.
        """

    @abstractmethod
    def resume(self, identifier: str, *, who: str = "") -> Schedule:
        """Resume a schedule with its first slot after now. Raises IllegalSchedule if not paused."""

    @abstractmethod
    def run(self, identifier: str, *, who: str = "") -> Instance:
        """Enqueue an Instance now, without a slot. Raises IllegalSchedule if retired."""

    @abstractmethod
    def backfill(self, identifier: str, slots: Sequence[datetime], *, who: str = "") -> Planned:
        """Decide past slots as ENQUEUED, except those that were; enqueues their Instances."""

    @abstractmethod
    def delete(self, identifier: str, *, who: str = "") -> None:
        """Remove a schedule and its slots. Its Instances stay."""

    @abstractmethod
    def plan(
        self,
        *,
        who: str = "",
        limit: int = 200,
        now: datetime | None = None,
        only: str | None = None,
    ) -> Planned:
        """Decide the due slots of up to ``limit`` schedules, each slot once (G16).

        In a rehearsal, ``now`` replaces the database's time, and ``only`` is the one schedule to
        plan.
        """

    @abstractmethod
    def trim(self, *, keep: int = 1000, limit: int = 5_000) -> int:
        """Remove the oldest Slots of each schedule with more than ``keep``, ``limit`` at most.

        Returns the number of Slots removed: 0 if no schedule has more.
        """
