"""Waking those who wait for commits."""

from abc import ABC, abstractmethod
from typing import Protocol
from uuid import UUID

from ..values import Claimed


class Commits(Protocol):
    """A listener for commits by others: see :meth:`Wakeups.listener`."""

    def wait(self, timeout: float) -> bool: ...

    def close(self) -> None: ...


class Listener(Commits, Protocol):
    """The same, and what is handed to a daemon."""

    @property
    def channel(self) -> str: ...

    @property
    def keeps(self) -> bool: ...

    @property
    def is_deaf(self) -> bool: ...

    def handed(self) -> list[tuple[UUID, Claimed]]: ...


class Wakeups(ABC):
    @abstractmethod
    def tell(self) -> None:
        """Wake the daemons that are idle, where they listen: something may be started."""

    def listener(self) -> Listener | None:
        """Return what tells of commits by others, or None: then there is only polling.

        It has ``wait(timeout)``, which blocks for up to that many seconds and returns
        True as soon as another connection may have committed something, and never
        raises because the database is locked; and ``close()``. What it has open
        it opens in the thread that waits. A hint, nothing to rely on: who listens
        polls all the same.

        Where Tasks are handed over, ``channel`` is what :meth:`renew` is to be told, and
        another, or empty, once that has been lost; ``handed()`` takes what has come there:
        pairs of the daemon's uuid and a :class:`Claimed`. What came after a channel was
        lost is held by the daemon, and it does not know. ``keeps`` tells whether what came
        while nobody waited is heard of by the next who does; else somebody always has to.
        ``is_deaf`` tells, after a wait, that nothing can be heard where it listens.
        """
        return None

    def commits(self) -> Commits | None:
        """Return what tells of commits by others, as :meth:`listener`, at no cost to them; or None.

        It is handed nothing, and is for processes that are no daemons. With None there is
        only polling.
        """
        return None
