"""A daemon's regular question on SQLite."""

from datetime import UTC, datetime

from ..orm.daemons import Daemons as ORMDaemons
from ..values import Outlook
from .base import as_json, as_text
from .waiting import Waiting


class Daemons(Waiting, ORMDaemons):
    def outlook(self, types, *, daemon=None):
        now = self.now()
        due = self._first_due(as_json(list(types)), as_text(now))
        return Outlook(
            due=None if due is None else (_time(due) - now).total_seconds(),
            late=self._is_late(as_text(now)),
            **self._others_and_own(daemon, now),
        )


def _time(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
