"""Claiming, and Tasks that were not claimed in time."""

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
        """Claim up to ``limit`` due Tasks of the Types named, in order within each lane.

        With ``careful`` it steps over Instances that somebody else has locked.

        The claim is shared between Types by their weights, and between the lanes of each
        evenly. So are all claims together, over time, that share a ``memory``: a
        :class:`~..memory.ClaimMemory` that the daemon passes to each of its claims.

        Tasks behind a gate are left out. Of limited Tasks it takes no more than may be
        started. Tasks that are claimed ahead count towards a limit: where other daemons
        might lack room for that, it takes no more than ``free`` workers can start now. A
        limit that somebody else keeps locked is left out.

        Returns a list of :class:`Claimed`. Raises LeaseLost. RFC 14's dequeue.
        """

    @abstractmethod
    def give_back(
        self, lanes: Iterable[tuple[str, str]], *, memory: ClaimMemory | None = None
    ) -> None:
        """Give back tokens of rates, one for each Task that was claimed and handed back unstarted.

        ``lanes`` are pairs of Type and collection. A limit that somebody else keeps locked
        stays as it is. ``memory`` is as for :meth:`claim`.
        """

    @abstractmethod
    def miss(self, *, who: str = "", limit: int = 500) -> int:
        """Fail what waits and was not started before its ``start_before``; returns how many."""
