"""Removing ended Instances on PostgreSQL: many, with all their rows, by one statement."""

from contextlib import nullcontext

from django.db import OperationalError

from ...models import Instance
from ..common.removal import Removal as ORMRemoval
from ..common.removal import is_followed
from .driver.cursors import cursor_of
from .driver.statements import planning, statement

# How long to wait for a session that has locked a log record or inputs.
PATIENCE = "SET LOCAL lock_timeout = '50ms'"


class Removal(ORMRemoval):
    def _remove_over(self, over, limit, who, marks):
        if who or is_followed():
            return super()._remove_over(over, limit, who, marks)
        since = marks.get((over.type, over.reasons), 0.0)
        try:
            found, until, stored = self._purge(over, since, limit)
        except OperationalError as error:
            if not self.is_lock(error):
                raise
            # Some row is locked. The portable store finds out which, and leaves that Instance out.
            return super()._remove_over(over, limit, who, marks)
        if until is not None:
            self._passed(marks, over, until, is_full=found == limit and bool(stored))
        removed = found - len(stored)
        if stored:
            removed += self._remove(self.rows(Instance).filter(pk__in=stored), len(stored), who)
        return removed

    def _purge(self, over, since, limit):
        """Execute the statement; returns the number found, the last end, and those with files."""
        wanted = statement("purge")
        given = {
            "type": over.type,
            "reasons": over.reasons,
            "since": since,
            "before": over.before.timestamp(),
            "limit": limit,
        }
        # Inside a caller's transaction, the settings would remain after this.
        is_own = not self.connection.in_atomic_block
        with self.atomic() if is_own else nullcontext(), cursor_of(self.connection) as cursor:
            if is_own:
                cursor.execute(f"{planning('SET LOCAL')}; {PATIENCE}")
            cursor.execute(wanted.text, given)
            found, until, stored = cursor.fetchone()
        return found, until, stored or []
