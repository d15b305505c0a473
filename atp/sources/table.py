"""A table of the queue's own database: its rows are removed when they are settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from django.core import serializers
from django.db import models
from django.db.models import Q, QuerySet

from ..conf import settings
from ..exceptions import InvalidType
from .base import Reader, Record, Source

# The number of rows that cannot be taken now, after which an attempt reads no more.
MOST_LEFT = 1000
# The number up to which the rows that are left are counted.
MOST_COUNTED = 10_000


@dataclass(frozen=True, kw_only=True)
class RowRecord(Record):
    """A row of a table, as it was read; ``position`` is its primary key as text."""

    row: Any


class Table(Source):
    """The rows of a model that match ``where``: an outbox.

    The model's table is in the queue's database. Rows are read in the order ``order_by``, and
    removed in the transaction that enqueues their Instances. A row that somebody changes after it
    was read is read again. Raises InvalidType.
    """

    def __init__(
        self, model: type[models.Model], *, where: Q | None = None, order_by: Sequence[str] = ()
    ) -> None:
        if not (isinstance(model, type) and issubclass(model, models.Model)):
            raise InvalidType(f"Table({model!r}): must be a model.")
        if where is not None and not isinstance(where, Q):
            raise InvalidType(f"Table(where={where!r}): must be a Q object.")
        if isinstance(order_by, str):
            raise InvalidType(f"Table(order_by={order_by!r}): must be a list of fields.")
        self.model, self.where = model, where or Q()
        self.order_by = tuple(order_by) or ("pk",)

    def __str__(self) -> str:
        label = self.model._meta.label
        return f"{label} where {self.where}" if self.where else label

    def open(self, positions: Mapping[str, str]) -> AbstractContextManager[Reader]:
        return nullcontext(_Reader(self))

    def rows(self) -> QuerySet[Any]:
        """Return all rows that are records, in the order in which they are read."""
        rows = self.model._base_manager.using(settings.DATABASE)
        return rows.filter(self.where).order_by(*self.order_by)

    def pack(self, record: Record) -> dict[str, Any]:
        [packed] = serializers.serialize("python", [record.row])  # type: ignore[attr-defined]
        return packed

    def unpack(self, packed: Mapping[str, Any]) -> RowRecord:
        found = serializers.deserialize("python", [packed], using=settings.DATABASE)
        row = next(iter(found)).object
        return RowRecord(position=str(row.pk), row=row)


class _Reader(Reader):
    def __init__(self, source: Table) -> None:
        self._source = source
        # The keys of rows that could not be taken: another attempt reads them again.
        self._left: set[Any] = set()

    def read(self, limit: int) -> Sequence[Record]:
        if len(self._left) >= MOST_LEFT:
            return []
        rows = self._source.rows().exclude(pk__in=self._left)[:limit]
        return [RowRecord(position=str(row.pk), row=row) for row in rows]

    def take(self, records: Sequence[RowRecord]) -> Sequence[RowRecord]:  # type: ignore[override]
        """Remove the rows that nobody has changed or locked since they were read."""
        rows = self._source.model._base_manager.using(settings.DATABASE)
        keys = [record.row.pk for record in records]
        locked = rows.filter(pk__in=keys).select_for_update(skip_locked=True)
        now = {row.pk: _values(row) for row in locked}
        taken = [each for each in records if now.get(each.row.pk) == _values(each.row)]
        found = {record.row.pk for record in taken}
        rows.filter(pk__in=found).delete()
        self._left |= {key for key in keys if key not in found}
        return taken

    def behind(self) -> int:
        return self._source.rows().order_by()[:MOST_COUNTED].count()


def _values(row: models.Model) -> tuple[Any, ...]:
    return tuple(getattr(row, each.attname) for each in row._meta.concrete_fields)
