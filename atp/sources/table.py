"""A table of the queue's own database: its rows are removed when they are settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from math import isnan
from typing import Any

from django.core import serializers
from django.db import models
from django.db.models import Q, QuerySet

from ..conf import settings
from ..exceptions import InvalidType
from .base import Reader, Record, Source

# The number up to which the rows that are left are counted.
MOST_COUNTED = 10_000


@dataclass(frozen=True, kw_only=True)
class RowRecord(Record):
    """A row of a table; ``position`` is its primary key as text.

    ``values`` are those that were read, whatever the function does to the row.
    """

    row: Any
    values: tuple[Any, ...] = field(default=(), repr=False)


class Table(Source):
    """The rows of a model that match ``where``: an outbox.

    The model's table is in the queue's database. Rows are read in the order ``order_by``, and
    removed in the transaction that enqueues their Instances. A row that somebody changes after it
    was read is read again. A model that inherits columns of another table is refused. Raises
    InvalidType.
    """

    removes = True

    def __init__(
        self, model: type[models.Model], *, where: Q | None = None, order_by: Sequence[str] = ()
    ) -> None:
        if not (isinstance(model, type) and issubclass(model, models.Model)):
            raise InvalidType(f"Table({model!r}): must be a model.")
        if any(
            parent._meta.concrete_model is not model._meta.concrete_model
            for parent in model._meta.parents
        ):
            raise InvalidType(
                f"Table({model.__name__}): has columns in the table of another model."
            )
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
        names = [each.attname for each in self.model._meta.concrete_fields]
        values = record.values or _values(record.row)  # type: ignore[attr-defined]
        row = self.model.from_db(settings.DATABASE, names, values)
        [packed] = serializers.serialize("python", [row])
        return packed

    def unpack(self, packed: Mapping[str, Any]) -> RowRecord:
        if packed.get("model") != self.model._meta.label_lower:
            raise ValueError(
                f"a row of {packed.get('model')!r} is none of {self.model._meta.label}"
            )
        found = serializers.deserialize("python", [packed], using=settings.DATABASE)
        row = next(iter(found)).object
        row._state.db = settings.DATABASE
        return RowRecord(position=str(row.pk), row=row, values=_values(row))


class _Reader(Reader):
    def __init__(self, source: Table) -> None:
        self._source = source
        # The keys of rows that could not be taken: another attempt reads them again.
        self._left: set[Any] = set()

    def read(self, limit: int) -> Sequence[Record]:
        # Those that are left come first, as the others are removed.
        begin = len(self._left)
        rows = self._source.rows()[begin : begin + limit]
        return [RowRecord(position=str(row.pk), row=row, values=_values(row)) for row in rows]

    def take(self, records: Sequence[RowRecord]) -> Sequence[RowRecord]:  # type: ignore[override]
        """Remove the rows that nobody has changed or locked since they were read."""
        rows = self._source.model._base_manager.using(settings.DATABASE)
        keys = [self._of(each) for each in records]
        locked = rows.filter(pk__in=keys).select_for_update(skip_locked=True)
        now = {row.pk: _values(row) for row in locked}
        taken = [each for each in records if _is_same(now.get(self._of(each)), each.values)]
        found = {self._of(record) for record in taken}
        rows.filter(pk__in=found).delete()
        self._left |= {key for key in keys if key not in found}
        return taken

    def leave(self, record: RowRecord) -> None:  # type: ignore[override]
        self._left.add(self._of(record))

    def behind(self) -> int:
        return self._source.rows().order_by()[:MOST_COUNTED].count()

    def notes(self) -> Sequence[str]:
        if not self._left:
            return ()
        return [
            f"{len(self._left)} rows are left for the next look: somebody has locked or changed "
            "them, or they can neither be mapped nor be kept as inputs"
        ]

    def _of(self, record: RowRecord) -> Any:
        """Return the key of a row as it was read."""
        return record.values[self._key()]

    def _key(self) -> int:
        names = [each.attname for each in self._source.model._meta.concrete_fields]
        return names.index(self._source.model._meta.pk.attname)


def _values(row: models.Model) -> tuple[Any, ...]:
    """Return the values of a row, which share nothing with it."""
    return deepcopy(tuple(getattr(row, each.attname) for each in row._meta.concrete_fields))


def _is_same(now: tuple[Any, ...] | None, read: tuple[Any, ...]) -> bool:
    """Whether a row is as it was read. A NaN, which equals nothing, is itself."""
    if now is None:
        return False
    pairs = zip(now, read, strict=True)
    return all(one == other or (_is_nan(one) and _is_nan(other)) for one, other in pairs)


def _is_nan(value: Any) -> bool:
    return isinstance(value, (float, Decimal)) and isnan(value)
