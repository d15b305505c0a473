"""The shapes of inputs: the server extracts them from JSON."""

from django.db import DataError

from ....exceptions import NotSerializable
from ...common.inputs import Inputs as ORMInputs
from ...facts import Shape
from ..driver.cursors import cursor_of
from ..driver.statements import execute


class Inputs(ORMInputs):
    def shapes(self, after=0, *, limit=5_000):
        store, given = self._store, {"after": after, "limit": limit}
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
