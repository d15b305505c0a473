"""Daemons: identity, lease, orders, and the end of lost ones."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from ...models import Daemon
from ...words.orders import Mode, Order
from ..values import NO_MISFITS, DaemonFacts, Misfits, Outlook, Reconciled, Renewal, Swept


class Daemons(ABC):
    @abstractmethod
    def join(
        self,
        facts: DaemonFacts,
        *,
        lease: float,
        old: UUID | None = None,
        holding: Iterable[tuple[int, int]] = (),
    ) -> Reconciled:
        """Give a daemon a row and thereby an identity.

        With ``old`` (a uuid) it takes that identity over: nothing can be
        claimed under the old one any more, ``holding`` (pairs of Instance and
        attempt) is moved to the new one, and whatever else the old one held
        is expired. A request on the old row goes on to the new one. Returns
        :class:`Reconciled`. Joining again under the same uuid, because the answer
        got lost, does no harm.

        It waits for no lock of others: whatever is locked stays with the old identity,
        which then is not settled. See :meth:`settle`.
        """

    @abstractmethod
    def settle(
        self, old: UUID, daemon: UUID, *, lease: float, holding: Iterable[tuple[int, int]] = ()
    ) -> Reconciled:
        """Go on with what :meth:`join` could not do to an old identity; ``daemon`` is the new one.

        Renews the old identity's lease as long as it holds something of ``holding``.
        Returns :class:`Reconciled`, as :meth:`join` does.
        """

    @abstractmethod
    def renew(
        self,
        daemon: UUID,
        *,
        lease: float,
        workers: Sequence[Any] = (),
        idle: bool = False,
        mode: Mode = Mode.RUNNING,
        channel: str = "",
        misfits: Misfits = NO_MISFITS,
    ) -> Renewal:
        """Extend the daemon's lease; returns :class:`Renewal`. Raises LeaseLost.

        ``channel`` is that of its listener: while it is idle, an enqueue may hand it a
        Task there, which it holds then as if it had claimed it. ``misfits`` are the keys of
        Instances whose inputs its handlers did not take, by the identifier of their Type.
        """

    @abstractmethod
    def command(self, daemon: UUID, order: Order, *, who: str = "") -> Daemon:
        """Write on a daemon's row what it shall do, and log who said so; returns the row.

        The daemon finds it there. Raises UnknownDaemon, or IllegalOrder where it is
        doing that already, is stopping, or is lost.
        """

    @abstractmethod
    def outlook(self, types: Sequence[str], *, daemon: UUID | None = None) -> Outlook:
        """Tell what there is to do, as an :class:`Outlook`: for Tasks of these Types, and all.

        ``daemon`` is the one that asks. Takes and writes nothing.
        """

    @abstractmethod
    def leave(self, daemon: UUID, *, lost: str = "") -> bool:
        """Remove the daemon's row. Whatever it still held is released.

        It is expired, and charged, if the daemon did not end in order: ``lost`` says why.
        Returns False if somebody else has locked something of that: then the row is
        still there.
        """

    @abstractmethod
    def is_over(self, row: Daemon, now: datetime) -> bool:
        """Tell whether the lease of a Daemon row is over, by its lock or by the time."""

    @abstractmethod
    def sweep(self, *, daemon: UUID | None = None, limit: int = 500) -> Swept:
        """Expire what lost daemons hold.

        ``daemon`` is who sweeps: it never sweeps itself. Returns :class:`Swept`.
        """
