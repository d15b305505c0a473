"""Removing many Instances; the argument names of inputs."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from django.db import DataError, OperationalError

from ...exceptions import NotSerializable
from ...models import Instance
from ..common.removal import Over, is_followed
from ..common.removal import Removal as ORMRemoval
from ..common.types import Inputs as ORMInputs
from ..facts import Marks, Shape
from .statements import cursor_of, execute, planning, statement

if TYPE_CHECKING:
    from . import PostgreSQLStore

# Removing ended Instances on PostgreSQL: many, with all their rows, by one statement.

# How long to wait for a session that has locked a log record or inputs.
PATIENCE = "SET LOCAL lock_timeout = '50ms'"


class Removal(ORMRemoval):
    """Removes ended Instances with all their rows by one statement: see `purge.sql`."""

    store: "PostgreSQLStore"

    def _remove_over(self, over: Over, limit: int, who: str, marks: Marks) -> int:
        if who or is_followed():
            return super()._remove_over(over, limit, who, marks)
        since = marks.get((over.type, over.reasons), 0.0)
        try:
            found, until, stored = self._purge(over, since, limit)
        except OperationalError as error:
            if not self.store.is_lock(error):
                raise
            # Some row is locked. The portable store finds out which, and leaves that Instance out.
            return super()._remove_over(over, limit, who, marks)
        if until is not None:
            self._passed(marks, over, until, is_full=found == limit and bool(stored))
        removed = found - len(stored)
        if stored:
            removed += self._remove(self.rows(Instance).filter(pk__in=stored), len(stored), who)
        return removed

    def _purge(self, over: Over, since: float, limit: int) -> tuple[int, float | None, list[int]]:
        """Execute the statement; returns the number found, the last end, and those with files."""
        wanted = statement("purge")
        given: dict[str, Any] = {
            "type": over.type,
            "reasons": over.reasons,
            "since": since,
            "before": over.before.timestamp(),
            "limit": limit,
        }
        # Inside a caller's transaction, the settings would remain after this.
        is_own = not self.store.connection.in_atomic_block
        with (
            self.store.atomic() if is_own else nullcontext(),
            cursor_of(self.store.connection) as cursor,
        ):
            if is_own:
                cursor.execute(f"{planning('SET LOCAL')}; {PATIENCE}")
            cursor.execute(wanted.text, given)
            found, until, stored = cursor.fetchone()
        return found, until, stored or []


# Inputs in PostgreSQL: the server reads them, and sends the names of their arguments alone.


# The shapes of inputs: the server extracts them from JSON.


class Inputs(ORMInputs):
    store: "PostgreSQLStore"

    def shapes(self, after: int = 0, *, limit: int = 5_000) -> tuple[list[Shape], int | None]:
        store, given = self.store, {"after": after, "limit": limit}
        try:
            with store.atomic(), cursor_of(store.connection) as cursor:
                execute(cursor, "shapes", given, prepared=False)
                rows = cursor.fetchall()
        except (DataError, NotSerializable):
            # Some inputs are no JSON object: read them one by one to find out which.
            return super().shapes(after, limit=limit)
        found = [
            Shape(
                type=type,
                format=format,
                placed=placed,
                names=None if names is None else tuple(sorted(names)),
                has_results=bool(has_results),
                keys=tuple(keys),
                since=since,
            )
            for type, format, placed, names, has_results, keys, since in rows
        ]
        return found, max((key for each in found for key in each.keys), default=None)
