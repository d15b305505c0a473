"""Checkpoints on PostgreSQL: one statement each, which is a transaction by itself."""

from ...conf import settings
from ..common.steps import Steps as ORMSteps
from ..values import Checkpoint
from .driver.cursors import cursor_of
from .driver.statements import statement


class Steps(ORMSteps):
    def begin(self, instance, attempt, name, *, who="", delay=None):
        given = {"instance": instance, "attempt": attempt, "name": name, "delay": delay}
        if self._write("begin_step", given | {"most": settings.MAX_STEPS}):
            left = 0.0 if delay is None else delay.total_seconds()
            return Checkpoint(is_done=False, left=left)
        return super().begin(instance, attempt, name, who=who, delay=delay)

    def keep(self, instance, attempt, name, payload, *, took=None):
        given = {"instance": instance, "attempt": attempt, "name": name, **payload._asdict()}
        if self._write("keep_step", given):
            return True
        return super().keep(instance, attempt, name, payload, took=took)

    def _write(self, name, given):
        """Execute a statement that writes at most one row; returns whether it wrote one."""
        with cursor_of(self._store.connection) as cursor:
            cursor.execute(statement(name).text, given)
            return cursor.rowcount == 1
