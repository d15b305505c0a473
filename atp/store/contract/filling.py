"""Filling: the number of waiting Tasks, and refusing enqueues where too many wait."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..values import Fill, Registration, Submission


class Filling(ABC):
    @abstractmethod
    def bounded(self) -> dict[str, bool]:
        """Return whether a lane has a limit, by Type with ``max_waiting`` or ``max_wait``."""

    @abstractmethod
    def fills(
        self, type: str, collections: Iterable[str | None], declared: Mapping[str, Any]
    ) -> dict[str | None, Fill]:
        """Return the :class:`Fill` of each of these lanes, by collection; None is the whole Type.

        ``declared`` are the limits in the Type's code. They hold if the Type has no row of Limit.
        """

    @abstractmethod
    def taken(self, type: str, submissions: Sequence[Submission]) -> set[int]:
        """Return the indexes of submissions whose identifier or unique key is taken."""

    @abstractmethod
    def drain_rate(self, type: str, seconds: float) -> float:
        """Return how many Instances of a Type ended per second, over the last ``seconds``."""

    @abstractmethod
    def enqueueing_alone(self, registration: Registration) -> AbstractContextManager[None]:
        """Return a context: a transaction in which nobody else enqueues this Type in this way.

        Inside another transaction it lasts until that one ends. The Type is registered if it
        is not yet.
        """

    @abstractmethod
    def log_full(self, fill: Fill, count: int, *, seconds: float, who: str = "") -> bool:
        """Log that ``count`` enqueues were refused or delayed; returns whether it was logged.

        Nothing is logged if such a record was written within the last ``seconds``.
        """
