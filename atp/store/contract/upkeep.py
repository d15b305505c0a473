"""Upkeep: the scan and the removal of old Instances."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime

from ..findings import Cursor, Marks, Scanned


class Upkeep(ABC):
    @abstractmethod
    def scan(
        self,
        cursor: Cursor | None = None,
        *,
        who: str = "",
        repair: bool = True,
        now: datetime | None = None,
    ) -> Scanned:
        """Look for conditions that should never arise, by independent queries and a delayed clock.

        Each scan checks what indexes show at once. Besides, it walks through a part of each table
        by primary key, downwards from ``cursor``: the cursor that the last scan returned, or None
        to begin with the newest row. Unless ``repair`` is off, the scan repairs what is safe to
        repair, signed ``who``: it locks the rows and looks again. So any number of scans may run at
        once. ``now`` is the database's time, if the caller knows it. Returns
        :class:`~.findings.Scanned`.
        """

    @abstractmethod
    def purge(
        self,
        *,
        type: str | None = None,
        instances: Sequence[int] | None = None,
        limit: int = 500,
        who: str = "",
        marks: Marks | None = None,
    ) -> int:
        """Remove up to ``limit`` Instances that have ended; returns how many.

        By default it removes those that ended longer ago than their Type's retention; ``type``
        selects one Type. If a Type keeps nothing, its FAILED Instances are kept as long as the
        setting says. ``instances`` selects Instances by key instead. A ``who`` that asked for the
        removal is logged for each Type.

        It waits for no lock: an Instance stays if another session has locked something of it.
        The caller passes the same ``marks`` to each of its calls: they keep how far the purge has
        come, so that the next call goes on there. With new ones the purge begins with the oldest.
        """
