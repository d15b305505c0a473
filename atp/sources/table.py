"""A table of the queue's own database: its rows are removed when they are settled."""

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
from ..store.values.steps import Note
from .base import BATCH_BYTES, NAMED, Reader, Record, Source

# The number up to which the rows that are left are counted.
MOST_COUNTED = 10_000
# The number of rows that one query loads: their size is known only afterwards.
PORTION = 32

# The values of a row, or of its key, as the driver of the database gives them.
Values: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class RowRecord(Record):
    """A row of a table; ``position`` is its primary key as text.

    ``key`` is that key, and ``values`` are the values that the database had, before the fields of
    the model converted them: the function may do to the row what it likes.
    """

    row: Any
    key: Any = field(default=None, repr=False, compare=False)
    values: Values = field(default=(), repr=False, compare=False)


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
        return f"{label} where {_in_words(self.where)}" if self.where else label

    def misplaced(self) -> str:
        """Return why one transaction cannot remove rows and enqueue; empty if it can."""
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
        """Return all rows that are records, in the order in which they are read."""
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
                f"a row of {packed.get('model')!r} is none of {self.model._meta.label}"
            )
        found = serializers.deserialize("python", [packed], using=settings.DATABASE)
        row = next(iter(found)).object
        row._state.db = settings.DATABASE
        return RowRecord(position=str(row.pk), row=row)


def _in_words(condition: Any) -> str:
    """Return a condition as a person writes it, as ``kind='order' and not done=True``."""
    if isinstance(condition, tuple):
        name, value = condition
        return f"{name}={value!r}"
    if not isinstance(condition, Q):
        return str(condition)
    parts = [
        f"({told})" if isinstance(child, Q) and len(child) > 1 and not child.negated else told
        for child in condition.children
        for told in [_in_words(child)]
    ]
    told = f" {condition.connector.lower()} ".join(parts)
    if not condition.negated:
        return told
    return f"not ({told})" if len(parts) > 1 else f"not {told}"


class _Reader(Reader):
    """Maps each row once: one that cannot be taken is left, and those behind it are read."""

    def __init__(self, source: Table) -> None:
        self._source = source
        options = source.model._meta
        self._fields = options.concrete_fields
        self._keys = [self._fields.index(each) for each in options.pk_fields]
        # The rows that are left, by the values of their keys, with their positions: those that are
        # in use, those that can be neither mapped nor kept, and those that cannot be removed.
        self._in_use: dict[Values, str] = {}
        self._unusable: dict[Values, str] = {}
        self._kept: dict[Values, str] = {}
        self._refusal = ""
        self._largest = 0

    def read(self, limit: int) -> Sequence[RowRecord]:
        """Read up to ``limit`` rows, or BATCH_BYTES, that this attempt has not left.

        Raises Fatal if there are no more, and some of those before could not be removed.
        """
        keys = self._next(limit)
        found: list[RowRecord] = []
        size, portion = 0, 1
        while keys and size < BATCH_BYTES:
            found += (loaded := self._load(keys[:portion]))
            keys = keys[portion:]
            sizes = [_size(each.values) for each in loaded]
            size += sum(sizes)
            self._largest = max([1, self._largest, *sizes])
            fitting = max(1, (BATCH_BYTES - size) // self._largest)
            portion = min(2 * portion, fitting, PORTION)
        if not found:
            self._check_kept()
        return found

    def _next(self, limit: int) -> list[Any]:
        """Return the keys of the next rows."""
        left = self._in_use.keys() | self._unusable.keys() | self._kept.keys()
        columns = self._columns(self._fields[each] for each in self._keys)
        rows = self._source.rows().values_list("pk", *columns)[: len(left) + limit]
        # A row may come twice, if ``where`` joins another table.
        keys = {tuple(values): key for key, *values in rows if tuple(values) not in left}
        return list(keys.values())[:limit]

    def _load(self, keys: Sequence[Any]) -> list[RowRecord]:
        """Load rows in the order of their keys, each with what the database has for it."""
        names = [f"_atp_{number}" for number in range(len(self._fields))]
        columns = dict(zip(names, self._columns(self._fields), strict=True))
        found: dict[Any, RowRecord] = {}
        for row in self._source.rows().filter(pk__in=keys).annotate(**columns):
            values = tuple(row.__dict__.pop(name) for name in names)
            record = RowRecord(position=str(row.pk), row=row, key=row.pk, values=values)
            found.setdefault(self._key(values), record)
        return list(found.values())

    def take(self, records: Sequence[RowRecord]) -> Sequence[RowRecord]:  # type: ignore[override]
        """Remove the rows that nobody has changed or locked since they were read.

        Raises Fatal if none of them can be removed.
        """
        rows = self._source.all().filter(pk__in=[each.key for each in records])
        locked = rows.select_for_update(skip_locked=True)
        columns = self._columns(self._fields)
        now = {self._key(values): values for values in locked.values_list(*columns)}
        same = [each for each in records if _is_same(now.get(self._of(each)), each.values)]
        left = {self._of(each) for each in records} - {self._of(each) for each in same}
        self._in_use |= {self._of(each): str(each) for each in records if self._of(each) in left}
        self._remove(same)
        taken = [each for each in same if self._of(each) not in self._kept]
        if not taken:
            self._check_kept()
        return taken

    def _remove(self, records: Sequence[RowRecord]) -> None:
        """Remove rows; note those that stay, whatever the reason. Raises OperationalError."""
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
            stays = {self._of(each) for each in records}
            self._refusal = f"{type(error).__name__}: {error}"
        else:
            # A trigger, a rule or a policy lets a DELETE do nothing, or something else.
            columns = self._columns(self._fields[each] for each in self._keys)
            rows = self._source.rows().filter(pk__in=keys).order_by()
            stays = {tuple(each) for each in rows.values_list(*columns)}
        self._kept |= {self._of(each): str(each) for each in records if self._of(each) in stays}

    def _check_kept(self) -> None:
        """Raise Fatal if rows cannot be removed: each look would enqueue their calls again."""
        if not self._kept:
            return
        why = self._refusal or "a trigger, a rule or row-level security keeps them"
        raise Fatal(
            f"{len(self._kept)} rows of {self._source.model._meta.label} cannot be removed, so "
            f"their calls are not enqueued: {_named(self._kept)} ({why}).",
            fingerprint="not removed",
        )

    def leave(self, record: RowRecord) -> None:  # type: ignore[override]
        self._unusable[self._of(record)] = str(record)

    def behind(self) -> int:
        return self._source.rows().order_by()[:MOST_COUNTED].count()

    def notes(self) -> Sequence[Note]:
        """Return which rows are left: those that nobody can keep, and those in use."""
        found = []
        if self._unusable:
            told = f"rows can neither be mapped nor be kept as inputs: {_named(self._unusable)}"
            count = len(self._unusable)
            found.append(Note(kind="skipped", count=count, message=f"{count} {told}"))
        if self._in_use:
            told = (
                "rows are left for the next look, as somebody has locked or changed them: "
                f"{_named(self._in_use)}"
            )
            count = len(self._in_use)
            found.append(Note(kind="waiting", count=count, message=f"{count} {told}"))
        return found

    def _of(self, record: RowRecord) -> Values:
        """Return the values of the key of a row as it was read."""
        return self._key(record.values)

    def _key(self, values: Values) -> Values:
        return tuple(values[each] for each in self._keys)

    def _columns(self, fields: Iterable[Any]) -> Iterator[ExpressionWrapper]:
        """Yield columns whose values no field converts, so that each equals itself."""
        for each in fields:
            yield ExpressionWrapper(F(each.attname), output_field=models.Field())


def _named(left: Mapping[Values, str]) -> str:
    return ", ".join(list(left.values())[:NAMED])


def _size(values: Values) -> int:
    """Return about how many bytes the values of a row have."""
    return sum(
        len(each) if isinstance(each, (str, bytes, memoryview)) else sys.getsizeof(each)
        for each in values
    )


def _is_same(now: Values | None, read: Values) -> bool:
    """Whether a row is as it was read. A NaN, which equals nothing, has the same text."""
    if now is None:
        return False
    pairs = zip(now, read, strict=True)
    return all(one == other or repr(one) == repr(other) for one, other in pairs)
