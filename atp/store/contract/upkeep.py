"""Upkeep: the scan and the removal of old Instances."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ..findings import Cursor, Scanned


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
        """Look for what should never be, with queries of its own and a delayed clock.

        Returns :class:`~.findings.Scanned`. What indexes tell is looked for each
        time; besides, a part of each table by its primary key, from ``cursor`` on,
        which is what the last scan returned, or None to begin with the newest.
        What is safe to repair is repaired, as ``who``, unless ``repair`` is off;
        each under its locks, looked at again. So any number may scan at once. ``now`` is
        the database's time, if that is known.
        """

    @abstractmethod
    def purge(
        self,
        *,
        type: str | None = None,
        instances: Sequence[int] | None = None,
        limit: int = 500,
        who: str = "",
        marks: dict[Any, Any] | None = None,
    ) -> int:
        """Remove up to ``limit`` terminal Instances and return how many.

        By retention: those that ended longer ago than their Type keeps them,
        of one Type if ``type`` is given. Of a Type that keeps nothing, those that
        FAILED are kept as long as the setting says. Or those given by key. If somebody
        asked for it, ``who``, that is logged about the Type.

        It waits for nobody: of what somebody has locked, the Instance is left where it is.
        ``marks`` is a dict of who calls this again and again: it says how far it has come,
        so that the next call goes on from there. An empty one begins with the oldest.
        """
