"""Waking processes that wait for commits."""

from abc import ABC, abstractmethod
from typing import Protocol
from uuid import UUID

from ..values import Claimed


class Commits(Protocol):
    """A listener for commits by others: see :meth:`Wakeups.listener`."""

    def wait(self, timeout: float) -> bool: ...

    def close(self) -> None: ...


class Listener(Commits, Protocol):
    """A listener that also receives the Tasks handed to its daemon."""

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
        """Wake the idle daemons that listen: something may be started."""

    def listener(self) -> Listener | None:
        """Return a listener for commits of other connections; None if there is only polling.

        ``wait(timeout)`` blocks for up to that many seconds. It returns True as soon as another
        connection may have committed something, and never raises because the database is locked.
        The listener opens its resources in the thread that waits; ``close()`` frees them. The
        result is a hint: the caller polls all the same.

        An enqueue may hand a Task over. ``channel`` is the argument for :meth:`renew`; it is empty
        or another one after the channel was lost. ``handed()`` takes the Tasks that have come:
        pairs of the daemon's uuid and a :class:`Claimed`. A Task that comes after the loss of a
        channel is held by the daemon, which does not know it. ``keeps`` tells whether the next wait
        hears of Tasks that came while nobody waited; if not, somebody must always wait. ``is_deaf``
        tells, after a wait, that nothing can be heard on this connection.
        """
        return None

    def commits(self) -> Commits | None:
        """Return a listener for commits, at no cost to the sessions that commit; or None.

        It is like :meth:`listener`, but is handed no Tasks: it is for processes that are not
        daemons. With None there is only polling.
        """
        return None
