"""A daemon's regular question on SQLite."""

from datetime import UTC, datetime

from ..orm.daemons import Daemons as ORMDaemons
from ..values import Outlook
from .base import as_text
from .waiting import Waiting


class Daemons(Waiting, ORMDaemons):
    def outlook(self, types, *, daemon=None):
        now = self.now()
        due, limited = self._first_due(list(types), now)
        return Outlook(
            due=self._due_in(due, limited, self._opens(now)),
            late=self._is_late(as_text(now)),
            drops=self._drops(),
            **self._others_and_own(daemon, now),
        )

    def _first_due(self, types, now):
        gates, limits, _ = self._set(as_text(now))
        names = {columns[0]: type for type, columns in self._served(types).items()}
        keys = [key for key in names if not gates.shuts(key)]
        first, limited = [], []
        for key, collection, due, is_cut in self._dues(keys, as_text(now)):
            if is_cut:
                first.append(0.0)  # there may be
            if due is None or gates.shuts(key, collection):
                continue
            seconds = (_time(due) - now).total_seconds()
            if limits.shuts(key, collection):
                limited.append(((names[key], collection), seconds))
            else:
                first.append(seconds)
        return min(first, default=None), limited


def _time(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
