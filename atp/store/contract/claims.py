"""Claiming, and failing Tasks that were not started in time."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from uuid import UUID

from ..memory import ClaimMemory
from ..values import Claimed


class Claims(ABC):
    @abstractmethod
    def claim(
        self,
        daemon: UUID,
        types: Sequence[str],
        limit: int,
        *,
        free: int | None = None,
        careful: bool = False,
        memory: ClaimMemory | None = None,
    ) -> list[Claimed]:
        """Claim up to ``limit`` due Tasks of these Types, in claim order within each lane.

        With ``careful`` the claim skips Instances that another session has locked.

        The claim is shared between Types by their weights, and evenly between the lanes of each
        Type. Claims with the same ``memory`` are shared over time in the same way. It is a
        :class:`~..memory.ClaimMemory`, which the daemon passes to each of its claims.

        Tasks behind a gate are left out. Of limited Tasks it takes no more than may be started.
        Tasks that are claimed ahead count towards a limit: if other daemons might lack room because
        of that, the claim takes no more than ``free`` workers can start now. A limit that another
        session keeps locked is left out.

        Returns a list of :class:`Claimed`. Raises LeaseLost. RFC 14 calls this dequeue.
        """

    @abstractmethod
    def give_back(
        self, lanes: Iterable[tuple[str, str]], *, memory: ClaimMemory | None = None
    ) -> None:
        """Give back tokens of rates, one for each claimed Task that was handed back unstarted.

        ``lanes`` are pairs of Type and collection, one for each Task. A limit that another session
        keeps locked stays as it is. ``memory`` is as for :meth:`claim`.
        """

    @abstractmethod
    def miss(self, *, who: str = "", limit: int = 500) -> int:
        """Fail waiting Tasks whose ``start_before`` has passed; returns how many."""
