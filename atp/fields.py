"""What the models share: a field for times, version 7 UUIDs, the check constraints of Instance."""

import os
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from django.db import models
from django.db.models import CheckConstraint, Q
from django.db.models.sql.query import Query
from django.utils import timezone

from .options import MAX_PRIORITY, MIN_PRIORITY
from .states import TERMINAL, Reason, State

# The check constraints of Instance, by which the database refuses invalid rows.
#
# PostgreSQL stores the condition of a check constraint as text, and parses it in every statement
# that writes to the table, for one row or a thousand. Even in their shortest form, the conditions
# of Instance took a quarter of the server's work for an enqueue. PostgreSQL parses the condition
# of a domain only once in a session, so the conditions are in a domain. With a function instead
# of the domain, an enqueue of 370 µs took 10 to 20 µs longer.


class CheckByDomain(CheckConstraint):
    """A check constraint that PostgreSQL evaluates through a domain over the rows of the table.

    Other databases get a plain check constraint. The domain has the name of the constraint, and is
    dropped with the constraint or the table.
    """

    def constraint_sql(self, model: Any, schema_editor: Any) -> Any:
        if schema_editor.connection.vendor != "postgresql":
            return super().constraint_sql(model, schema_editor)
        # The domain is over rows of the table, so the table has to be created first.
        schema_editor.deferred_sql.append(self.create_sql(model, schema_editor))
        return None

    def create_sql(self, model: Any, schema_editor: Any) -> Any:
        if schema_editor.connection.vendor != "postgresql":
            return super().create_sql(model, schema_editor)
        name = schema_editor.quote_name(self.name)
        table = schema_editor.quote_name(model._meta.db_table)
        condition = self._condition_of_row(model, schema_editor)
        return (
            f"CREATE DOMAIN {name} AS {table} CONSTRAINT {name} CHECK ({condition});\n"
            # A row is never NULL, so the comparison is always true. The cast is what matters: the
            # domain refuses it for an invalid row.
            f"ALTER TABLE {table} ADD CONSTRAINT {name}"
            f" CHECK (CAST({table} AS {name}) IS DISTINCT FROM NULL)"
        )

    def remove_sql(self, model: Any, schema_editor: Any) -> Any:
        if schema_editor.connection.vendor != "postgresql":
            return super().remove_sql(model, schema_editor)
        name = schema_editor.quote_name(self.name)
        table = schema_editor.quote_name(model._meta.db_table)
        return f"ALTER TABLE {table} DROP CONSTRAINT {name};\nDROP DOMAIN {name}"

    def _condition_of_row(self, model: Any, schema_editor: Any) -> str:
        """Return the SQL of the condition, with each column as a field of the domain's VALUE."""
        query = Query(model=model)
        where = query.build_where(self.condition)  # type: ignore[arg-type]
        compiler = query.get_compiler(connection=schema_editor.connection)
        sql, parameters = where.as_sql(compiler, schema_editor.connection)
        # The SQL has placeholders where the values of the condition belong.
        sql = sql.replace(f"{schema_editor.quote_name(model._meta.db_table)}.", "(VALUE).")
        return sql % tuple(schema_editor.quote_value(value) for value in parameters)


def _check_reason() -> Q:
    """Return the condition that a row has a reason if, and only if, the Instance is FAILED."""
    others = [state for state in State if state != State.FAILED]
    return Q(state__in=others, reason="") | Q(state=State.FAILED, reason__in=list(Reason))


def _check_finished() -> Q:
    """Return the condition that a row has ``finished`` if, and only if, the Instance is terminal.

    Partial indexes rely on this condition.
    """
    ended = Q(state__in=sorted(TERMINAL))
    return Q(ended, finished__isnull=False) | Q(~ended, finished__isnull=True)


def _check_numbers() -> Q:
    """Return the condition that the priority and the counters are within their ranges."""
    counts = ("attempt", "restarts", "retries", "lost")
    not_negative = Q(**{f"{count}__gte": 0 for count in counts})
    return Q(priority__gte=MIN_PRIORITY, priority__lte=MAX_PRIORITY) & not_negative


INSTANCE_CONSTRAINTS = [
    CheckByDomain(
        condition=_check_reason() & _check_finished() & _check_numbers(), name="atp_instance_valid"
    )
]


# Points in time.


class InstantField(models.DateTimeField):
    """A DateTimeField whose values always have a time zone, whatever USE_TZ is.

    SQLite has no type for times, so Django writes text in the connection's time zone. Text in local
    time sorts wrongly when the clocks go back. This field writes UTC, so that the store can compare
    due times and leases on every database.
    """

    description = "Point in time"

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "atp.fields.InstantField", args, kwargs

    def to_python(self, value: Any) -> Any:
        value = super().to_python(value)
        if value is not None and timezone.is_naive(value):
            value = timezone.make_aware(value)
        return value

    def get_prep_value(self, value: Any) -> Any:
        value = models.Field.get_prep_value(self, value)
        return self.to_python(value)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        if not prepared:
            value = self.get_prep_value(value)
        if value is None or hasattr(value, "resolve_expression"):
            return value
        value = value.astimezone(UTC)
        if connection.features.supports_timezones:
            return value
        return str(value.replace(tzinfo=None))

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        if value is None:
            return None
        if not connection.features.supports_timezones:
            # This field wrote UTC; Django has attached another time zone, or none.
            return value.replace(tzinfo=UTC)
        if timezone.is_naive(value):  # select_format() asked for UTC
            return value.replace(tzinfo=UTC)
        return value

    def select_format(self, compiler: Any, sql: str, params: Any) -> Any:
        """Select the time in UTC, because local time is ambiguous when the clocks go back."""
        connection = compiler.connection
        if connection.vendor == "postgresql" and connection.timezone_name != "UTC":
            return f"({sql}) AT TIME ZONE 'UTC'", params
        return super().select_format(compiler, sql, params)


# The uuids of Instances: hard to guess, and ordered by time (RFC 9562, version 7).

_TIME = (1 << 48) - 1
_VERSION = 0x7 << 76 | 0x2 << 62
# The number of random bytes in each, and a mask of the bits that time, version and variant leave.
_RANDOM = 10
_FREE = (1 << 80) - 1 & ~(0xF << 76) & ~(0x3 << 62)


def uuid7() -> uuid.UUID:
    """Return a version 7 UUID: 48 bits of milliseconds since the epoch, 74 random bits."""
    return uuid.UUID(int=uuid7_number())


def uuid7_number() -> int:
    """Return one version 7 UUID as a 128-bit number."""
    return _without_random() | int.from_bytes(os.urandom(_RANDOM)) & _FREE


def uuid7_numbers(count: int) -> list[int]:
    """Return ``count`` version 7 UUIDs with the current time, as 128-bit numbers."""
    base = _without_random()
    random = os.urandom(_RANDOM * count)
    return [
        base | int.from_bytes(random[at : at + _RANDOM]) & _FREE
        for at in range(0, len(random), _RANDOM)
    ]


def first_uuid7(time: datetime) -> uuid.UUID:
    """Return the smallest uuid that is not less than any version 7 UUID of an earlier time."""
    return uuid.UUID(int=(int(time.timestamp() * 1000) & _TIME) << 80)


def uuid7_time(uuid: uuid.UUID) -> datetime:
    """Return the time in a version 7 UUID, to the millisecond.

    The uuid of an Instance has the time of its enqueue.
    """
    return datetime.fromtimestamp((uuid.int >> 80) / 1000, UTC)


def _without_random() -> int:
    return (time.time_ns() // 1_000_000 & _TIME) << 80 | _VERSION
