"""Daemons: their identity, their lease, orders to them, and the end of lost ones."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from ...commands import DaemonCommand, Mode
from ...models import Daemon
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
        """Give a daemon a row, and with it an identity; returns :class:`Reconciled`.

        ``old`` is the uuid of an identity to take over. Nothing can be claimed under it any more.
        The attempts in ``holding``, pairs of Instance and attempt, move to the new identity;
        whatever else the old one held is expired. An order on the old row moves to the new one. If
        the answer got lost, the daemon may join again under the same uuid.

        It waits for no lock of others: a locked Task stays with the old identity, which is then not
        settled. See :meth:`settle`.
        """

    @abstractmethod
    def settle(
        self, old: UUID, daemon: UUID, *, lease: float, holding: Iterable[tuple[int, int]] = ()
    ) -> Reconciled:
        """Complete a :meth:`join` that left Tasks with an old identity; ``daemon`` is the new one.

        Renews the lease of the old identity while that holds an attempt in ``holding``. Returns
        :class:`Reconciled`, as :meth:`join` does.
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

        ``channel`` is the channel of its listener. While the daemon is idle, an enqueue may hand it
        a Task there; the daemon then holds that Task as if it had claimed it. ``misfits`` are the
        keys of Instances whose inputs its handlers did not take, by the identifier of their Type.
        """

    @abstractmethod
    def command(self, daemon: UUID, order: DaemonCommand, *, who: str = "") -> Daemon:
        """Write an order on a daemon's row, and log who gave it; returns the row.

        The daemon finds the order there. Raises UnknownDaemon, or IllegalOrder if the daemon is
        doing this already, is stopping, or is lost.
        """

    @abstractmethod
    def outlook(self, types: Sequence[str], *, daemon: UUID | None = None) -> Outlook:
        """Return an :class:`Outlook`: due Tasks of these Types, and all other work.

        ``daemon`` is the daemon that asks. Nothing is claimed or written.
        """

    @abstractmethod
    def leave(self, daemon: UUID, *, lost: str = "") -> bool:
        """Remove the daemon's row, and release the Tasks that it still held.

        ``lost`` says why the daemon did not end in order: then its attempts are expired, and
        charged. Returns False if another session has locked one of the rows: then the daemon's row
        stays.
        """

    @abstractmethod
    def is_over(self, row: Daemon, now: datetime) -> bool:
        """Return whether the lease of a Daemon row is over, by its file lock or by the time."""

    @abstractmethod
    def sweep(self, *, daemon: UUID | None = None, limit: int = 500) -> Swept:
        """Expire the attempts of lost daemons; returns :class:`Swept`.

        ``daemon`` is the daemon that sweeps: it never sweeps itself.
        """
