"""Sequences that are set back, as tests with ``reset_sequences`` do.

Django's tests may set every sequence back to its beginning, but keep the rows that were written
after ``migrate`` or ``flush``: the declared Types and their log. New rows would then get the keys
of those.
"""

from collections.abc import Iterable
from typing import Any

from django.apps import apps
from django.db.backends.base.base import BaseDatabaseWrapper


def keep_ahead(connection: BaseDatabaseWrapper) -> None:
    """Make this connection's reset of sequences leave ATP's sequences behind existing rows."""
    operations: Any = connection.ops
    if not connection.features.supports_sequence_reset or hasattr(operations, "atp_keeps_ahead"):
        return
    set_back = operations.sequence_reset_by_name_sql

    def and_ours_ahead(style: Any, sequences: Iterable[Any]) -> list[str]:
        own = list(apps.get_app_config("atp").get_models())
        return [*set_back(style, sequences), *operations.sequence_reset_sql(style, own)]

    operations.sequence_reset_by_name_sql = and_ours_ahead
    operations.atp_keeps_ahead = True
