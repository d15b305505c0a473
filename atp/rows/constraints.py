"""The check constraints of Instance: rows that the database itself refuses.

PostgreSQL keeps the condition of a check constraint as text and parses it in every
statement that writes to the table, for one row as for a thousand. Even in their shortest
form, the conditions of Instance took a quarter of the server's work for an enqueue.
PostgreSQL parses the condition of a domain only once a session, so they stand in a domain.
With a function in its place, an enqueue of 370 µs took 10 to 20 µs longer.
"""

from typing import Any

from django.db.models import CheckConstraint, Q
from django.db.models.sql.query import Query

from ..states import TERMINAL, Reason, State
from ..words.options import MAX_PRIORITY, MIN_PRIORITY


class CheckByDomain(CheckConstraint):
    """A check constraint; on PostgreSQL a domain over the rows of the table has its condition.

    The domain has the name of the constraint. It is removed with the constraint, and with
    the table.
    """

    def constraint_sql(self, model: Any, schema_editor: Any) -> Any:
        if schema_editor.connection.vendor != "postgresql":
            return super().constraint_sql(model, schema_editor)
        # The domain is of rows of the table, so the table has to be made first.
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
            # A row is never NULL itself. The constraint is there for its cast, which the
            # domain refuses.
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
        """Return the condition with every column as a field of the row."""
        query = Query(model=model)
        where = query.build_where(self.condition)  # type: ignore[arg-type]
        compiler = query.get_compiler(connection=schema_editor.connection)
        sql, parameters = where.as_sql(compiler, schema_editor.connection)
        # The SQL has placeholders where the values of the condition belong.
        sql = sql.replace(f"{schema_editor.quote_name(model._meta.db_table)}.", "(VALUE).")
        return sql % tuple(schema_editor.quote_value(value) for value in parameters)


def _outcome() -> Q:
    """FAILED has one of the reasons, every other state has none."""
    others = [state for state in State if state != State.FAILED]
    return Q(state__in=others, reason="") | Q(state=State.FAILED, reason__in=list(Reason))


def _end() -> Q:
    """Terminal rows, and only they, have the time ``finished``; partial indexes rely on it."""
    ended = Q(state__in=sorted(TERMINAL))
    return Q(ended, finished__isnull=False) | Q(~ended, finished__isnull=True)


def _numbers() -> Q:
    counts = ("attempt", "restarts", "retries", "lost")
    not_negative = Q(**{f"{count}__gte": 0 for count in counts})
    return Q(priority__gte=MIN_PRIORITY, priority__lte=MAX_PRIORITY) & not_negative


OF_INSTANCE = [CheckByDomain(condition=_outcome() & _end() & _numbers(), name="atp_instance_valid")]
