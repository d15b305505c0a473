"""A source that reads a table in the queue's database.

ATP removes a row in the transaction that enqueues the calls for the row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from django.core import serializers
from django.db import DatabaseError, InterfaceError, OperationalError, models, router, transaction
from django.db.models import ExpressionWrapper, F, Q, QuerySet

from ..conf import settings
from ..exceptions import Fatal, InvalidType
from ..store.values import Note
from .base import BATCH_BYTES, NAMED, Reader, Record, Source

# The remaining rows are counted up to this number.
MOST_COUNTED = 10_000
# The maximum number of rows that one query loads: their size is known only afterwards.
PORTION = 32

# The values of a row, or of its key, as the database driver returns them.
Values: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class RowRecord(Record):
    """A row in a table; ``position`` is its primary key as text.

    ``key`` is the primary key. ``values`` are the row's values in the database, before the model's
    fields convert them. ATP compares these, so that a tailer's function may change ``row``.
    """

    row: Any
    key: Any = field(default=None, repr=False, compare=False)
    values: Values = field(default=(), repr=False, compare=False)


class Table(Source):
    """A source that reads the rows of a model that match ``where``, such as an outbox.

    The model's table must be in the queue's database. Rows are read in the order ``order_by``, and
    removed in the transaction that enqueues their Instances. A row that somebody changes after it
    was read is read again. Raises InvalidType, for example if the model inherits columns from
    another table.
    """

    removes = True

    def __init__(
        self, model: type[models.Model], *, where: Q | None = None, order_by: Sequence[str] = ()
    ) -> None:
        if not (isinstance(model, type) and issubclass(model, models.Model)):
            raise InvalidType(f"Table({model!r}): the argument must be a model class.")
        if any(
            parent._meta.concrete_model is not model._meta.concrete_model
            for parent in model._meta.parents
        ):
            raise InvalidType(
                f"Table({model.__name__}): must not inherit columns from another table."
            )
        if where is not None and not isinstance(where, Q):
            raise InvalidType(f"Table(where={where!r}): must be a Q object.")
        if isinstance(order_by, str):
            raise InvalidType(f"Table(order_by={order_by!r}): must be a list of fields.")
        self.model, self.where = model, where or Q()
        self.order_by = tuple(order_by) or ("pk",)

    def __str__(self) -> str:
        label = self.model._meta.label
        return f"{label} where {_describe_condition(self.where)}" if self.where else label

    def misplaced(self) -> str:
        """Return why one transaction cannot both remove rows and enqueue; "" if it can."""
        there = router.db_for_write(self.model)
        if there == settings.DATABASE:
            return ""
        return (
            f"the rows of {self.model._meta.label} are in database {there!r}, and the queue is in "
            f"{settings.DATABASE!r}: one transaction cannot span both"
        )

    def open(self, positions: Mapping[str, str]) -> AbstractContextManager[Reader]:
        if why := self.misplaced():
            raise Fatal(f"{self}: {why}.", fingerprint="another database")
        return nullcontext(_Reader(self))

    def rows(self) -> QuerySet[Any]:
        """Return the rows that match ``where``, in the order in which they are read."""
        return self.all().filter(self.where).order_by(*self.order_by)

    def all(self) -> QuerySet[Any]:
        """Return all rows of the table."""
        return self.model._base_manager.using(settings.DATABASE)

    def pack(self, record: Record) -> dict[str, Any]:
        # The function may have changed its row, so the row is read again.
        row = record.row  # type: ignore[attr-defined]
        if record.values:  # type: ignore[attr-defined]
            row = self.all().filter(pk=record.key).first() or row
        [packed] = serializers.serialize("python", [row])
        return packed

    def unpack(self, packed: Mapping[str, Any]) -> RowRecord:
        if packed.get("model") != self.model._meta.label_lower:
            raise ValueError(
                f"a row of {packed.get('model')!r} is not a row of {self.model._meta.label}"
            )
        rows = serializers.deserialize("python", [packed], using=settings.DATABASE)
        row = next(iter(rows)).object
        row._state.db = settings.DATABASE
        return RowRecord(position=str(row.pk), row=row)


def _describe_condition(condition: Any) -> str:
    """Return a condition as people write it, such as ``kind='order' and not done=True``."""
    if isinstance(condition, tuple):
        name, value = condition
        return f"{name}={value!r}"
    if not isinstance(condition, Q):
        return str(condition)
    parts = [
        f"({part})" if isinstance(child, Q) and len(child) > 1 and not child.negated else part
        for child in condition.children
        for part in [_describe_condition(child)]
    ]
    text = f" {condition.connector.lower()} ".join(parts)
    if not condition.negated:
        return text
    return f"not ({text})" if len(parts) > 1 else f"not {text}"


class _Reader(Reader):
    """Reads each row only once in an attempt, so that a row that stays does not hold up others."""

    def __init__(self, source: Table) -> None:
        self._source = source
        options = source.model._meta
        self._fields = options.concrete_fields
        self._keys = [self._fields.index(each) for each in options.pk_fields]
        # The positions of the rows that stay in the table, by the values of their keys: those in
        # use, those that can be neither mapped nor kept as inputs, and those not removed.
        self._in_use: dict[Values, str] = {}
        self._unusable: dict[Values, str] = {}
        self._not_removed: dict[Values, str] = {}
        self._delete_error = ""
        self._largest_row = 0

    def read(self, limit: int) -> Sequence[RowRecord]:
        """Return the next rows, up to ``limit`` or BATCH_BYTES, without rows left for later.

        Raises Fatal if no rows remain, and earlier rows could not be removed.
        """
        keys = self._next_keys(limit)
        batch: list[RowRecord] = []
        size, portion = 0, 1
        while keys and size < BATCH_BYTES:
            batch += (loaded := self._load(keys[:portion]))
            keys = keys[portion:]
            sizes = [_estimate_size(each.values) for each in loaded]
            size += sum(sizes)
            self._largest_row = max([1, self._largest_row, *sizes])
            fitting = max(1, (BATCH_BYTES - size) // self._largest_row)
            portion = min(2 * portion, fitting, PORTION)
        if not batch:
            self._check_removed()
        return batch

    def _next_keys(self, limit: int) -> list[Any]:
        """Return the primary keys of the next rows, ``limit`` at most."""
        left = self._in_use.keys() | self._unusable.keys() | self._not_removed.keys()
        columns = self._columns(self._fields[each] for each in self._keys)
        rows = self._source.rows().values_list("pk", *columns)[: len(left) + limit]
        # A row appears twice if ``where`` joins another table that has two matching rows.
        keys = {tuple(values): key for key, *values in rows if tuple(values) not in left}
        return list(keys.values())[:limit]

    def _load(self, keys: Sequence[Any]) -> list[RowRecord]:
        """Load the rows with these keys, in reading order, with their unconverted values."""
        names = [f"_atp_{number}" for number in range(len(self._fields))]
        columns = dict(zip(names, self._columns(self._fields), strict=True))
        by_key: dict[Any, RowRecord] = {}
        for row in self._source.rows().filter(pk__in=keys).annotate(**columns):
            values = tuple(row.__dict__.pop(name) for name in names)
            record = RowRecord(position=str(row.pk), row=row, key=row.pk, values=values)
            by_key.setdefault(self._key_in(values), record)
        return list(by_key.values())

    def take(self, records: Sequence[RowRecord]) -> Sequence[RowRecord]:  # type: ignore[override]
        """Remove the rows that nobody has changed or locked since they were read; return them.

        Raises Fatal if none of them can be removed.
        """
        rows = self._source.all().filter(pk__in=[each.key for each in records])
        locked = rows.select_for_update(skip_locked=True)
        columns = self._columns(self._fields)
        now = {self._key_in(values): values for values in locked.values_list(*columns)}
        same = [each for each in records if _is_same(now.get(self._key_of(each)), each.values)]
        left = {self._key_of(each) for each in records} - {self._key_of(each) for each in same}
        self._in_use |= {
            self._key_of(each): str(each) for each in records if self._key_of(each) in left
        }
        self._remove(same)
        taken = [each for each in same if self._key_of(each) not in self._not_removed]
        if not taken:
            self._check_removed()
        return taken

    def _remove(self, records: Sequence[RowRecord]) -> None:
        """Remove rows, and remember those that the database does not remove.

        Raises OperationalError or InterfaceError.
        """
        if not records:
            return
        keys = [each.key for each in records]
        try:
            with transaction.atomic(using=settings.DATABASE):
                self._source.all().filter(pk__in=keys).delete()
        except (OperationalError, InterfaceError):
            raise
        except DatabaseError as error:
            if len(records) > 1:
                half = len(records) // 2
                self._remove(records[:half])
                self._remove(records[half:])
                return
            stays = {self._key_of(each) for each in records}
            self._delete_error = f"{type(error).__name__}: {error}"
        else:
            # A trigger, a rule or a policy can make a DELETE do nothing, or something else.
            columns = self._columns(self._fields[each] for each in self._keys)
            rows = self._source.rows().filter(pk__in=keys).order_by()
            stays = {tuple(each) for each in rows.values_list(*columns)}
        self._not_removed |= {
            self._key_of(each): str(each) for each in records if self._key_of(each) in stays
        }

    def _check_removed(self) -> None:
        """Raise Fatal if the database did not remove some rows.

        Their calls are not enqueued, because each further attempt would enqueue them again.
        """
        if not self._not_removed:
            return
        why = self._delete_error or "a trigger, a rule or row-level security keeps them"
        raise Fatal(
            f"{len(self._not_removed)} rows of {self._source.model._meta.label} cannot be removed, "
            f"so their calls are not enqueued: {_list_some(self._not_removed)} ({why}).",
            fingerprint="not removed",
        )

    def leave(self, record: RowRecord) -> None:  # type: ignore[override]
        self._unusable[self._key_of(record)] = str(record)

    def behind(self) -> int:
        return self._source.rows().order_by()[:MOST_COUNTED].count()

    def notes(self) -> Sequence[Note]:
        """Return notes about the rows that cannot be stored as inputs, and about rows in use."""
        notes = []
        if self._unusable:
            count = len(self._unusable)
            why = (
                f"rows can neither be mapped nor be stored as inputs: {_list_some(self._unusable)}"
            )
            notes.append(Note(kind="skipped", count=count, message=f"{count} {why}"))
        if self._in_use:
            count = len(self._in_use)
            why = (
                "rows are left for the next attempt, because somebody has locked or changed them: "
                f"{_list_some(self._in_use)}"
            )
            notes.append(Note(kind="waiting", count=count, message=f"{count} {why}"))
        return notes

    def _key_of(self, record: RowRecord) -> Values:
        """Return the values of a row's primary key, as they were when it was read."""
        return self._key_in(record.values)

    def _key_in(self, values: Values) -> Values:
        return tuple(values[each] for each in self._keys)

    def _columns(self, fields: Iterable[Any]) -> Iterator[ExpressionWrapper]:
        """Yield query expressions for the columns of these fields, without conversion of values."""
        for each in fields:
            yield ExpressionWrapper(F(each.attname), output_field=models.Field())


def _list_some(left: Mapping[Values, str]) -> str:
    return ", ".join(list(left.values())[:NAMED])


def _estimate_size(values: Values) -> int:
    """Return the approximate size of a row's values, in bytes."""
    return sum(
        len(each) if isinstance(each, (str, bytes, memoryview)) else sys.getsizeof(each)
        for each in values
    )


def _is_same(now: Values | None, read: Values) -> bool:
    """Return True if a row is unchanged. A NaN equals nothing, so it is compared as text."""
    if now is None:
        return False
    pairs = zip(now, read, strict=True)
    return all(one == other or repr(one) == repr(other) for one, other in pairs)
