"""Model fields of ATP's own."""

from datetime import UTC
from typing import Any

from django.db import models
from django.utils import timezone


class InstantField(models.DateTimeField):
    """A point in time, always aware, whatever USE_TZ says.

    SQLite has no type for times: Django writes text in the connection's time
    zone. Text in local time does not sort when the clocks go back. This field
    writes UTC, so the store can compare due times and leases on every database.
    """

    description = "Point in time"

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "atp.rows.fields.InstantField", args, kwargs

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
            # The value was written as UTC; Django has labelled it with another zone, or none.
            return value.replace(tzinfo=UTC)
        if timezone.is_naive(value):  # select_format() has asked for UTC
            return value.replace(tzinfo=UTC)
        return value

    def select_format(self, compiler: Any, sql: str, params: Any) -> Any:
        """Ask for UTC: a connection's local time is ambiguous when the clocks go back."""
        connection = compiler.connection
        if connection.vendor == "postgresql" and connection.timezone_name != "UTC":
            return f"({sql}) AT TIME ZONE 'UTC'", params
        return super().select_format(compiler, sql, params)
