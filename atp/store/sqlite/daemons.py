"""A daemon's regular question on SQLite."""

from datetime import UTC, datetime

from ...models import Daemon
from ..orm.daemons import Daemons as ORMDaemons
from ..values import Outlook
from .base import as_json, as_text
from .waiting import Waiting


class Daemons(Waiting, ORMDaemons):
    def outlook(self, types, *, daemon=None):
        now = self.now()
        due = self._first_due(as_json(list(types)), as_text(now))
        others = self.rows(Daemon).exclude(uuid=daemon) if daemon else self.rows(Daemon).all()
        return Outlook(
            due=None if due is None else (_time(due) - now).total_seconds(),
            late=self._is_late(as_text(now)),
            lost=any(self.is_over(row, now) for row in others),
        )


def _time(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
