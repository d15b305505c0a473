"""Filling: how full Types and lanes are, for enqueues that are refused where one is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..values import Fill, Submission


class Filling(ABC):
    @abstractmethod
    def bounded(self) -> dict[str, bool]:
        """Return the Types with a ``max_waiting`` or ``max_wait``, and whether a lane has one."""

    @abstractmethod
    def fills(
        self, type: str, collections: Iterable[str | None], declared: Mapping[str, Any]
    ) -> dict[str | None, Fill]:
        """Return the :class:`Fill` of each of these lanes, None being the whole Type.

        ``declared`` is what the code says of the Type, which holds where it has no row of Limit.
        """

    @abstractmethod
    def taken(self, type: str, submissions: Sequence[Submission]) -> set[int]:
        """Return the numbers of those whose identifier or unique key an Instance has already."""

    @abstractmethod
    def drain_rate(self, type: str, seconds: float) -> float:
        """Return how many Instances of a Type have ended a second, over the last seconds."""

    @abstractmethod
    def enqueueing_alone(self, type: str) -> AbstractContextManager[None]:
        """A transaction to enqueue in while no other such one does; inside another, to its end."""

    @abstractmethod
    def log_full(self, fill: Fill, count: int, *, seconds: float, who: str = "") -> bool:
        """Log that so many enqueues were refused or delayed; returns whether it was.

        It is not if there is such a record of the last so many seconds.
        """
