"""Removing ended Instances on SQLite: many, by one statement for each table."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from ...models import Instance
from ..common.removal import Over, is_followed
from ..common.removal import Removal as ORMRemoval
from ..facts import Marks
from .sessions import as_json, as_text

if TYPE_CHECKING:
    from . import SQLiteStore

_OVER = """
    SELECT id, finished, EXISTS (
        SELECT 1 FROM atp_response
        WHERE instance_id = atp_instance.id AND (file <> '' OR files <> '[]')
    )
    FROM atp_instance
    WHERE type_id = %(type)s AND finished IS NOT NULL
        AND finished >= %(since)s AND finished < %(before)s
        AND (%(reasons)s = '' OR (reason = '') = (%(reasons)s = 'none'))
        AND NOT EXISTS (SELECT 1 FROM atp_node WHERE instance_id = atp_instance.id)
    ORDER BY finished
    LIMIT %(limit)s
"""
_STORED = """
    SELECT instance_id FROM atp_response
    WHERE instance_id IN (SELECT value FROM json_each(%(keys)s)) AND (file <> '' OR files <> '[]')
"""
# Rows that refer to the Instance are deleted before it. An ended Instance has no Task.
_REMOVE = (
    "DELETE FROM atp_inputs WHERE instance_id IN (SELECT value FROM json_each(%(keys)s))",
    "DELETE FROM atp_response WHERE instance_id IN (SELECT value FROM json_each(%(keys)s))",
    "DELETE FROM atp_step WHERE instance_id IN (SELECT value FROM json_each(%(keys)s))",
    "DELETE FROM atp_logrecord WHERE instance_id IN (SELECT value FROM json_each(%(keys)s))",
    "DELETE FROM atp_instance WHERE id IN (SELECT value FROM json_each(%(keys)s))",
)


class Removal(ORMRemoval):
    """Deletes old Instances by statements that take many keys."""

    store: "SQLiteStore"

    def _remove_over(self, over: Over, limit: int, who: str, marks: Marks) -> int:
        if who or is_followed():
            return super()._remove_over(over, limit, who, marks)
        given = over._replace(before=as_text(over.before))._asdict()  # type: ignore[arg-type]
        given |= {"since": marks.get((over.type, over.reasons), ""), "limit": limit}
        with self.store.atomic():
            found = self.store.select(_OVER, **given)
            keys = as_json([key for key, _, is_stored in found if not is_stored])
            self._run_removal(keys)
        if not found:
            return 0
        stored = [key for key, _, is_stored in found if is_stored]
        is_full = len(found) == limit and bool(stored)
        self._passed(marks, over, found[-1][1], is_full=is_full)
        removed = len(found) - len(stored)
        if stored:
            removed += self._remove(self.rows(Instance).filter(pk__in=stored), len(stored), who)
        return removed

    def _run_removal(self, keys: str) -> None:
        for remove in _REMOVE:
            self.store.run(remove, keys=keys)

    def remove_finished(self, keys: Collection[int]) -> Collection[int]:
        """Remove Instances that have just FINISHED and are not kept; returns the keys of the rest.

        The rest has stored files, or may have rows of an application: the purge removes it.
        """
        if is_followed():
            return keys
        stored = {key for (key,) in self.store.select(_STORED, keys=as_json(keys))}
        self._run_removal(as_json([key for key in keys if key not in stored]))
        return stored
