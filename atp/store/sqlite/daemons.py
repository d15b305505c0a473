"""The regular queries of a daemon on SQLite."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..common.daemons import Daemons as ORMDaemons
from ..facts import Outlook, Reconciled, Renewal
from .claims import dues, situation_of
from .listener import LISTENERS, STANDS
from .sessions import as_instant, as_text

if TYPE_CHECKING:
    from . import SQLiteStore

# Statistics of a table that had fewer rows than this are forgotten.
FEW = 1000
_HAS_STATISTICS = "SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat1'"
_FORGET = r"""
    DELETE FROM sqlite_stat1
    WHERE tbl LIKE 'atp\_%%' ESCAPE '\' AND CAST(stat AS integer) < %(few)s
"""


class Daemons(ORMDaemons):
    """Forgets, when a daemon joins, statistics that would mislead the planner."""

    store: "SQLiteStore"

    def join(self, *args: Any, **more: Any) -> Reconciled:
        self._forget_small_statistics()
        return super().join(*args, **more)

    def _forget_small_statistics(self) -> None:
        """Forget what ANALYZE has found in tables of ATP that were nearly empty.

        With such statistics, SQLite 3.53 reads a table from end to end instead of looking up
        primary keys, however many rows it has by then. Without statistics it looks keys up.
        Connections that are open keep the old plans.
        """
        if not self.store.select(_HAS_STATISTICS):
            return
        with self.store.atomic():
            if self.store.run(_FORGET, few=FEW):
                self.store.run("ANALYZE sqlite_schema")

    def renew(self, daemon: UUID, *, channel: str = "", idle: bool = False, **said: Any) -> Renewal:
        with self.store.atomic():
            unheard = self._unheard(daemon, channel)
            renewal = super().renew(
                daemon, channel=unheard or channel, idle=idle and not unheard, **said
            )
        return replace(renewal, unheard=bool(unheard))

    def _unheard(self, daemon: UUID, channel: str) -> str:
        """Return the channel's current name if a Task on it has not been heard of yet; else ""."""
        listener = LISTENERS.get(channel)
        if listener is not None:
            for stands, key in self.store.select(STANDS, daemon=daemon.hex, channel=channel):
                if (daemon, key) != listener.heard:
                    return stands
        return ""

    def outlook(self, types: Sequence[str], *, daemon: UUID | None = None) -> Outlook:
        now = self.store.now()
        situation = situation_of(self.store, list(types), now)
        due, limited = self._first_due(situation, now)
        return Outlook(
            due=self.store.limits.due_in(due, limited, self.store.gates.opens(now)),
            late=situation.is_late,
            drops=self.store.gates.drops(),
            planned=self._planned_in(now),
            graphs=self.store.graph_ends.are_live(),
            owed=self.store.statistics.are_owed(),
            **self._others_and_own(daemon, now),
        )

    def _first_due(
        self, situation: Any, now: datetime
    ) -> tuple[float | None, list[tuple[tuple[str, str], float]]]:
        gates, limits = situation.gates, situation.limits
        names = {columns[0]: type for type, columns in situation.served.items()}
        keys = [key for key in names if not gates.shuts(key)]
        first, limited = [], []
        for key, collection, due, is_cut in dues(self.store, keys, as_text(now)):
            if is_cut:
                first.append(0.0)  # there may be
            if due is None or gates.shuts(key, collection):
                continue
            seconds = (as_instant(due) - now).total_seconds()
            if limits.shuts(key, collection):
                limited.append(((names[key], collection), seconds))
            else:
                first.append(seconds)
        return min(first, default=None), limited
