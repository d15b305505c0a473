"""Schedules: setting them, and planning their slots."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime

from ...models import Instance, Schedule
from ..values import Planned, ScheduleSpec


class Schedules(ABC):
    @abstractmethod
    def declare(self, specs: Sequence[ScheduleSpec], *, who: str = "") -> set[str]:
        """Write what the code declares, but for what an operator has set.

        A schedule whose times have changed goes on with its first slot after now. Returns
        the Types of what was not written, as somebody else has locked it for too long.
        """

    @abstractmethod
    def retire(self, declared: Collection[str], *, who: str = "") -> list[str]:
        """Plan no more slots of what code had declared, and declares no more; returns them."""

    @abstractmethod
    def set(self, spec: ScheduleSpec, *, who: str = "", expected: int | None = None) -> Schedule:
        """Write what an operator has set; a new one has ``expected`` 0.

        Raises ScheduleChanged if the revision is another.
        """

    @abstractmethod
    def leave(self, identifier: str, *, who: str = "") -> Schedule:
        """Let a schedule be as the code says again. Raises InvalidSchedule if it says nothing."""

    @abstractmethod
    def pause(
        self, identifier: str, *, who: str = "", reason: str = "", until: datetime | None = None
    ) -> Schedule:
        """Decide slots as PAUSED from now on.

        Again it replaces reason and end; ``was_paused`` of the row tells what they were.
        """

    @abstractmethod
    def resume(self, identifier: str, *, who: str = "") -> Schedule:
        """Go on with the first slot after now. Raises IllegalSchedule if it is not paused."""

    @abstractmethod
    def run(self, identifier: str, *, who: str = "") -> Instance:
        """Enqueue an Instance now, which is of no slot. Raises IllegalSchedule if retired."""

    @abstractmethod
    def backfill(self, identifier: str, slots: Sequence[datetime], *, who: str = "") -> Planned:
        """Decide past slots as ENQUEUED, all but those that were; enqueue their Instances."""

    @abstractmethod
    def delete(self, identifier: str, *, who: str = "") -> None:
        """Remove a schedule and its slots; its Instances stay."""

    @abstractmethod
    def plan(
        self,
        *,
        who: str = "",
        limit: int = 200,
        now: datetime | None = None,
        only: str | None = None,
    ) -> Planned:
        """Decide the slots that are due, of up to ``limit`` schedules, each once (G16).

        In a rehearsal ``now`` is another time than the database's, and ``only`` the one
        schedule that is planned.
        """

    @abstractmethod
    def trim(self, *, keep: int = 1000) -> int:
        """Remove the oldest Slots of each schedule that has more; returns how many."""
